"""Points of a search and what they are called."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.commands.experiment import set_inside
from rerank.experiments.cells import Group, file_name, point_name
from rerank.experiments.config import ExperimentConfig, Method
from rerank.experiments.plan import ExperimentPlan

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


@pytest.mark.parametrize(
    "search", [{"loss.alpha": [3], "loss": ["ApproxNDCG"]}, {"loss": ["ApproxNDCG"], "loss.alpha": [3]}]
)
def test_a_searched_class_does_not_undo_a_searched_argument_above_it(search: dict[str, Any]) -> None:
    config = ExperimentConfig(output="x", base={}, methods={"A": Method(search=search)})
    plan = ExperimentPlan(config)
    cell = plan.cell(Group("A", None, 1), plan.points(Group("A", None, 1))[0])
    assert cell.settings["loss"] == {"class_path": "ApproxNDCG", "init_args": {"alpha": 3}}


def test_options_reach_into_what_is_dotted_and_a_class_comes_before_its_arguments() -> None:
    config = ExperimentConfig(output="x", base={}, methods={"A": Method(set={"loss": "ApproxNDCG", "loss.alpha": 3})})
    set_inside(config, [("methods.A.set.loss.alpha", "7"), ("base.loss.alpha", "5"), ("base.loss", "ApproxNDCG")])
    assert config.methods["A"].set == {"loss": {"class_path": "ApproxNDCG", "init_args": {"alpha": 7}}}
    assert config.base["loss"] == {"class_path": "ApproxNDCG", "init_args": {"alpha": 5}}
