from __future__ import annotations

from pathlib import Path

import ir_measures
import pytest
from ir_measures import nDCG

from rerank.collections import Collection, Query
from rerank.errors import UserError
from rerank.retrieval import BM25, build_index, tune, write_run

GRID = [BM25(k1, b) for k1 in (0.0, 0.9) for b in (0.0, 1.0)]


def test_every_setting_is_measured_as_its_run_file_is(fruit: Collection, tmp_path: Path) -> None:
    index, qrels = build_index(fruit), fruit.qrels()
    assert qrels is not None
    tuned = tune(index, fruit.queries(), qrels, "nDCG@10", grid=GRID)
    assert [setting for setting, _ in tuned.tried] == GRID
    for setting, value in tuned.tried:
        write_run(tmp_path / "run", setting.search(index, fruit.queries()))
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
        tuned = tune(index, queries, {"1": {relevant: 1}}, "RR", grid=GRID[2:])
        assert (tuned.best, tuned.value) == (BM25(0.9, b), 1.0)
        assert sorted(value for _, value in tuned.tried) == [0.5, 1.0]


def test_rm3_is_tried_at_the_best_k1_and_b(fruit: Collection) -> None:
    qrels = fruit.qrels()
    assert qrels is not None
    tuned = tune(build_index(fruit), fruit.queries(), qrels, grid=GRID, rm3=True)
    expanded = [setting for setting, _ in tuned.tried if setting.rm3]
    assert expanded
    best = tune(build_index(fruit), fruit.queries(), qrels, grid=GRID).best
    assert {(setting.k1, setting.b) for setting in expanded} == {(best.k1, best.b)}


def test_queries_without_hits_count_as_zero_and_without_judgments_not_at_all(fruit: Collection) -> None:
    queries = [Query("q1", "pear"), Query("q2", "zebra"), Query("unjudged", "plum")]
    tuned = tune(
        build_index(fruit), queries, {"q1": {"d9": 1}, "q2": {"d1": 1}, "absent": {"d1": 1}}, "RR", grid=GRID[:1]
    )
    assert tuned.value == 0.5


def test_what_cannot_be_tuned_is_refused(fruit: Collection) -> None:
    index = build_index(fruit)
    for measure in ("nDGC@10", "nDCG@@", "nDCG(gain=1)@10", "P(rel=2"):
        with pytest.raises(UserError, match=r"measure .*expected a name of ir-measures"):
            tune(index, fruit.queries(), {"q1": {"d9": 1}}, measure)
    with pytest.raises(UserError, match=r"did you mean 'nDCG'\?"):
        tune(index, fruit.queries(), {"q1": {"d9": 1}}, "nDGC@10")
    with pytest.raises(UserError, match="none of the queries has judgments"):
        tune(index, fruit.queries(), {"other": {"d9": 1}})
