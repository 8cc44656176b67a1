"""Measure strings, as ir-measures writes them: ``nDCG@10 AP(rel=2) nDCG(dcg='exp-log2')@20``."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Sequence

import ir_measures
from ir_measures import Measure
from ir_measures.measures import ParamInfo, registry

from rerank.collections.judgments import HIGHEST
from rerank.errors import UserError, nearest
from rerank.evaluation.providers import PIPELINE
from rerank.measures.names import ALIASES, read_name

_TREC_EVAL_NAME = re.compile(
    r"(ndcg_cut|map_cut|P|recall|success|iprec_at_recall)_[\d.]+|recip_rank|num_(q|rel|ret|rel_ret)"
)

LIMITS: dict[str, tuple[float, float]] = {
    "cutoff": (1, 1_000_000_000),
    "rel": (1, HIGHEST),
    "max_rel": (1, HIGHEST),
    "beta": (0, math.inf),
    "p": (0, 1),
    "recall": (0, 1),
}
"""The least and the largest that parameters of measures take; relevance below 1 would make of unjudged documents
relevant ones, and trec_eval's numbers end: it keeps a count for every grade up to the largest."""


def parse_measures(text: str | Measure | Sequence[str | Measure]) -> list[Measure]:
    """Measures in order, each once, of strings with spaces or commas between them, ir-measures' objects, or several."""
    parts = [text] if isinstance(text, str | Measure) or not isinstance(text, Sequence) else list(text)
    if wrong := [part for part in parts if not isinstance(part, str | Measure)]:
        raise UserError(f"measures: expected names such as 'nDCG@10 AP', not {wrong[0]!r}")
    found: list[Measure] = []
    for part in parts:
        found += [part] if isinstance(part, Measure) else [_parse(word) for word in _words(part)]
    if not found:
        raise UserError("no measure given; write for example 'nDCG@10 AP RR@10'")
    for measure in found:
        _check(measure)
    return list(dict.fromkeys(found))


def parse_measure(text: str | Measure, key: str) -> Measure:
    """The one measure that a setting takes."""
    first, *others = parse_measures(text)
    if others:
        raise UserError(f"{key}: takes one measure, not {' '.join(map(str, [first, *others]))}")
    return first


def _words(text: str) -> Iterator[str]:
    """The words between spaces and commas that are not inside quotes or brackets."""
    word = ""
    closing: list[str] = []  # what would close the open quote or brackets, innermost last
    for character in text:
        if closing and character == closing[-1]:
            closing.pop()
        elif closing and closing[-1] in "'\"":
            pass
        elif character in "'\"":
            closing.append(character)
        elif character in "([{":
            closing.append(")]}"["([{".index(character)])
        elif not closing and (character == "," or character.isspace()):
            if word:
                yield word
            word = ""
            continue
        word += character
    if closing:
        raise UserError(f"measures {text!r}: {closing[-1]!r} is missing")
    if word:
        yield word


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
    """The name that may be meant: trec_eval's name for it, or one spelt alike, whatever the case."""
    if _TREC_EVAL_NAME.fullmatch(name):
        return f" (did you mean {str(ir_measures.parse_trec_measure(name)[0])!r}?)"
    if (cut := re.fullmatch(r"([A-Za-z]+)_?(\d+)", name)) and cut[1].lower() in {known.lower() for known in registry}:
        proper = next(known for known in registry if known.lower() == cut[1].lower())
        return f" (did you mean '{proper}@{cut[2]}'?)"
    lowered = ALIASES | {known.lower(): known for known in registry}
    alike = difflib.get_close_matches(name.lower().replace("_", ""), lowered, n=1, cutoff=0.7)
    return f" (did you mean {str(registry[lowered[alike[0]]])!r}?)" if alike else ""


def _check(measure: Measure) -> None:
    for key, info in measure.SUPPORTED_PARAMS.items():
        if key in measure.params and not info.validate(measure.params[key]):
            raise UserError(f"measure {measure}: {key} must be {_expected(info)}, not {measure.params[key]!r}")
        if key not in measure.params and info.required:
            how = f"{measure}@10" if key == measure.AT_PARAM else f"{measure.NAME}({key}=...)"
            raise UserError(f"measure {measure}: needs {key}; write for example {how}")
    for key, (least, most) in LIMITS.items():
        value = measure.params.get(key, least)
        if isinstance(value, bool) or not least <= value <= most:
            name = "the cut-off" if key == "cutoff" else key
            most_of_all = f" and at most {most:,}" if most < math.inf else ""
            raise UserError(f"measure {measure}: {name} must be at least {least}{most_of_all}, not {value}")
    for gain in [number for pair in measure.params.get("gains", {}).items() for number in pair]:
        if type(gain) is not int or abs(gain) > HIGHEST:
            raise UserError(f"measure {measure.NAME}: gains are whole numbers up to {HIGHEST:,}, not {gain!r:.40}")
    able = [provider for provider in PIPELINE.providers if provider.supports(measure)]
    if not any(provider.is_available() for provider in able):
        missing = "; ".join(provider.install_instructions() for provider in able) or "remove or change its parameters"
        raise UserError(f"measure {measure}: nothing installed computes it; {missing}")


def _expected(info: ParamInfo) -> str:
    if isinstance(info.choices, list):
        return "one of " + ", ".join(map(repr, info.choices))
    words = {int: "a whole number", float: "a number", bool: "True or False", dict: "a dictionary"}
    return words.get(info.dtype, "text")
