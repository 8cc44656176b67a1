"""What lists are worth, against trec_eval and brute force."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.evaluation import overview as module
from rerank.evaluation.overview import BEST, overview, systems_table, text
from rerank.lists import Lists
from tests.builders import make_lists, make_lists_with_added

SYSTEMS = ("bm25", "splade", "dense")


@st.composite
def judged(draw: st.DrawFn) -> Lists:
    """Short lists of three systems with gaps and many ties; relevant documents that are no candidates."""
    pairs = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7)), min_size=1, max_size=20, unique=True))
    frame = pd.DataFrame(sorted(pairs), columns=["query_id", "doc_id"]).astype(str)
    for name in SYSTEMS:
        values = st.lists(st.sampled_from([1.0, 2.0, 3.5, float("nan")]), min_size=len(pairs), max_size=len(pairs))
        frame[name] = np.array(draw(values), np.float32)
    grades = st.dictionaries(st.integers(0, 11).map(str), st.integers(0, 3), min_size=1)
    qrels = {query: draw(grades) for query in frame["query_id"].unique()}
    qrels[frame["query_id"][0]].setdefault(frame["doc_id"][0], 0)  # of none of the candidates they would be refused
    return Lists.from_dataframe(frame, qrels=qrels)


def runs_of(lists: Lists, name: str) -> dict[str, dict[str, float]]:
    frame = lists.to_dataframe().dropna(subset=name)
    return {
        query: dict(zip(some["doc_id"], map(float, some[name]), strict=True))
        for query, some in frame.groupby("query_id")
    }


@given(judged(), st.integers(1, 30))
@settings(max_examples=30)
def test_each_system_alone_is_what_trec_eval_says_of_its_run(lists: Lists, rows: int) -> None:
    assert lists.qrels is not None
    whole, module.ROWS = module.ROWS, rows
    try:
        about = overview(lists, "nDCG@10 AP R@5")
    finally:
        module.ROWS = whole
    evaluator = pytrec_eval.RelevanceEvaluator(lists.qrels, {"ndcg_cut.10", "map", "recall.5"})
    for name in SYSTEMS:
        found = evaluator.evaluate(runs_of(lists, name))
        for measure, theirs in (("nDCG@10", "ndcg_cut_10"), ("AP", "map"), ("R@5", "recall_5")):
            expected = sum(values[theirs] for values in found.values()) / len(lists.qrels)
            assert about.alone[name].mean[measure] == pytest.approx(expected, abs=1e-12)


@given(judged())
@settings(max_examples=30)
def test_what_only_one_found(lists: Lists) -> None:
    frame = lists.to_dataframe()
    about = overview(lists)
    relevant = frame["grade"] > 0
    for system in about.systems:
        others = [name for name in SYSTEMS if name != system.name]
        alone = frame[system.name].notna() & frame[others].isna().all(axis=1)
        assert system.only == (alone & relevant).sum()
        assert system.candidates == frame[system.name].notna().sum()
        assert system.queries == frame.loc[frame[system.name].notna(), "query_id"].nunique()


@given(judged())
@settings(max_examples=30)
def test_no_order_is_better_than_the_best(lists: Lists) -> None:
    assert lists.qrels is not None
    best = overview(lists, "nDCG@3").alone[BEST]["nDCG@3"]
    evaluator = pytrec_eval.RelevanceEvaluator(lists.qrels, {"ndcg_cut.3"})
    for position, query in enumerate(lists.qrels):
        ids = lists.to_dataframe().query("query_id == @query")["doc_id"].tolist()
        reached = 0.0
        for top in itertools.permutations(ids, min(3, len(ids))):
            run = {query: {id: float(-rank) for rank, id in enumerate(top)}}
            reached = max(reached, evaluator.evaluate(run)[query]["ndcg_cut_3"])
        assert best[position] == pytest.approx(reached, abs=1e-12)


def test_reranking_deeper_reaches_more_and_added_documents_count_for_nothing(tmp_path: Path) -> None:
    make_lists_with_added(tmp_path / "two")
    shallow = overview(Lists.open(tmp_path / "two" / "lists"))
    assert shallow.depth[2] == 2 and [depth for depth, _, _ in shallow.tops] == [2]
    about = overview(make_lists(tmp_path))
    assert [depth for depth, _, _ in about.tops] == [10, 20]
    recall, best = zip(*(row[1:] for row in about.tops), strict=True)
    assert recall[0] <= recall[1] and best[0] <= best[1]
    assert recall[1] == pytest.approx(about.alone["bm25"].mean["R@20"]) and about.missed == pytest.approx(1 - recall[1])
    assert best[1] == about.alone[BEST].mean["nDCG@10"] >= about.alone["bm25"].mean["nDCG@10"]


def test_lists_in_no_order_are_looked_at_whole() -> None:
    """The first rows of a feature file are not the best ones."""
    rows = {"query_id": np.repeat([*"xy"], 30), "doc_id": np.arange(60), "clicks": np.random.default_rng(0).random(60)}
    lists = Lists.from_dataframe(pd.DataFrame(rows | {"grade": np.tile(np.arange(30) >= 25, 2).astype(int)}))
    assert lists.store.order is None and [row[:2] for row in overview(lists).tops] == [(30, 1.0)]
    with pytest.raises(UserError, match="depth: nothing ordered these lists"):
        lists.cut(5)
    assert lists.cut(30).size == lists.cut(None).size == 60


def test_queries_without_relevant_documents_miss_none() -> None:
    """Of three queries one has both of its documents among the candidates, one a half of them, one has none at all."""
    frame = pd.DataFrame({"query_id": [*"xxyzz"], "doc_id": [*"ababc"], "bm25": [2.0, 1.0, 2.0, 2.5, 2.0]})
    about = overview(Lists.from_dataframe(frame, {"x": {"a": 1, "b": 1}, "y": {"a": 1, "e": 1}, "z": {"b": 0, "c": 0}}))
    assert about.missed == pytest.approx(0.25) and "25.0% of the relevant documents are not candidates" in text(about)
    none = overview(Lists.from_dataframe(frame.assign(grade=0)))
    assert np.isnan(none.missed) and "not candidates" not in text(none)
    assert "Every candidate has a grade above 0" in text(overview(Lists.from_dataframe(frame.assign(grade=2))))


def test_a_model_and_a_fusion_find_nothing_themselves(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    lists.store.add_column("ce", lists.column("bm25"), made={"model": "x", "sha256": ""})
    lists.store.add_column("rrf", lists.column("bm25"))
    lists.store.add_column("features", np.zeros((lists.size, 20)), names=[str(i) for i in range(20)])
    about = overview(Lists.open(tmp_path / "lists"))
    assert {system.name: system.only is None for system in about.systems} == {"bm25": False, "ce": True, "rrf": True}
    assert about.features == {"features": 20}
    assert list(about.fused) == ["bm25 + ce"]


def test_what_was_added_afterwards_found_nothing_itself() -> None:
    frame = pd.DataFrame({"query_id": ["q"] * 3, "doc_id": list("abc"), "grade": 1})
    frame["bm25"], frame["rm3"] = [3.0, 2.0, np.nan], [np.nan, 2.0, 1.0]
    lists = Lists.from_dataframe(frame)
    lists.store.add_column("teacher", np.ones(3), made={"run": "x", "sha256": ""})
    assert {system.name: system.only for system in overview(lists).systems} == {"bm25": 1, "rm3": 1, "teacher": None}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_which_systems_are_fused_and_where_the_finds_of_one_are_shown(count: int) -> None:
    frame = pd.DataFrame({"query_id": ["1", "1"], "doc_id": ["a", "b"], "grade": [1, 0]})
    for number, name in enumerate(SYSTEMS[:count]):
        frame[name] = [1.0, float(number)]
    about = overview(Lists.from_dataframe(frame))
    pairs = {f"bm25 + {name}" for name in SYSTEMS[1:count]}
    assert set(about.fused) == pairs | ({"all 3"} if count == 3 else set())
    table = systems_table(about)
    assert ("only it" in table.header) == (count > 1)
    assert {len(row) for row in table.rows} == {len(table.header)}


def test_lists_without_judgments_show_what_there_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = make_lists(tmp_path).to_dataframe().drop(columns="grade")
    shown = text(overview(Lists.from_dataframe(frame)))
    assert "136 (100%)" in shown and "no judgments" in shown and "nDCG" not in shown
    nothing = text(overview(Lists.from_dataframe(frame).select([])))
    assert "0 queries" in nothing


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(make_lists(tmp_path).store.folder)
    assert main(["lists", folder, "--measures", "P@5 RR"]) == 0
    shown = capsys.readouterr().out
    assert "P@5" in shown and "RR" in shown and "bm25 (order)" in shown and "best possible" in shown
    with pytest.raises(UserError, match="unknown measure"):
        overview(Lists.open(folder), "nDGC@10")
