"""Every annotated argument has its range and type checked, from Python, YAML and options."""

from __future__ import annotations

import math
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import numpy as np
import pytest
import yaml

import rerank
from rerank import losses, relaxations
from rerank.errors import UserError
from rerank.features.letor import LetorData
from rerank.lists.data import FoldsData, ListsData
from rerank.lists.sampling import Sampler
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.decoder import Decoder, LoRA
from rerank.retrieval.bm25 import BM25
from rerank.settings.arguments import (
    FINITE,
    Count,
    Described,
    Range,
    Share,
    annotations_of,
    check_arguments,
    check_value,
)
from rerank.training.config import Optimization, TrainConfig, check_values
from rerank.training.configuration import CLASSES, check, classes_of

CONFIG = TrainConfig(ListsData("nowhere"), rerank.MLP(), losses.ListNet())
PLAIN: dict[str, Any] = {
    "data": {"class_path": "ListsData", "init_args": {"train": "nowhere"}},
    "model": {"class_path": "CrossEncoder", "init_args": {"name": "nowhere"}},
    "loss": {"class_path": "ListNet"},
}
NEEDED: dict[type, dict[str, Any]] = {
    losses.DirectMetric: {"measure": "nDCG", "relaxation": relaxations.SmoothI()},
    losses.Term: {"loss": losses.ListNet()},
    ListsData: {"train": "nowhere"},
    FoldsData: {"lists": "nowhere", "fold": 1},
    LetorData: {"path": "nowhere"},
    CrossEncoder: {"name": "nowhere"},
    Decoder: {"name": "nowhere"},
}
KINDS = [*(kind for key in CLASSES for kind in classes_of(key).values()), BM25, LoRA]


def range_of(hint: Any) -> tuple[Range, bool] | None:
    """Return the range of an annotation, and whether its numbers are whole."""
    for kind in get_args(hint) if get_origin(hint) not in (Annotated, None) else (hint,):
        if get_origin(kind) is Annotated:
            return get_args(kind)[1], get_args(kind)[0] is int
        if kind is float:
            return FINITE, False
    return None


def beyond(allowed: Range, whole: bool) -> list[float]:
    """Return numbers outside a range: its excluded ends, numbers just beyond and far away."""
    values: list[float] = []
    if allowed.low != -math.inf:
        values += [allowed.low - 1, -(10**12)] + ([allowed.low] if allowed.without_low else [])
        values += [] if whole else [allowed.low - 1e-9]
    if allowed.high != math.inf:
        values += [allowed.high + 1] + ([allowed.high] if allowed.without_high else [])
    values += [] if whole else [math.nan, math.inf, -math.inf]
    return [int(value) if whole else float(value) for value in values]


def error(action: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(UserError) as caught:
        action(*arguments, **named)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def numbers(kind: Callable[..., Any]) -> Iterator[tuple[str, Range, bool]]:
    for name, hint in annotations_of(kind).items():
        if (numeric := range_of(hint)) is not None:
            yield name, *numeric


@pytest.mark.parametrize("kind", KINDS)
def test_constructor_fails_beyond_ranges_and_choices(kind: type) -> None:
    given = NEEDED.get(kind, {})
    for name, allowed, whole in numbers(kind):
        for value in beyond(allowed, whole):
            said = error(kind, **given | {name: value})
            assert f"{name}: must be {allowed}, not " in said
            assert not issubclass(kind, Described) or said.startswith(f"{kind.__name__}.{name}: ")
    for name, hint in annotations_of(kind).items():
        if typing.Literal in (get_origin(choice) for choice in (hint, *get_args(hint))):
            said = error(kind, **given | {name: "neither"})
            assert f"{name}: expected " in said and said.endswith("not 'neither'")
        if hint is not Any and type(None) not in get_args(hint):
            assert f"{name}: expected " in error(kind, **given | {name: None})


def test_files_and_options_fail_with_the_key(tmp_path: Path) -> None:
    (tmp_path / "plain.yaml").write_text(yaml.safe_dump(PLAIN))
    kinds = {"": TrainConfig, "optimization": Optimization, "data": ListsData, "model": CrossEncoder}
    for section, kind in kinds.items():
        for name, allowed, whole in numbers(kind):
            key = f"{section}.{name}".lstrip(".")
            value = beyond(allowed, whole)[0]
            settings = yaml.safe_load(yaml.safe_dump(PLAIN))
            inside = settings.setdefault(section, {}) if section else settings
            (inside["init_args"] if section in ("data", "model") else inside)[name] = value
            said = error(check, settings)
            assert said.startswith(f"{key}: must be {allowed}, not ")
            words = ["--config", str(tmp_path / "plain.yaml"), f"--{key}={value}"]
            assert error(check, words) == said
            if not section:
                assert error(check_values, replace(CONFIG, **{name: value}), losses.ListNet) == said


def test_arguments_within_arguments_are_checked() -> None:
    words = "--data=ListsData --data.train=x --model=MLP --loss=DirectMetric --loss.measure=nDCG"
    words += " --loss.relaxation=SmoothI --loss.relaxation.alpha=-1"
    assert error(check, words.split()).startswith("loss.relaxation.alpha: must be ")


def test_keys_of_mappings_are_checked() -> None:
    with pytest.raises(UserError, match="methods: key: expected text, not 10"):
        check_value("methods", {10: {}}, Mapping[str, Mapping[str, object]])


@pytest.mark.parametrize("key", typing.get_type_hints(TrainConfig))
def test_null_is_checked_like_other_values(key: str) -> None:
    """``epochs:`` without a value is null, which the parser would let through whatever the type."""
    settings = PLAIN | {key: None} | ({"model": "LightGBM"} if key == "loss" else {})  # trees need none
    if type(None) in typing.get_args(typing.get_type_hints(TrainConfig)[key]):
        check(settings)
    else:
        assert error(check, settings).startswith((f"{key}: expected ", f"--{key}: needed"))


class Own(Sampler):
    """A user's class."""

    def __init__(self, size: Count, shares: list[Share] | None = None) -> None:
        self.size = size

    def sample(self, labels: Any, seed: int) -> Any:
        """All."""
        return range(len(labels))


def test_classes_of_users_are_checked() -> None:
    assert Own(np.int64(3), [0, 1]).arguments() == {"size": 3, "shares": [0, 1]}
    assert error(Own, 0) == "Own.size: must be at least 1, not 0"
    assert error(Own, 1.5) == "Own.size: expected a whole number, not 1.5"
    assert error(Own, True) == "Own.size: expected a whole number, not True"
    assert error(Own, 1, [0.5, 1 + 1e-9]) == "Own.shares[1]: must be in [0, 1], not 1.000000001"
    assert error(Own, 1, "half") == "Own.shares: expected a list or None, not 'half'"
    settings = PLAIN | {"sampler": {"class_path": f"{__name__}.Own", "init_args": {"size": 0}}}
    assert error(check, settings) == "sampler.size: must be at least 1, not 0"


def test_functions_are_checked() -> None:
    assert error(rerank.retrieve, "demo", depth=0) == "depth: must be at least 1, not 0"
    check_arguments(TrainConfig, {"warmup": -1, "epochs": np.int32(3)})  # ignores names that it does not take


def test_valid_values_pass() -> None:
    check({**PLAIN, "optimization": {"max_grad_norm": None, "warmup": 1, "head_lr": 0}})
    assert str(Range(0, 1)) == "in [0, 1]"
    assert str(Range(0, 1, without_low=True, without_high=True)) == "in (0, 1)"
