from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.lists.sampling import Full, Pairs, PositivesNegatives, Random, Sampler
from rerank.lists.view import Lists

grades = st.lists(st.integers(0, 4), min_size=1, max_size=40).map(np.asarray)


@given(grades, st.integers(1, 50), st.integers(0, 2**32))
def test_random_takes_short_lists_whole_and_keeps_a_relevant_candidate(
    labels: np.ndarray, depth: int, seed: int
) -> None:
    chosen = Random(depth).sample(labels, seed)
    assert len(chosen) == min(depth, len(labels)) and (np.diff(chosen) > 0).all()
    assert (labels[chosen] > 0).any() == (labels > 0).any()


@pytest.mark.parametrize(
    ("sampler", "labels", "expected"),
    [
        (Random(4), [0, 3, 0, 1, 0, 2], [4 / 6] * 6),  # 4 of 6 always include one of the 3 that are relevant
        (PositivesNegatives(1, 2), [1, 0, 0, 0, 0], [1] + [1 / 2] * 4),
        (Pairs(2), [1, 0, 2, 0, 0], [1, 2 / 3, 1, 2 / 3, 2 / 3]),  # two independent draws of three meet one 2/3 times
    ],
)
def test_samplers_draw_candidates_of_a_kind_equally_often(
    sampler: Sampler, labels: list[int], expected: list[float]
) -> None:
    drawn = np.zeros(len(labels))
    for seed in range(3000):
        np.add.at(drawn, sampler.sample(np.array(labels), seed), 1)
    np.testing.assert_allclose(drawn, 3000 * np.array(expected), atol=5 * (3000 * 0.5) ** 0.5)


@given(grades, st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**32))
def test_positives_negatives_draws_both_kinds(labels: np.ndarray, positives: int, negatives: int, seed: int) -> None:
    sampler = PositivesNegatives(positives, negatives)
    chosen = sampler.sample(labels, seed)
    assert len(set(chosen.tolist())) == len(chosen)
    assert (labels[chosen] > 0).sum() == min(positives, (labels > 0).sum())
    assert (labels[chosen] == 0).sum() == min(negatives, (labels == 0).sum())
    np.testing.assert_array_equal(chosen, sampler.sample(labels, seed))


@given(grades, st.integers(1, 5), st.integers(0, 2**32))
def test_pairs_draws_as_many_of_both_kinds(labels: np.ndarray, n: int, seed: int) -> None:
    sampler = Pairs(n)
    assert sampler.queries == 1
    chosen = sampler.sample(labels, seed)
    assert (np.diff(chosen) >= 0).all()
    for kind in (labels > 0, labels <= 0):
        assert kind[chosen].sum() == n * kind.any()
    np.testing.assert_array_equal(chosen, sampler.sample(labels, seed))


@pytest.mark.parametrize("sampler", [Full(), Full(3), PositivesNegatives(2, 3, depth=4), Pairs(2)])
def test_samplers_draw_only_what_they_can_reach(sampler: Sampler) -> None:
    labels = np.array([0, 2, 0, 0, 1, 0, 0, 1])
    reach = set(sampler.reach(labels).tolist())
    for seed in range(20):
        assert set(sampler.sample(labels, seed).tolist()) <= reach
    assert reach == set(range(3 if isinstance(sampler, Full) and sampler.depth else 8))


TWO_LISTS = {
    "query_id": ["a"] * 4 + ["b"] * 4,
    "doc_id": [f"d{i}" for i in range(8)],
    "score": [4.0, 3.0, 2.0, 1.0] * 2,
    "grade": [0, 2, 1, 0, 0, 0, 0, 0],
    "dense": [0.9, 0.8, 0.5, 0.71, 0.9, 0.1, np.nan, 0.3],
}


@pytest.mark.parametrize(
    ("given", "left_out"),
    [
        ({}, None),
        ({"column": "dense", "margin": 0.05}, [0]),
        ({"column": "dense", "margin": 0.1}, [0, 3]),
        ({"column": "dense", "ratio": 1.0}, [0]),
        ({"column": "dense", "ratio": 0.8}, [0, 3]),
    ],
)
def test_positives_negatives_leaves_out_likely_false_negatives(given: dict[str, Any], left_out: list[int]) -> None:
    """The best relevant number of the first list is .8; the second has no relevant candidate to compare with."""
    lists = Lists.from_dataframe(TWO_LISTS)
    sampler = PositivesNegatives(positives=2, negatives=4, **given)
    found = sampler.left_out(lists)
    assert (None if found is None else np.flatnonzero(found).tolist()) == left_out
    for first, last in zip(lists.offsets, lists.offsets[1:], strict=False):
        part = None if found is None else found[first:last]
        for seed in range(5):
            chosen = sampler.sample(lists.grades[first:last], seed, part) + first
            assert not set(chosen.tolist()) & set(left_out or [])
            assert set(np.flatnonzero(lists.grades[first:last] > 0) + first) <= set(chosen.tolist())


def test_positives_negatives_refuses_a_column_without_a_limit() -> None:
    for words in ({"column": "dense"}, {"margin": 0.1}, {"column": "dense", "margin": 0.1, "ratio": 0.5}):
        with pytest.raises(UserError, match="belong together"):
            PositivesNegatives(**words)
