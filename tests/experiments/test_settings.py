from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.experiments.settings import assign, file_name, merged, point_name

BASE: dict[str, Any] = {
    "data": {"class_path": "FoldsData", "init_args": {"lists": "here", "folds": 5}},
    "loss": {"class_path": "DirectMetric", "init_args": {"measure": "nDCG", "relaxation": "SmoothI"}},
    "optimization": {"head_lr": 0.1, "warmup": 0},
    "epochs": 3,
}


@pytest.mark.parametrize(
    ("key", "way"),
    [
        ("data.fold", ["data", "init_args", "fold"]),
        ("data.init_args.fold", ["data", "init_args", "fold"]),
        ("optimization.head_lr", ["optimization", "head_lr"]),
        ("loss.relaxation.alpha", ["loss", "init_args", "relaxation", "init_args", "alpha"]),
        ("loss.init_args.relaxation.init_args.alpha", ["loss", "init_args", "relaxation", "init_args", "alpha"]),
        ("loss.relaxation", ["loss", "init_args", "relaxation"]),
        ("sampler.depth", ["sampler", "depth"]),
        ("epochs", ["epochs"]),
    ],
)
def test_a_dotted_key_finds_its_place(key: str, way: list[str]) -> None:
    settings = copy.deepcopy(BASE)
    assign(settings, key, 7)
    found: Any = settings
    for part in way:
        found = found[part]
    assert found == 7
    if key.startswith("loss.relaxation."):
        assert settings["loss"]["init_args"]["relaxation"]["class_path"] == "SmoothI"
        assert settings["loss"]["init_args"]["measure"] == "nDCG"
    others = {name for name in BASE if name != key.split(".")[0]}
    assert all(settings[name] == BASE[name] for name in others)


def test_a_key_below_a_number_is_refused() -> None:
    with pytest.raises(UserError, match=r"epochs\.x: epochs is 3"):
        assign(copy.deepcopy(BASE), "epochs.x", 1)


def test_mappings_merge_but_a_class_replaces() -> None:
    before = copy.deepcopy(BASE)
    both = merged(BASE, {"optimization": {"head_lr": 1}, "data": {"folds": 3}, "loss": {"class_path": "ListNet"}})
    assert before == BASE
    assert both["optimization"] == {"head_lr": 1, "warmup": 0}
    assert both["data"] == {"class_path": "FoldsData", "init_args": {"lists": "here", "folds": 3}}
    assert both["loss"] == {"class_path": "ListNet"}
    assert merged(BASE, {"loss": None})["loss"] is None
    assert merged(BASE, {}) == BASE


VALUES = st.one_of(st.integers(0, 3), st.floats(0, 1), st.text("a/ .@|", max_size=4), st.booleans(), st.none())
POINTS = st.dictionaries(st.sampled_from(["a.x", "b.x", "lr", "c/d"]), VALUES, max_size=3)


@given(POINTS, POINTS)
def test_names_of_points_differ_as_the_points_do(one: dict[str, Any], other: dict[str, Any]) -> None:
    for point in (one, other):
        name = point_name(point)
        assert name == file_name(name)
        assert "/" not in name
        assert 0 < len(name) < 120
    if list(one) == list(other):
        same = [(type(value), value) for value in one.values()] == [(type(value), value) for value in other.values()]
        assert same == (point_name(one) == point_name(other))


def test_names_of_points_can_be_read() -> None:
    assert point_name({"loss.relaxation.alpha": 0.1, "optimization.head_lr": 0.01}) == "alpha=0.1,head_lr=0.01"
    assert point_name({"loss.measure": "nDCG(dcg='exp-log2')@5"}).startswith("measure=nDCG_dcg=_exp-log2_@5-")
    assert point_name({"loss": {"class_path": "ListNet"}}).startswith("loss=ListNet-")
