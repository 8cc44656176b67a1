"""Points of a search and what they are called."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rerank.experiments.cells import file_name, point_name

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
