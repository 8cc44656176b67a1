"""Statistics of lists equal those of trec_eval and brute force."""

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
from rerank.evaluation.overview import BEST, measured, overview
from rerank.lists import Lists
from tests.builders import make_lists, make_lists_with_added

SYSTEMS = ("bm25", "splade", "dense")


@st.composite
def judged(draw: st.DrawFn) -> Lists:
    """Draw short lists of three systems with gaps, many ties, and relevant documents that are not candidates."""
    pairs = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 7)), min_size=1, max_size=20, unique=True))
    frame = pd.DataFrame(sorted(pairs), columns=["query_id", "doc_id"]).astype(str)
    for name in SYSTEMS:
        values = st.lists(st.sampled_from([1.0, 2.0, 3.5, float("nan")]), min_size=len(pairs), max_size=len(pairs))
        frame[name] = np.array(draw(values), np.float32)
    grades = st.dictionaries(st.integers(0, 11).map(str), st.integers(0, 3), min_size=1)
    qrels = {query: draw(grades) for query in frame["query_id"].unique()}
    qrels[frame["query_id"][0]].setdefault(frame["doc_id"][0], 0)  # without a judged candidate, lists are refused
    return Lists.from_dataframe(frame, qrels=qrels)


@given(judged())
@settings(max_examples=30)
def test_systems_have_the_measures_of_trec_eval(lists: Lists) -> None:
    assert lists.qrels is not None
    table = measured(lists, "nDCG@10 AP R@5 NumRet")
    systems = {name.removesuffix(" (order)"): values.mean for name, values in table.tables.items()}
    evaluator = pytrec_eval.RelevanceEvaluator(lists.qrels, {"ndcg_cut.10", "map", "recall.5"})
    frame = lists.to_dataframe()
    for name in SYSTEMS:
        known = frame.dropna(subset=name)
        run = {q: dict(zip(one["doc_id"], map(float, one[name]), strict=True)) for q, one in known.groupby("query_id")}
        found = evaluator.evaluate(run)
        for measure, theirs in (("nDCG@10", "ndcg_cut_10"), ("AP", "map"), ("R@5", "recall_5")):
            expected = sum(values[theirs] for values in found.values()) / len(lists.qrels)
            assert systems[name][measure] == pytest.approx(expected, abs=1e-12)
        assert systems[name]["NumRet"] == len(known)


@given(judged())
@settings(max_examples=30)
def test_no_order_is_better_than_the_best(lists: Lists) -> None:
    assert lists.qrels is not None
    best = measured(lists, "nDCG@3").tables[BEST]
    evaluator = pytrec_eval.RelevanceEvaluator(lists.qrels, {"ndcg_cut.3"})
    for position, query in enumerate(lists.qrels):
        ids = lists.to_dataframe().query("query_id == @query")["doc_id"].tolist()
        reached = 0.0
        for top in itertools.permutations(ids, min(3, len(ids))):
            run = {query: {id: float(-rank) for rank, id in enumerate(top)}}
            reached = max(reached, evaluator.evaluate(run)[query]["ndcg_cut_3"])
        assert best["nDCG@3"][position] == pytest.approx(reached, abs=1e-12)


def test_added_documents_are_not_counted(tmp_path: Path) -> None:
    make_lists_with_added(tmp_path)
    about = overview(Lists.open(tmp_path / "lists"))
    assert "R@2" in about and "hidden, for training only" in about


def test_lists_without_judgments_show_their_size(tmp_path: Path) -> None:
    frame = make_lists(tmp_path).to_dataframe().drop(columns="grade")
    shown = overview(Lists.from_dataframe(frame))
    assert "136" in shown and "no judgments" in shown and "nDCG" not in shown
    assert "0 queries" in overview(Lists.from_dataframe(frame).select([]))


def test_command_prints_the_overview(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(make_lists(tmp_path).store.folder)
    assert main(["lists", folder, "--measures", "P@5 RR"]) == 0
    shown = capsys.readouterr().out
    assert "P@5" in shown and "RR" in shown and "bm25 (order)" in shown and BEST in shown
    with pytest.raises(UserError, match="unknown measure"):
        overview(Lists.open(folder), "nDGC@10")
