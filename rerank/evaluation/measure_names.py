"""Measure strings, as ir-measures writes them: ``nDCG@10 AP(rel=2) nDCG(dcg='exp-log2')@20``."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from contextlib import suppress

import ir_measures
from ir_measures import Measure
from ir_measures.measures import registry

from rerank.collections.judgments import HIGHEST
from rerank.errors import UserError, nearest
from rerank.evaluation.providers import PIPELINE
from rerank.measures.notation import ALIASES, read_name

LIMITS: dict[str, tuple[float, float]] = {
    "cutoff": (1, 1_000_000_000),
    "rel": (1, HIGHEST),
    "max_rel": (1, HIGHEST),
    "beta": (0, math.inf),
    "p": (0, 1),
    "recall": (0, 1),
}
"""Lowest and highest values of parameters. With ``rel`` below 1 unjudged documents would be relevant, and trec_eval
keeps a count for every grade up to the largest."""


def parse_measures(text: str | Measure | Sequence[str | Measure]) -> list[Measure]:
    """Parse strings of measures with spaces or commas between them, ir-measures' objects, or several of these.

    Returns:
        The measures in their order, each once.
    """
    parts = [text] if isinstance(text, str | Measure) or not isinstance(text, Sequence) else list(text)
    if wrong := [part for part in parts if not isinstance(part, str | Measure)]:
        raise UserError(f"measures: expected names such as 'nDCG@10 AP', not {wrong[0]!r}")
    measures: list[Measure] = []
    for part in parts:
        words = [part] if isinstance(part, Measure) else re.findall(r"(?:\([^)]*\)?|[^\s,(])+", part)
        measures += [word if isinstance(word, Measure) else _parse(word) for word in words]
    if not measures:
        raise UserError("no measure given; write for example 'nDCG@10 AP RR@10'")
    for measure in measures:
        _check(measure)
    return list(dict.fromkeys(measures))


def parse_measure(text: str | Measure, key: str) -> Measure:
    """Parse the one measure that a setting takes."""
    first, *others = parse_measures(text)
    if others:
        raise UserError(f"{key}: takes one measure, not {' '.join(map(str, [first, *others]))}")
    return first


def _parse(word: str) -> Measure:
    name, parameters = read_name(word)
    if name not in registry:
        name = ALIASES.get(name.lower(), name)
    if name not in registry:
        raise UserError(f"unknown measure {name!r}{_suggestion(name)}")
    measure = registry[name]
    known = measure.SUPPORTED_PARAMS
    if "cutoff" in parameters and measure.AT_PARAM not in parameters:
        parameters[measure.AT_PARAM] = parameters.pop("cutoff")  # IPrec@0.1: what follows the @ is a recall
    for key, value in parameters.items():
        if key not in known:
            takes = f"; it takes {', '.join(known)}" if known else "; it takes none"
            raise UserError(f"measure {word!r}: no parameter {key!r}{nearest(key, known)}{takes}")
        if known[key].dtype is float and type(value) is int:
            parameters[key] = float(value)
    return measure(**parameters)


def _suggestion(name: str) -> str:
    """Suggest the measure of trec_eval's name, of a name without its @, or of a similar one."""
    with suppress(ValueError, KeyError, NameError):
        return f" (did you mean {str(ir_measures.parse_trec_measure(name)[0])!r}?)"
    stem = name.rstrip("0123456789")
    cutoff = name.removeprefix(stem)
    return nearest(stem.rstrip("_"), registry).replace("'?)", f"@{cutoff}'?)" if cutoff else "'?)")


def _check(measure: Measure) -> None:
    for key, info in measure.SUPPORTED_PARAMS.items():
        if info.required and key not in measure.params:
            how = f"{measure}@10" if key == measure.AT_PARAM else f"{measure.NAME}({key}=...)"
            raise UserError(f"measure {measure}: needs {key}; write for example {how}")
    try:
        measure.validate_params()
    except AssertionError as error:
        raise UserError(f"measure {measure}: {error}") from error
    for key, (least, most) in LIMITS.items():
        value = measure.params.get(key, least)
        if isinstance(value, bool) or not least <= value <= most:
            raise UserError(f"measure {measure}: {key} must be from {least:g} to {most:g}, not {value}")
    for gain in [number for pair in measure.params.get("gains", {}).items() for number in pair]:
        if type(gain) is not int or abs(gain) > HIGHEST:
            raise UserError(f"measure {measure.NAME}: gains are whole numbers up to {HIGHEST:,}, not {gain!r:.40}")
    able = [provider for provider in PIPELINE.providers if provider.supports(measure)]
    if not any(provider.is_available() for provider in able):
        missing = "; ".join(provider.install_instructions() for provider in able) or "remove or change its parameters"
        raise UserError(f"measure {measure}: nothing installed computes it; {missing}")
