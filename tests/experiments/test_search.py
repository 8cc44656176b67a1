"""Points of a search: their settings and their names."""

from __future__ import annotations

from typing import Any

import pytest

from rerank.experiments.cells import Group, point_name
from rerank.experiments.config import ExperimentConfig, Method
from rerank.experiments.plan import ExperimentPlan


def test_point_name_is_a_short_file_name() -> None:
    assert point_name({"loss.relaxation.alpha": 0.1, "optimization.head_lr": 0.01}) == "alpha=0.1,head_lr=0.01"
    assert point_name({"loss.measure": "nDCG(dcg='exp-log2')@5"}) == "measure=nDCG_dcg=_exp-log2_@5"
    assert point_name({"loss": {"class_path": "ListNet"}}) == "loss=ListNet"
    assert len(point_name({"a/b": "x/" * 99})) == 80 and point_name({}) == "point"


@pytest.mark.parametrize(
    "search", [{"loss.alpha": [3], "loss": ["ApproxNDCG"]}, {"loss": ["ApproxNDCG"], "loss.alpha": [3]}]
)
def test_searched_class_keeps_searched_argument(search: dict[str, Any]) -> None:
    config = ExperimentConfig(output="x", base={}, methods={"A": Method(search=search)})
    plan = ExperimentPlan(config)
    cell = plan.cell(Group("A", None, 1), plan.points(Group("A", None, 1))[0])
    assert cell.settings["loss"] == {"class_path": "ApproxNDCG", "init_args": {"alpha": 3}}
