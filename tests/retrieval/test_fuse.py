from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.retrieval.fuse import K, Pool, fuse, reciprocal_ranks
from rerank.retrieval.runs import Scored

IDS = st.sampled_from([f"d{i}" for i in range(12)])
RANKING = st.lists(IDS, unique=True, max_size=8)
RUN = st.lists(st.tuples(IDS, st.integers(-3, 3)), unique_by=lambda pair: pair[0], max_size=8).map(
    lambda pairs: [Scored(id, float(score)) for id, score in sorted(pairs, key=lambda pair: -pair[1])]
)


@given(st.lists(RANKING, max_size=5), st.sampled_from([0, 1, K]))
def test_reciprocal_ranks_equal_exact_sums(rankings: list[list[str]], k: int) -> None:
    union = list(dict.fromkeys(id for ranking in rankings for id in ranking))
    exact = {}
    for id in union:
        # doubles as they are, summed without rounding, then rounded once
        terms = [Fraction(1 / (k + ranking.index(id) + 1)) for ranking in rankings if id in ranking]
        exact[id] = float(sum(terms))
    found = reciprocal_ranks(rankings, k)
    assert dict(found) == exact
    assert [id for id, _ in found] == sorted(union, key=lambda id: (-np.float32(exact[id]), union.index(id)))


@given(st.dictionaries(st.sampled_from("abc"), RUN, min_size=2), st.integers(1, 9), st.sampled_from([None, "rrf", 0]))
def test_pool_is_the_union_of_runs_above_the_depth(
    runs: dict[str, list[Scored]], depth: int, order: str | int | None
) -> None:
    by = next(iter(runs)) if order == 0 else order
    pool = Pool({name: {"q": ranking} for name, ranking in runs.items()}, by)
    cut = {name: ranking[:depth] for name, ranking in runs.items()}
    fused = reciprocal_ranks([[scored.id for scored in ranking] for ranking in cut.values()])
    documents, scores = pool.candidates("q", depth)
    assert pool.columns == (*runs, "rrf")
    assert sorted(documents) == sorted({scored.id for ranking in cut.values() for scored in ranking})
    for column, ranking in enumerate(cut.values()):
        column_of = {id: row[column] for id, row in zip(documents, scores, strict=True) if not np.isnan(row[column])}
        assert column_of == dict(ranking), "as they are, ties too"
    assert dict(zip(documents, scores[:, -1], strict=True)) == dict(fused)
    if order == 0:
        first = [scored.id for scored in cut[by]]
        assert documents == first + [scored.id for scored in fused if scored.id not in first]
        assert pool.ranking("q", depth) == cut[by]
    else:
        assert documents == [scored.id for scored in fused]
        assert pool.ranking("q", depth) == fused
    empty, nothing = pool.candidates("none", depth)
    assert (empty, nothing.shape) == ([], (0, len(runs) + 1))


@given(st.lists(RUN, min_size=1, max_size=4), st.lists(st.integers(0, 4), min_size=4, max_size=4))
def test_fuse_equals_weighted_sums_of_z_scores(rankings: list[list[Scored]], weights: list[int]) -> None:
    runs, expected = [{"q": ranking} for ranking in rankings], {}
    for document in dict.fromkeys(scored.id for ranking in rankings for scored in ranking):
        expected[document] = 0.0
        for weight, ranking in zip(weights, rankings, strict=False):
            known = {id: score for id, score in ranking}
            values = list(known.values())
            spread = np.std(values) if len(set(values)) > 1 else np.inf
            if values:
                expected[document] += weight * (known.get(document, min(values)) - np.mean(values)) / spread
    found = dict(fuse(runs, weights[: len(runs)])["q"])
    assert found == pytest.approx(expected, abs=1e-9)
    equal = dict(fuse(runs)["q"])
    assert equal == pytest.approx({id: s / len(runs) for id, s in fuse(runs, [1.0] * len(runs))["q"]}, abs=1e-9)
