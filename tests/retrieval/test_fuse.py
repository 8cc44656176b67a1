from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.retrieval.fuse import ensemble
from rerank.retrieval.runs import Run, Scored

scores = st.lists(st.integers(-50, 50), min_size=1, max_size=8, unique=True)


def ranking(values: list[int], order: list[int] | None = None) -> Run:
    return {"q": [Scored(f"d{i}", float(values[i])) for i in order or range(len(values))]}


def test_the_mean_of_z_scores_by_hand() -> None:
    """z of (1, 2, 3) is (-a, 0, a), of (30, 20, 40) it is (0, -a, a), with a = sqrt(3/2)."""
    found = ensemble([ranking([1, 2, 3]), ranking([30, 20, 40])])["q"]
    a = 1.5**0.5
    assert [scored.id for scored in found] == ["d2", "d0", "d1"]
    assert [scored.score for scored in found] == pytest.approx([a, -a / 2, -a / 2])


@given(scores, st.integers(1, 9), st.integers(-9, 9), st.randoms())
def test_scale_shift_and_order_of_a_run_do_not_matter(values: list[int], scale: int, shift: int, rng: object) -> None:
    order = list(range(len(values)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    moved = ranking([scale * value + shift for value in values], order)
    found = {scored.id: scored.score for scored in ensemble([ranking(values), moved])["q"]}
    alone = {scored.id: scored.score for scored in ensemble([ranking(values)])["q"]}
    assert found == pytest.approx(alone, abs=1e-9)
    best = [scored.id for scored in ensemble([moved])["q"]]
    assert best == [f"d{i}" for i in np.argsort([-value for value in values])]


def test_runs_of_different_documents_or_queries_are_refused() -> None:
    with pytest.raises(ValueError, match="different documents"):
        ensemble([ranking([1, 2]), ranking([1, 2, 3])])
    with pytest.raises(ValueError, match="different queries"):
        ensemble([ranking([1, 2]), ranking([1, 2]) | {"other": []}])
