from __future__ import annotations

import numpy as np
import pytest

from rerank.errors import UserError
from rerank.evaluation.compare import compare
from rerank.evaluation.folds import per_fold, pool
from rerank.evaluation.measures import Evaluator, evaluate
from tests.evaluation.random_runs import random_qrels, random_run

MEASURES = "nDCG@5 AP NumRet"


@pytest.mark.parametrize("empty", ["0", "1", "drop"])
def test_pooled_folds_are_the_whole(empty: str) -> None:
    run, qrels = random_run(1), random_qrels(1)
    queries = list(qrels)
    parts = [evaluate(run, {query: qrels[query] for query in queries[i::3]}, MEASURES, empty) for i in range(3)]  # type: ignore[arg-type]
    whole, pooled = evaluate(run, qrels, MEASURES, empty), pool(parts)  # type: ignore[arg-type]
    assert pooled.mean == pytest.approx(whole.mean)
    assert sorted(pooled.queries) == sorted(queries)
    assert sorted(pooled.missing) == sorted(whole.missing)
    assert pooled.without_relevant.sum() == whole.without_relevant.sum()


def test_folds_that_do_not_fit() -> None:
    run, qrels = random_run(1), random_qrels(1)
    table = evaluate(run, qrels, MEASURES)
    with pytest.raises(UserError, match="'q0' is in more than one fold"):
        pool([table, table])
    with pytest.raises(UserError, match="different measures or policies"):
        pool([table, evaluate(run, {"x": {"d": 1}}, "AP")])
    with pytest.raises(UserError, match="query 'q1' is in no fold"):
        per_fold(table, {"q0": "f1"})


def test_fold_means_can_be_compared() -> None:
    qrels = random_qrels(2, queries=30)
    evaluator = Evaluator(qrels, "nDCG@5 AP", "drop")
    folds = {query: f"f{i % 5}" for i, query in enumerate(qrels)}
    tables = {str(seed): evaluator(random_run(seed, queries=30)) for seed in (2, 3)}
    means = {name: per_fold(table, folds) for name, table in tables.items()}
    for fold in range(5):
        expected = np.nanmean(tables["2"]["AP"][fold::5])
        assert means["2"]["AP"][means["2"].queries.index(f"f{fold}")] == pytest.approx(expected)
    found = compare(means, "2", tests=("t-test",)).differences["3", "AP"]
    assert found.wins + found.ties + found.losses == 5


def test_a_fold_of_empty_queries_is_dropped_as_one() -> None:
    table = evaluate({}, {"a": {"d": 0}, "b": {"d": 1}}, "AP", "drop")
    means = per_fold(table, {"a": "f1", "b": "f2"})
    assert np.isnan(means["AP"]).tolist() == [True, False]
    assert means.without_relevant.tolist() == [[True, False]]
