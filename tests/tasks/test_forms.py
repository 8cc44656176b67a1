"""Runs and judgments are read in the forms that people have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import rerank
from rerank.collections import as_qrels
from rerank.retrieval.runs import Scored

SCORES = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3"]),
    st.dictionaries(st.sampled_from("abcdef"), st.integers(-3, 3).map(float), min_size=1),
    min_size=1,
)


@given(SCORES)
def test_as_run_is_the_same_for_every_form(scores: dict[str, dict[str, float]]) -> None:
    """Ties are ordered by descending id, as in trec_eval, in every form."""
    from ir_measures import ScoredDoc

    def best(ranked: dict[str, float]) -> list[Scored]:
        return [Scored(*item) for item in sorted(ranked.items(), key=lambda item: (item[1], item[0]), reverse=True)]

    expected = {query: best(ranked) for query, ranked in scores.items()}
    rows = [(query, document, score) for query, ranked in scores.items() for document, score in ranked.items()]
    frame = pd.DataFrame(rows, columns=["qid", "docno", "score"])
    renamed = frame.rename(columns={"qid": "query_id", "docno": "doc_id"})
    for form in (scores, frame, renamed, [ScoredDoc(*row) for row in rows], expected):
        assert rerank.as_run(form) == expected
    back = rerank.as_run(frame).to_dataframe()
    pd.testing.assert_frame_equal(rerank.as_run(back).to_dataframe(), back)


@pytest.mark.parametrize("names", [("query_id", "doc_id", "relevance"), ("qid", "docno", "label"), ("a", "b", "c")])
def test_as_qrels_reads_frames_with_any_names(names: tuple[str, str, str]) -> None:
    frame = pd.DataFrame({names[0]: [1, 1, 2], names[1]: ["x", "y", "x"], names[2]: [2.0, 0.0, -1.0]})
    told = dict(zip(("query_id", "doc_id", "grade"), names, strict=True)) if names[0] == "a" else None
    expected = {"1": {"x": 2, "y": 0}, "2": {"x": -1}}
    assert as_qrels(frame, told) == as_qrels(expected) == expected


def test_as_qrels_reads_ir_measures_and_data_sets() -> None:
    from datasets import Dataset
    from ir_measures import Qrel

    expected = {"1": {"x": 2}, "2": {"y": 1}}
    assert as_qrels(iter([Qrel("1", "x", 2), Qrel("2", "y", 1)])) == expected
    rows = {"query-id": ["1", "2"], "corpus-id": ["x", "y"], "score": [2, 1]}
    assert as_qrels(Dataset.from_dict(rows)) == expected


def test_evaluate_reads_scored_documents_next_to_arrays() -> None:
    from ir_measures import ScoredDoc

    lists = rerank.Lists.from_dataframe({"query_id": [1, 1], "doc_id": ["a", "b"], "grade": [1, 0], "bm25": [2.0, 1.0]})
    runs = {"documents": [ScoredDoc("1", "a", 1.0), ScoredDoc("1", "b", 2.0)], "scores": [1.0, 2.0]}
    found = rerank.evaluate(lists, runs, measures="RR")
    assert [table.mean["RR"] for table in found.tables.values()] == [0.5, 0.5]


def test_retrieve_searches_texts_in_memory(home: Path) -> None:
    documents = {"d1": "a wing gives lift", "d2": "a jet engine", "d3": "the lift of a wing of a jet"}
    own = rerank.Texts(documents, {"q1": "lift", "q2": "engine"}, {"q1": {"d1": 1, "d3": 2}, "q2": {"d2": 1}})
    lists = rerank.retrieve(own, depth=10)
    assert {q: {s.id for s in ranked} for q, ranked in lists.run().items()} == {"q1": {"d1", "d3"}, "q2": {"d2"}}
    assert lists.qrels == own.qrels() and lists.store.folder is None
    documents_as_queries = rerank.Texts(documents, documents, {"d1": {"d3": 1}, "d2": {"d3": 1}, "d3": {"d1": 1}})
    lists = rerank.retrieve(documents_as_queries, depth=1)
    assert {query: [s.id for s in ranked] for query, ranked in lists.run().items()}["d1"] == ["d3"]
    given_run = {"q1": {"d2": 2.0, "d1": 1.0}, "q2": {"d3": 1.0}}
    lists = rerank.retrieve(own, run={"mine": given_run}, depth=10)
    assert lists.run() == rerank.as_run(given_run) and np.isfinite(lists.column("mine")).all()
