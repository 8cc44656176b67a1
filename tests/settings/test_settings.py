"""Numbers that no setting takes, made from the ranges and the signatures, so that a new setting is covered by itself.

YAML, options and Python refuse each with the same line.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rerank import losses, relaxations
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.features import normalise
from rerank.lists import sampling
from rerank.lists.data import Data, ListsData
from rerank.lists.folds import FoldsData
from rerank.losses import ListNet, Term
from rerank.models.base import Model
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.attention import SelfAttention
from rerank.models.vectors.lightgbm import LightGBM
from rerank.models.vectors.mlp import MLP
from rerank.models.vectors.xgboost import XGBoost
from rerank.settings.described import Described
from rerank.settings.ranges import FINITE, RANGES, Range
from rerank.training.classes import import_classes
from rerank.training.config import TrainConfig, check_values
from rerank.training.configuration import check

COMMANDS = ("depth", "threads", "k1", "b")
OF_PYTHON = ("budget", "top_k")
"""Options of commands, and arguments from Python; the other keys are of trainings."""
CONFIG = TrainConfig(ListsData("nowhere"), MLP(), ListNet())
PLAIN: dict[str, Any] = {
    "data": {"class_path": "ListsData", "init_args": {"train": "nowhere"}},
    "model": {"class_path": "CrossEncoder", "init_args": {"name": "nowhere"}},
    "loss": {"class_path": "ListNet"},
}
COUNTS = {"epochs", "steps_per_epoch", "batch_size", "micro_batch_size", "token_budget", "patience", "checkpoint_every"}
COUNTS |= {"seed", "depth", "threads", "query_length", "document_length", "start_depth"}
WHOLE = {key for key in RANGES if key.rpartition(".")[2] in COUNTS}
"""Keys of whole numbers; what is none is refused by its type."""


def beyond(allowed: Range, whole: bool) -> list[float]:
    """Numbers outside a range: its ends where they are not in it, what is just beyond, and what is far."""
    found: list[float] = []
    if allowed.low != -math.inf:
        found += [allowed.low - 1, allowed.low - 1000, -(10**12)] + [allowed.low] * allowed.without_low
        found += [] if whole else [allowed.low - 1e-9, -1e300]
    if allowed.high != math.inf:
        found += [allowed.high + 1, 10**25] + [allowed.high] * allowed.without_high
    found += [] if whole else [math.nan, math.inf, -math.inf]
    return list(dict.fromkeys(int(value) if whole else float(value) for value in found))


def ours() -> Iterator[type[Described]]:
    """Our classes that configurations may name, but for data and models, which need more than numbers."""
    modules: list[Any] = [losses, relaxations, normalise, sampling]
    names = import_classes()
    for kind in (getattr(module, name, None) for module in modules for name in names):
        described = isinstance(kind, type) and issubclass(kind, Described) and not issubclass(kind, Data)
        # Shorthands make a DirectMetric, which refuses by its own name.
        if described and kind.__module__ != "rerank.losses.shorthands":
            yield kind
    yield from (MLP, SelfAttention, LightGBM, XGBoost)


def numbers(kind: type) -> Iterator[str]:
    """The arguments of a class that are numbers and not whole."""
    for name, parameter in inspect.signature(kind, eval_str=True).parameters.items():
        if float in {parameter.annotation, *typing.get_args(parameter.annotation)}:
            yield name


KEYS = [
    (key, value)
    for key, allowed in RANGES.items()
    if not key[0].isupper() and key not in (*COMMANDS, *OF_PYTHON)
    for value in beyond(allowed, key in WHOLE)
]
ARGUMENTS = [
    (kind, name, value)
    for kind in dict.fromkeys(ours())
    for name in numbers(kind)
    if f"{kind.section}.{name}" not in RANGES
    for value in beyond(RANGES.get(f"{kind.__name__}.{name}", FINITE), whole=False)
]


def first_ones(cases: list[Any]) -> list[Any]:
    """The first case and NaN of each setting as they are, the others marked as slow."""
    seen: set[Any] = set()
    found = []
    for case in cases:
        quick = case[:-1] not in seen or math.isnan(case[-1])
        seen.add(case[:-1])
        found.append(case if quick else pytest.param(*case, marks=pytest.mark.slow))
    return found


def line(action: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(UserError) as refused:
        action(*arguments, **named)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def from_files_and_options(settings: dict[str, Any], option: str, value: float, plain: dict[str, Any], to: Path) -> str:
    """What a file, an option and nested settings say; the same."""
    (to / "c.yaml").write_text(yaml.safe_dump(settings))
    (to / "plain.yaml").write_text(yaml.safe_dump(plain))
    said = line(check, settings)
    assert line(check, ["--config", str(to / "c.yaml")]) == said
    written = yaml.safe_dump(value).split("\n")[0]
    assert line(check, ["--config", str(to / "plain.yaml"), f"--{option}={written}"]) == said
    return said


@pytest.mark.parametrize(("key", "value"), first_ones(KEYS))
def test_a_key_is_refused_with_the_same_line_from_everywhere(key: str, value: float, tmp_path: Path) -> None:
    settings = yaml.safe_load(yaml.safe_dump(PLAIN))
    section, _, name = key.rpartition(".")
    inside = settings if not section else settings.setdefault(section, {})
    (inside.setdefault("init_args", {}) if section in ("data", "model") else inside)[name] = value
    said = from_files_and_options(settings, key, value, PLAIN, tmp_path)
    assert said.startswith(f"{key}: must be {RANGES[key]}, not ")
    match section:
        case "data":
            kind = ListsData if name in inspect.signature(ListsData).parameters else FoldsData
            assert line(kind, "nowhere", **{name: value}) == said
        case "model":
            assert line(CrossEncoder, "nowhere", **{name: value}) == said
        case "optimization":
            config = replace(CONFIG, optimization=replace(CONFIG.optimization, **{name: value}))
            assert line(check_values, config, ListNet) == said
        case _:
            assert line(check_values, replace(CONFIG, **{name: value}), ListNet) == said


@pytest.mark.parametrize(
    ("kind", "name", "value"), first_ones(ARGUMENTS), ids=lambda value: getattr(value, "__name__", str(value))
)
def test_an_argument_is_refused_with_the_same_line_from_everywhere(
    kind: type[Described], name: str, value: float, tmp_path: Path
) -> None:
    needed: dict[str, Any] = {"DirectMetric": {"measure": "nDCG", "relaxation": "SmoothI"}}.get(kind.__name__, {})
    made = needed | ({"relaxation": relaxations.SmoothI()} if needed else {})
    said = line(kind, **made, **{name: value})
    assert said.startswith(f"{kind.__name__}.{name}: must be ")
    plain, given = ({"class_path": kind.__name__, "init_args": needed | more} for more in ({}, {name: value}))
    if issubclass(kind, losses.Criterion):
        place, option = (lambda one: {"loss": one}), f"loss.{name}"
    elif issubclass(kind, relaxations.Relaxation):
        direct = {"class_path": "DirectMetric"}
        place = lambda one: {"loss": direct | {"init_args": {"measure": "nDCG", "relaxation": one}}}  # noqa: E731
        option = f"loss.relaxation.{name}"
    elif issubclass(kind, Model):
        place, option = (lambda one: {"model": one}), f"model.{name}"
    else:
        return  # normalisers and scalings stand in lists, where no option reaches
    assert from_files_and_options(PLAIN | place(given), option, value, PLAIN | place(plain), tmp_path) == said


@pytest.mark.parametrize("key", typing.get_type_hints(TrainConfig))
def test_nothing_behind_a_key(key: str, tmp_path: Path) -> None:
    """``epochs:`` without a value is YAML's null, which the parser would let through whatever the type."""
    settings = PLAIN | {key: None}
    if type(None) in typing.get_args(typing.get_type_hints(TrainConfig)[key]):
        check(settings)
        return
    said = line(check, settings)
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(settings))
    assert line(check, ["--config", str(tmp_path / "c.yaml")]) == said
    assert said.startswith(f"{key}: expected ") or f"required: {key};" in said
    assert "not nothing" in said or "required" in said


