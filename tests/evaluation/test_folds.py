from __future__ import annotations

import pytest

from rerank.errors import UserError
from rerank.evaluation.measures import evaluate, pool
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
