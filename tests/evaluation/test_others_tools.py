"""Our figures against published ones and against tools that are not ours, on real runs."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from rerank.collections import read_qrels
from rerank.evaluation.measures import evaluate
from rerank.retrieval.runs import read_run
from tests.evaluation.random_runs import random_qrels, random_run, untied


def test_deep_learning_track_2019(shared_data: Path) -> None:
    """nDCG@10 of BM25 and SPLADE as published with the lists, query by query as trec_eval."""
    qrels = read_qrels(shared_data / "dl19" / "qrels")
    scorer = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut_10", "map", "P_10"}, relevance_level=2)
    for name, published in [("BM25", 0.5058), ("SPLADE", 0.7308)]:
        run = read_run(shared_data / "dl19" / f"{name}.json")
        table = evaluate(run, qrels, "nDCG@10 AP(rel=2) P(rel=2)@10")
        assert table.mean["nDCG@10"] == pytest.approx(published, abs=5e-5)
        theirs = scorer.evaluate(untied(run))
        for row, measure in zip(table.values, ("ndcg_cut_10", "map", "P_10"), strict=True):
            np.testing.assert_array_equal(row, [theirs[query][measure] for query in table.queries])


def test_robust04_folds(shared_data: Path) -> None:
    """CEDR's BM25 runs of five folds, on the judgments of topics 301-450."""
    folds = sorted((shared_data / "robust04" / "cedr").glob("f*.test.run"))
    assert len(folds) == 5
    qrels = read_qrels(shared_data / "robust04" / "qrels.robust04.301-450.txt")
    scorer = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut_20", "map", "P_20", "recip_rank"})
    for fold in folds:
        run = read_run(fold)
        judged = {query: qrels[query] for query in run if query in qrels}
        table = evaluate(run, judged, "nDCG@20 AP P@20 RR")
        theirs = scorer.evaluate(untied(run))
        for row, measure in zip(table.values, ("ndcg_cut_20", "map", "P_20", "recip_rank"), strict=True):
            np.testing.assert_allclose(row, [theirs[query][measure] for query in table.queries], atol=1e-12)


def test_ranx(monkeypatch: pytest.MonkeyPatch) -> None:
    """ranx, another implementation, on runs without missing or empty queries (which it treats otherwise)."""
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # compiling takes a minute and a half, running without a second
    ranx = pytest.importorskip("ranx")
    names = {
        "nDCG@10": "ndcg@10",
        "nDCG": "ndcg",
        "nDCG(dcg='exp-log2')@10": "ndcg_burges@10",
        "AP": "map",
        "P@5": "precision@5",
        "R@10": "recall@10",
        "RR": "mrr",
        "RR@3": "mrr@3",
        "Rprec": "r-precision",
    }
    for seed in range(4):
        run, qrels = random_run(seed, missing=False), random_qrels(seed, negative=False)
        qrels = {query: grades for query, grades in qrels.items() if any(grades.values())}
        table = evaluate(run, qrels, list(names))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs = ranx.evaluate(
                ranx.Qrels(qrels),
                ranx.Run({query: ranking for query, ranking in untied(run).items() if query in qrels}),
                list(names.values()),
                return_mean=False,
            )
        order = sorted(qrels)
        ours = {query: i for i, query in enumerate(table.queries)}
        for name, other in names.items():
            values = [table[name][ours[query]] for query in order]
            np.testing.assert_allclose(values, np.asarray(theirs[other]), atol=1e-9, err_msg=name)
