from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rerank.collections import open_collection
from rerank.collections.texts import Texts
from rerank.errors import UserError
from rerank.lists import Lists, build_lists
from rerank.retrieval import Scored, read_run
from rerank.storage.files import read_json, write_json
from tests.builders import make_lists, make_lists_with_added, random_run, write_collection


def test_build_lists_stores_run_texts_and_grades(tmp_path: Path) -> None:
    name = write_collection(tmp_path / "c")
    collection = open_collection(name)
    run = {query: ranked[:10] for query, ranked in random_run(name, [20, 0, 7, 20]).items()}
    lists = build_lists(collection, random_run(name, [20, 0, 7, 20]), tmp_path / "lists", depth=10)

    asked, texts, qrels = dict(collection.queries()), dict(collection.documents()), collection.qrels()
    assert qrels is not None
    assert lists.query_ids == [*asked]
    assert lists.lengths.tolist() == [10, 0, 7, 10] + [0] * 8
    rows = [(query, id, asked[query], texts[id], score) for query, ranked in run.items() for id, score in ranked]
    expected = pd.DataFrame(rows, columns=["query_id", "doc_id", "query", "text", "bm25"])
    pd.testing.assert_frame_equal(lists.to_dataframe().drop(columns="grade"), expected, check_dtype=False)
    assert lists.grades.tolist() == [qrels.get(query, {}).get(id, 0) for query, id, *_ in rows]
    assert lists.qrels == qrels
    assert read_run(tmp_path / "lists" / "run.trec") == {query: ranked for query, ranked in run.items() if ranked}
    assert sorted(lists.store.documents.column("doc_id").to_pylist()) == sorted({id for _, id, *_ in rows})


def test_selection_and_depth_agree_with_the_whole(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    order = np.random.default_rng(1).permutation(len(lists))
    part = lists.select(order).top(6)
    best = {query: rows.head(6) for query, rows in lists.to_dataframe().groupby("query_id")}
    expected = pd.concat([best[lists.query_ids[i]] for i in order])
    pd.testing.assert_frame_equal(part.to_dataframe(), expected.reset_index(drop=True))
    assert part.queries.tolist() == order.tolist()
    assert part.row_numbers.tolist() == expected.index.tolist()


def test_runs_break_ties_by_the_first_stage(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    first, equal, turned = (
        {query: [scored.id for scored in ranked] for query, ranked in lists.run(scores).items()}
        for scores in (None, np.zeros(lists.size, dtype=np.float32), -lists.column("bm25"))
    )
    assert equal == first
    assert turned == {query: documents[::-1] for query, documents in first.items()}


def test_added_relevant_documents_are_for_training_only(tmp_path: Path) -> None:
    other = make_lists_with_added(tmp_path)
    training = other.with_added()
    assert other.qrels is not None
    relevant = [sum(grade > 0 for grade in other.qrels.get(query, {}).values()) for query in training.query_ids]
    assert np.add.reduceat(training.grades > 0, training.offsets[:-1]).tolist() == relevant
    assert np.isnan(training.column("bm25")).sum() == training.size - other.size > 0, "nobody scored what was added"
    assert not np.isnan(other.column("bm25")).any()
    assert other.lengths.tolist() == [2] * 12
    assert other.run() == read_run(tmp_path / "lists" / "run.trec")


def test_build_lists_refuses_a_run_of_another_collection(tmp_path: Path) -> None:
    collection = open_collection(write_collection(tmp_path / "c"))
    with pytest.raises(UserError, match="'d99'"):
        build_lists(collection, {"q1": [Scored("d99", 1.0)]}, tmp_path / "lists")
    with pytest.raises(UserError, match="another collection"):
        build_lists(collection, {"q1": [Scored("d1", 1.0)]}, tmp_path / "lists", qrels={"x": {"d1": 1}})
    assert [path.name for path in tmp_path.iterdir()] == ["c"], "nothing may be left behind"


def test_open_refuses_other_versions_and_broken_folders(tmp_path: Path) -> None:
    folder = make_lists(tmp_path).store.folder
    with pytest.raises(UserError, match="not a lists folder"):
        Lists.open(tmp_path / "collection")
    manifest = read_json(folder / "manifest.json")
    write_json(folder / "manifest.json", manifest | {"version": 99})
    with pytest.raises(UserError, match=r"version 99.*build them again"):
        Lists.open(folder)
    write_json(folder / "manifest.json", manifest)
    data = (folder / "queries.arrow").read_bytes()
    (folder / "queries.arrow").write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match=r"queries\.arrow"):
        _ = Lists.open(folder).query_ids
    (folder / "queries.arrow").unlink()
    with pytest.raises(UserError, match=r"queries\.arrow"):
        Lists.open(folder)


def test_build_lists_counts_empty_documents_and_lists(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "c"
    folder.mkdir()
    (folder / "docs.tsv").write_text("a\thello\nb\t\n")
    (folder / "queries.tsv").write_text("1\thello\n2\tworld\n")
    (folder / "qrels").write_text("1 0 a 1\n1 0 b -2\n2 0 a 1\n")
    lists = build_lists(
        open_collection(f"files:{folder}"), {"1": [Scored("a", 2.0), Scored("b", 1.0)]}, tmp_path / "lists"
    )
    counts = lists.store.manifest["counts"]
    assert (counts["empty_documents"], counts["queries_without_candidates"], counts["negative_grades"]) == (1, 1, 1)
    assert lists.grades.tolist() == [1, 0]
    for what in ("1 empty documents", "1 queries without candidates", "1 negative grades"):
        assert what in caplog.text


def test_datasets_reads_the_arrow_files(tmp_path: Path) -> None:
    from datasets import Dataset

    lists = make_lists(tmp_path)
    stored = Dataset.from_file(str(lists.store.folder / "documents.arrow"))
    assert stored["doc_id"][:] == lists.store.documents.column("doc_id").to_pylist()


def test_build_lists_leaves_out_the_document_that_is_the_query(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Documents of the same id alone, as in Cranfield, are kept, and so are those that are relevant."""
    documents = {"a": "a wing gives lift", "b": "wings lift", "c": "heat flows", "d": "drag"}
    queries = {"a": "a wing  gives lift", "c": "flow", "d": "drag"}
    own = Texts(documents, queries, {"a": {"b": 1}, "c": {"d": 1}, "d": {"d": 1}})
    run = {query: [Scored(id, 9.0 - i) for i, id in enumerate("acbd")] for query in queries}
    run["d"].reverse()
    with caplog.at_level(logging.INFO, "rerank"):
        lists = build_lists(own, run, tmp_path / "lists", depth=2)
    assert "1 queries are documents, which are left out of their lists" in caplog.text
    assert {query: [s.id for s in ranked] for query, ranked in lists.run().items()} == {
        "a": ["c", "b"],
        "c": ["a", "c"],
        "d": ["d", "b"],
    }
    assert read_run(tmp_path / "lists" / "run.trec").keys() == lists.run().keys()
