"""A ranking is compared with the first stage in one line."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.evaluation.paired import Comparison, compare_values

VALUES = st.lists(st.floats(0, 1), min_size=2, max_size=30)


def compared(ours: np.ndarray, theirs: np.ndarray, against: str = "first stage") -> Comparison:
    return compare_values(("ours", against), "AP", ours, theirs)


@given(first=VALUES, shift=st.sampled_from([-0.5, -0.25, 0.25, 0.5]))
def test_difference_of_constant_has_no_interval(first: list[float], shift: float) -> None:
    values = np.array([first])
    found = compared(values + shift, values)
    assert found.difference == pytest.approx(shift)
    assert found.ours - found.theirs == pytest.approx(shift)
    assert found.interval is None and not found.verdict
    assert str(found).endswith(f"difference {shift:+.4f} ({len(first)} queries)")


def test_lower_interval_says_worse() -> None:
    found = compared(np.linspace(0.3, 0.4, 20)[None], np.full((1, 20), 0.5))
    assert found.interval is not None and found.interval[1] < 0
    assert found.verdict.startswith("worse") and str(found).endswith(found.verdict)


def test_one_query_has_no_verdict_and_equal_rankings_have_no_difference() -> None:
    one = compared(np.array([[0.5]]), np.array([[0.25]]))
    same = compared(np.array([[0.5, 0.25]]), np.array([[0.5, 0.25]]), "start bm25 + dense")
    assert not one.verdict and str(one).endswith("difference +0.2500 (1 query)")
    assert same.verdict == "no difference" and ", start bm25 + dense 0.3750," in str(same)