NEEDED = [
    (kind, name)
    for kind in dict.fromkeys(ours())
    for name, parameter in inspect.signature(kind, eval_str=True).parameters.items()
    if parameter.annotation is not Any and type(None) not in typing.get_args(parameter.annotation)
    if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
]


@pytest.mark.parametrize(("kind", "name"), NEEDED, ids=lambda value: getattr(value, "__name__", value))
def test_nothing_for_an_argument(kind: type[Described], name: str) -> None:
    direct = {"measure": "nDCG", "relaxation": relaxations.SmoothI()}
    needed: dict[str, Any] = {"DirectMetric": direct}.get(kind.__name__, {})
    assert line(kind, **needed | {name: None}).endswith(f".{name}: expected a value, not nothing")


OPTIONS = [(key, value) for key in COMMANDS for value in beyond(RANGES[key], key in WHOLE)]


@pytest.mark.parametrize(("key", "value"), OPTIONS)
def test_an_option_of_a_command(key: str, value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["retrieve", "--collection", "demo", "--output", str(tmp_path / "lists"), f"--{key}={value}"]
    assert main(words) == 2
    said = f"must be {RANGES[key]}, not " if math.isfinite(value) else "expected a number, not "
    said = "must be" if key in WHOLE else said
    assert capsys.readouterr().err.startswith(f"rerank: error: {key}: {said}")
    assert not (tmp_path / "lists").exists()


@pytest.mark.parametrize("weight", [math.nan, math.inf, -1.0, -math.inf])
def test_a_term_has_a_weight(weight: float) -> None:
    assert "weight of ListNet must be at least 0" in line(Term, ListNet(), weight=weight)


@pytest.mark.parametrize("key", sorted(WHOLE & {"epochs", "seed", "batch_size"}))
def test_a_number_beyond_floats(key: str) -> None:
    value = -(10**400)
    assert (
        line(check_values, replace(CONFIG, **{key: value}), ListNet)
        == f"{key}: must be {RANGES[key]}, not a number of 1329 bits"
    )


def test_there_are_two_hundred() -> None:
    assert len(KEYS) + len(ARGUMENTS) + len(OPTIONS) >= 200
    assert {key for key in RANGES if key[0].isupper()} <= {
        f"{kind.__name__}.{name}" for kind in [*ours(), FoldsData] for name in inspect.signature(kind).parameters
    }, "no range of a class that there is not"
