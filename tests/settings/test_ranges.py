"""Values that no argument takes, made from the annotations, so that a new argument is covered by itself.

YAML and options refuse each with the same line, which names the key; Python names the class and the argument.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import numpy as np
import pytest
import yaml

import rerank
from rerank import losses, relaxations
from rerank.errors import UserError
from rerank.evaluation.measures import parse_measures
from rerank.features import normalise
from rerank.lists import sampling
from rerank.lists.data import ListsData
from rerank.lists.folds import FoldsData
from rerank.lists.sampling import Sampler
from rerank.losses import ListNet, Term
from rerank.models.text.adapter import LoRA
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.attention import SelfAttention
from rerank.models.vectors.lightgbm import LightGBM
from rerank.models.vectors.mlp import MLP
from rerank.models.vectors.xgboost import XGBoost
from rerank.retrieval.bm25 import BM25
from rerank.settings.described import Described
from rerank.settings.ranges import FINITE, Count, Range, Share, annotations_of, check_arguments
from rerank.training.config import Optimization, TrainConfig, check_values
from rerank.training.configuration import check, import_classes

CONFIG = TrainConfig(ListsData("nowhere"), MLP(), ListNet())
PLAIN: dict[str, Any] = {
    "data": {"class_path": "ListsData", "init_args": {"train": "nowhere"}},
    "model": {"class_path": "CrossEncoder", "init_args": {"name": "nowhere"}},
    "loss": {"class_path": "ListNet"},
}
NEEDED: dict[type, dict[str, Any]] = {
    losses.DirectMetric: {"measure": "nDCG", "relaxation": relaxations.SmoothI()},
    Term: {"loss": ListNet()},
    ListsData: {"train": "nowhere"},
    FoldsData: {"lists": "nowhere", "fold": 1},
    CrossEncoder: {"name": "nowhere"},
}


def ours() -> list[Callable[..., Any]]:
    """Our classes that configurations may name, and data classes of options."""
    modules: list[Any] = [losses, relaxations, normalise, sampling]
    named = (getattr(module, name, None) for module in modules for name in import_classes())
    kinds = [kind for kind in named if isinstance(kind, type) and issubclass(kind, Described)]
    own = (MLP, SelfAttention, LightGBM, XGBoost, CrossEncoder, ListsData, FoldsData, BM25, LoRA)
    return [*dict.fromkeys(kinds), *own]


def range_of(hint: Any) -> tuple[Range, bool] | None:
    """The range of an annotation, and whether its numbers are whole."""
    for kind in get_args(hint) if get_origin(hint) not in (Annotated, None) else (hint,):
        if get_origin(kind) is Annotated:
            return get_args(kind)[1], get_args(kind)[0] is int
        if kind is float:
            return FINITE, False
    return None


def beyond(allowed: Range, whole: bool) -> list[float]:
    """Numbers outside a range: its ends where they are not in it, what is just beyond, and what is far."""
    values: list[float] = []
    if allowed.low != -math.inf:
        values += [allowed.low - 1, -(10**12)] + ([allowed.low] if allowed.without_low else [])
        values += [] if whole else [allowed.low - 1e-9]
    if allowed.high != math.inf:
        values += [allowed.high + 1] + ([allowed.high] if allowed.without_high else [])
    values += [] if whole else [math.nan, math.inf, -math.inf]
    return [int(value) if whole else float(value) for value in values]


def line(action: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(UserError) as refused:
        action(*arguments, **named)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def numbers(kind: Callable[..., Any]) -> Iterator[tuple[str, Range, bool]]:
    for name, hint in annotations_of(kind).items():
        if (numeric := range_of(hint)) is not None:
            yield name, *numeric


ARGUMENTS = [(kind, *numeric) for kind in ours() for numeric in numbers(kind)]
KEYS = [
    *((key, *numeric) for key, *numeric in numbers(TrainConfig)),
    *((f"optimization.{key}", *numeric) for key, *numeric in numbers(Optimization)),
    *((f"data.{key}", *numeric) for key, *numeric in numbers(ListsData)),
    *((f"model.{key}", *numeric) for key, *numeric in numbers(CrossEncoder)),
]


@pytest.mark.parametrize(("kind", "name", "allowed", "whole"), ARGUMENTS)
def test_python_refuses_what_is_beyond_a_range(kind: type, name: str, allowed: Range, whole: bool) -> None:
    for value in beyond(allowed, whole):
        said = line(kind, **NEEDED.get(kind, {}), **{name: value})
        assert f"{name}: must be {allowed}, not " in said
        assert kind in (BM25, LoRA, Term) or said.startswith(f"{kind.__name__}.{name}: ")


@pytest.mark.parametrize(("key", "allowed", "whole"), KEYS)
def test_files_and_options_refuse_it_by_its_key(key: str, allowed: Range, whole: bool, tmp_path: Path) -> None:
    section, _, name = key.rpartition(".")
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(PLAIN))
    for value in beyond(allowed, whole):
        settings = yaml.safe_load(yaml.safe_dump(PLAIN))
        inside = settings.setdefault(section, {}) if section else settings
        (inside.setdefault("init_args", {}) if section in ("data", "model") else inside)[name] = value
        said = line(check, settings)
        assert said.startswith(f"{key}: must be {allowed}, not ")
        written = yaml.safe_dump(value).split("\n")[0]
        assert line(check, ["--config", str(tmp_path / "plain.yaml"), f"--{key}={written}"]) == said
        if section == "optimization":
            changed = replace(CONFIG, optimization=replace(CONFIG.optimization, **{name: value}))
            assert line(check_values, changed, ListNet) == said
        elif not section:
            assert line(check_values, replace(CONFIG, **{name: value}), ListNet) == said


@pytest.mark.parametrize(
    ("option", "key"),
    [
        ("--loss.relaxation.alpha=-1", "loss.relaxation.alpha"),
        ("--sampler=Full --sampler.depth=0", "sampler.depth"),
    ],
)
def test_arguments_within_arguments(option: str, key: str) -> None:
    words = "--data=ListsData --data.train=x --model=MLP --loss=DirectMetric --loss.measure=nDCG"
    words += f" --loss.relaxation=SmoothI {option}"
    assert line(check, words.split()).startswith(f"{key}: must be ")


@pytest.mark.parametrize("key", typing.get_type_hints(TrainConfig))
def test_nothing_behind_a_key(key: str, tmp_path: Path) -> None:
    """``epochs:`` without a value is YAML's null, which the parser would let through whatever the type."""
    settings = PLAIN | {key: None} | ({"model": "LightGBM"} if key == "loss" else {})  # trees need none
    if type(None) in typing.get_args(typing.get_type_hints(TrainConfig)[key]):
        check(settings)
        return
    said = line(check, settings)
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(settings))
    assert line(check, ["--config", str(tmp_path / "c.yaml")]) == said
    assert said.startswith(f"{key}: expected ") or said.startswith(f"{key}: needed")


