from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ir_measures
import pytest
from ir_measures import nDCG

from rerank.collections import Collection, Query
from rerank.collections.base import Qrels
from rerank.errors import UserError
from rerank.evaluation.measures import Evaluator, evaluate
from rerank.retrieval import BM25, build_index, tune, write_run
from rerank.retrieval.runs import Run
from rerank.tasks import retrieve
from rerank.tasks.search import Search

GRID = [BM25(k1, b) for k1 in (0.0, 0.9) for b in (0.0, 1.0)]


def mean(qrels: Qrels | None, measure: str = "nDCG@10") -> Callable[[Run], float]:
    assert qrels is not None
    evaluator = Evaluator(qrels, measure)
    return lambda run: evaluator(run).mean[measure]


def test_every_setting_is_measured_as_its_run_file_is(fruit: Collection, tmp_path: Path) -> None:
    index, queries = build_index(fruit), list(fruit.queries())
    tuned = tune(index, queries, mean(fruit.qrels()), grid=GRID)
    assert [setting for setting, _ in tuned.tried] == GRID
    for setting, value in tuned.tried:
        write_run(tmp_path / "run", setting.search(index, queries))
        run = ir_measures.read_trec_run(str(tmp_path / "run"))
        file = ir_measures.read_trec_qrels(fruit.name.partition(":")[2] + "/qrels")
        assert value == pytest.approx(ir_measures.calc_aggregate([nDCG @ 10], file, run)[nDCG @ 10])
    assert tuned.value == max(value for _, value in tuned.tried)
    assert tuned.best == next(setting for setting, value in tuned.tried if value == tuned.value)


def test_the_parameters_matter(tmp_path: Path, home: Path) -> None:
    """Length normalisation finds the short document, its absence the long one that repeats the word."""
    from rerank.collections import open_collection

    (tmp_path / "docs.tsv").write_text(
        "short\tquark\nlong\tquark quark" + " word" * 60 + "\nother\tgluon" + " more" * 9
    )
    collection = open_collection(f"files:{tmp_path}")
    index, queries = build_index(collection), [Query("1", "quark")]
    for relevant, b in (("short", 1.0), ("long", 0.0)):
        tuned = tune(index, queries, mean({"1": {relevant: 1}}, "RR"), grid=GRID[2:])
        assert (tuned.best, tuned.value) == (BM25(0.9, b), 1.0)
        assert sorted(value for _, value in tuned.tried) == [0.5, 1.0]


def test_rm3_is_tried_at_the_best_k1_and_b(fruit: Collection) -> None:
    index, queries, value_of = build_index(fruit), list(fruit.queries()), mean(fruit.qrels())
    tuned = tune(index, queries, value_of, grid=GRID, rm3=True)
    expanded = [setting for setting, _ in tuned.tried if setting.rm3]
    assert expanded
    best = tune(index, queries, value_of, grid=GRID).best
    assert {(setting.k1, setting.b) for setting in expanded} == {(best.k1, best.b)}


def test_queries_without_hits_count_as_zero(fruit: Collection) -> None:
    queries = [Query("q1", "pear"), Query("q2", "zebra")]
    value_of = mean({"q1": {"d9": 1}, "q2": {"d1": 1}}, "RR")
    assert tune(build_index(fruit), queries, value_of, grid=GRID[:1]).value == 0.5


@pytest.mark.parametrize("measure", ["nERR@10", "nDCG(dcg='exp-log2')@10"])
def test_what_evaluation_measures_can_be_tuned_for(
    measure: str, fruit: Collection, caplog: pytest.LogCaptureFixture
) -> None:
    """One parser says what a measure is, here and in every table."""
    caplog.set_level("INFO", "rerank")
    lists = retrieve(fruit.name, search=Search(tune_on=fruit.name, tune_measure=measure), depth=5)
    value = float(evaluate(lists.run(), lists.qrels or {}, measure).mean[measure])
    assert f"{measure} {value:.4f}" in caplog.text


def test_what_cannot_be_tuned_is_refused(fruit: Collection, tmp_path: Path) -> None:
    for measure, said in {"nDGC@10": "did you mean 'nDCG'", "nDCG@10 AP": "takes one measure, not nDCG@10 AP"}.items():
        with pytest.raises(UserError, match=said):
            retrieve(fruit.name, search=Search(tune_on=fruit.name, tune_measure=measure))
    (tmp_path / "docs.tsv").write_text("a\tquark\n")
    (tmp_path / "queries.tsv").write_text("1\tquark\n")
    with pytest.raises(UserError, match=r"none of the queries of .* has judgments"):
        retrieve(fruit.name, search=Search(tune_on=f"files:{tmp_path}"))
