"""Tied scores have trec_eval's order in every form, and are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import pytrec_eval

import rerank
from rerank.collections import read_qrels
from rerank.evaluation.compare import compare_runs, ties_by_id
from rerank.retrieval.runs import Scored, read_run


@pytest.fixture
def tied(tmp_path: Path) -> tuple[str, str]:
    """Write twenty queries of thirty documents with scores of one digit, in random order among equals."""
    rng = np.random.default_rng(7)
    lines, judged = [], []
    for query in range(20):
        scores = np.sort(rng.integers(0, 8, 30))[::-1]
        ids = [f"d{i}" for i in rng.permutation(60)[:30]]
        lines += [f"q{query} Q0 {ids[i]} {i + 1} {scores[i]} t" for i in range(30)]
        judged += [f"q{query} 0 d{i} {grade}" for i, grade in enumerate(rng.integers(-1, 3, 60))]
    (tmp_path / "run.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "qrels").write_text("\n".join(judged) + "\n")
    return str(tmp_path / "qrels"), str(tmp_path / "run.txt")


def test_measures_are_trec_evals_on_ties_and_their_number_is_said(tied: tuple[str, str]) -> None:
    qrels, path = tied
    found = compare_runs(qrels, [path], "nDCG@5 AP RR P@5")
    judged = {q: {d: max(g, 0) for d, g in grades.items()} for q, grades in read_qrels(qrels).items()}
    run = {query: dict(documents) for query, documents in read_run(path).items()}
    theirs = pytrec_eval.RelevanceEvaluator(judged, {"ndcg_cut_5", "map", "recip_rank", "P_5"}).evaluate(run)
    for name, other in (("nDCG@5", "ndcg_cut_5"), ("AP", "map"), ("RR", "recip_rank"), ("P@5", "P_5")):
        expected = [theirs[query][other] for query in found.first.queries]
        np.testing.assert_allclose(found.first[name], expected, atol=1e-12)
    ties = sum(len(documents) - len(set(documents.values())) for documents in run.values())
    assert f"{ties} documents have the score of the one before; ties are broken by document id" in found.text()


def test_scores_that_are_equal_as_float32_tie() -> None:
    run = {"q": [Scored("a", 1 + 1e-12), Scored("b", 1.0)], "other": [Scored("a", 1.0), Scored("b", 1.0)]}
    ordered, ties = ties_by_id(run, {"q": {"a": 1}})
    assert [document.id for document in ordered["q"]] == ["b", "a"] and ties == 1
    assert ties_by_id({"q": [Scored("a", 2.0), Scored("b", 1.0)]}, {"q": {"a": 1}})[1] == 0


def tied_lists() -> rerank.Lists:
    """Make thirty queries of six candidates, of which the first stage ranks two equal, the relevant one first."""
    rows = [(f"q{q}", f"d{d}", f"text {d}", int(d == 1), 5.0 - max(d, 2)) for q in range(30) for d in range(6)]
    return rerank.Lists.from_dataframe(
        pd.DataFrame(rows, columns=["query_id", "doc_id", "text", "grade", "engine"]).assign(query=lambda t: t.query_id)
    )


def test_first_stage_has_one_value_everywhere(tmp_path: Path) -> None:
    """Training, ``rerank evaluate`` and trec_eval agree on it."""
    lists = tied_lists()
    ties = int((np.diff(lists.column("engine").reshape(30, 6)) == 0).sum())
    run = rerank.train(
        rerank.MLP(hidden=[2], columns=["engine"]),
        lists.select(range(10)),
        rerank.LambdaLoss(),
        validation=lists.select(range(10, 20)),
        test=lists.select(range(20, 30)),
        output=tmp_path / "run",
        epochs=1,
        monitor="RR",
    )
    for split, part in (("validation", range(10, 20)), ("test", range(20, 30))):
        judged = lists.select(part)
        scores = {q: dict(ranked) for q, ranked in judged.run("engine").items()}
        theirs = pytrec_eval.RelevanceEvaluator(judged.qrels, {"recip_rank"}).evaluate(scores)
        expected = np.mean([values["recip_rank"] for values in theirs.values()])
        assert getattr(run.results, split)["first_stage"].mean["RR"] == pytest.approx(expected), split
        for form in ("engine", judged.run()):
            table = rerank.evaluate(judged, {"first": form}, measures="RR")
            assert table.tables["first"].mean["RR"] == pytest.approx(expected)
    table = rerank.evaluate(lists, {"ours": -lists.column("engine")}, measures="RR", baseline="engine")
    assert f"engine: {ties} documents have the score of the one before; ties are broken by document id" in str(table)
    assert f"ours: {ties} documents" in str(table), "ties of arrays are broken and counted like those of runs"