@pytest.mark.parametrize("kind", ours())
def test_nothing_for_an_argument_and_a_word_that_is_no_choice(kind: type) -> None:
    for name, hint in annotations_of(kind).items():
        if typing.Literal in (get_origin(choice) for choice in (hint, *get_args(hint))):
            said = line(kind, **NEEDED.get(kind, {}) | {name: "neither"})
            assert f"{name}: expected " in said and said.endswith("not 'neither'")
        if hint is not Any and type(None) not in get_args(hint):
            assert f"{name}: expected " in line(kind, **NEEDED.get(kind, {}) | {name: None})


class Own(Sampler):
    """A user's class."""

    def __init__(self, size: Count, shares: list[Share] | None = None) -> None:
        self.size = size

    def sample(self, labels: Any, seed: int) -> Any:
        """All."""
        return range(len(labels))


def test_a_class_of_a_user_is_checked_as_ours() -> None:
    assert Own(np.int64(3), [0, 1]).arguments() == {"size": 3, "shares": [0, 1]}
    assert line(Own, 0) == "Own.size: must be at least 1, not 0"
    assert line(Own, 1.5) == "Own.size: expected a whole number, not 1.5"
    assert line(Own, True) == "Own.size: expected a whole number, not True"
    assert line(Own, 1, [1 + 1e-9]) == "Own.shares[0]: must be in [0, 1], not 1.000000001"
    assert line(Own, 1, [0.5, 2]) == "Own.shares[1]: must be in [0, 1], not 2"
    assert line(Own, 1, "half") == "Own.shares: expected a list or None, not 'half'"
    settings = PLAIN | {"sampler": {"class_path": f"{__name__}.Own", "init_args": {"size": 0}}}
    assert line(check, settings) == "sampler.size: must be at least 1, not 0"


def test_functions_are_checked_too() -> None:
    assert line(rerank.retrieve, "demo", depth=0) == "depth: must be at least 1, not 0"
    check_arguments(TrainConfig, {"warmup": -1, "epochs": np.int32(3)})  # what it does not take is not its matter


def test_a_number_beyond_floats() -> None:
    said = line(check_values, replace(CONFIG, epochs=-(10**400)), ListNet)
    assert said.startswith("epochs: must be at least 1, not -1000")
    assert len(said) < 100


@pytest.mark.parametrize("measure", ["P@True", "AP(rel=0)", "SetF(beta=-1)", "nDCG@10^20", f"nDCG@1{'0' * 20}", "P@0"])
def test_measures_that_none_computes(measure: str) -> None:
    line(parse_measures, measure)


def test_what_makes_sense_passes() -> None:
    check({**PLAIN, "optimization": {"max_grad_norm": None, "warmup": 1, "head_lr": 0}})
    assert str(Range(0, 1)) == "in [0, 1]"
    assert str(Range(0, 1, without_low=True, without_high=True)) == "in (0, 1)"
    parse_measures("P@10 AP(rel=2) SetF(beta=0.5) nDCG@1000 IPrec@0 Success@5")
