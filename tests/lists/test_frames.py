"""Lists in memory: from data frames and back, and joined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.collections import open_collection
from rerank.errors import UserError
from rerank.lists import Lists, build_lists
from rerank.lists.tokens import tokenise
from rerank.lists.view import concat
from tests.builders import make_lists, random_run, write_collection

NUMBERS = st.floats(-1e6, 1e6, width=32) | st.just(float("nan"))


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Rows in which a query has a document once, in any order, with texts or without."""
    pairs = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=25, unique=True))
    frame = pd.DataFrame({"query_id": [f"q{q}" for q, _ in pairs], "doc_id": [f"d{d}" for _, d in pairs]})
    if draw(st.booleans()):
        frame["query"] = [f"query {q}" for q, _ in pairs]
        frame["text"] = [f"text {d}" for _, d in pairs]
    frame["grade"] = draw(st.lists(st.integers(0, 4), min_size=len(pairs), max_size=len(pairs)))
    for name in draw(st.sets(st.sampled_from(["a", "bm25", "z-1"]))):
        frame[name] = np.array(draw(st.lists(NUMBERS, min_size=len(pairs), max_size=len(pairs))), np.float32)
    return frame


@given(frames())
def test_what_goes_in_comes_back(frame: pd.DataFrame) -> None:
    back = Lists.from_dataframe(frame).to_dataframe()
    first = {query: i for i, query in enumerate(frame["query_id"].unique())}
    expected = frame.iloc[np.argsort(frame["query_id"].map(first), kind="stable")].reset_index(drop=True)
    pd.testing.assert_frame_equal(back[list(expected.columns)], expected, check_dtype=False)
    again = Lists.from_dataframe(back)
    assert again.store.manifest["candidates"] == Lists.from_dataframe(frame).store.manifest["candidates"]


@given(frames())
def test_grades_are_the_judgments_unless_others_are_given(frame: pd.DataFrame) -> None:
    lists = Lists.from_dataframe(frame)
    expected: dict[str, dict[str, int]] = {}
    for row in frame.itertuples():
        expected.setdefault(row.query_id, {})[row.doc_id] = row.grade
    assert lists.qrels == expected
    given_ = {query: {"elsewhere": 2} | judged for query, judged in expected.items()}
    judged = Lists.from_dataframe(frame.drop(columns="grade"), qrels=given_)
    assert judged.qrels == given_
    np.testing.assert_array_equal(judged.grades, lists.grades)
    assert Lists.from_dataframe(frame.drop(columns="grade")).qrels is None


def test_a_folder_as_a_data_frame_is_the_folder(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    again = Lists.from_dataframe(lists.to_dataframe(), qrels=lists.qrels)
    filled = lists.select(np.flatnonzero(lists.lengths))
    assert again.run() == filled.run()
    np.testing.assert_array_equal(again.grades, filled.grades)
    assert again.query_texts == filled.query_texts


def two(folder: Path) -> tuple[Lists, Lists, Lists]:
    """The lists of a collection, and the same queries in two folders, both with added documents and another column."""
    name = write_collection(folder / "c")
    run = random_run(name, [7, 3, 9, 0, 4, 8, 2, 5, 6, 1, 7, 3])
    collection = open_collection(name)
    queries = list(collection.queries())
    made = []
    for i, some in enumerate((queries, queries[:5], queries[5:])):
        part = {query.id: run[query.id] for query in some}
        lists = build_lists(collection, part, folder / str(i), queries=some, add_relevant=True)
        ids = lists.document_ids(lists.store.document)
        lists.store.add_column("length", np.array([float(id[1:]) for id in ids]))
        made.append(lists)
    return made[0], made[1], made[2]


@pytest.mark.parametrize("added", [False, True])
def test_joined_lists_are_the_lists_of_the_whole(tmp_path: Path, added: bool) -> None:
    whole, *parts = two(tmp_path)
    if added:
        whole, parts = whole.with_added(), [part.with_added() for part in parts]
    joined = concat(parts)
    pd.testing.assert_frame_equal(joined.to_dataframe(), whole.to_dataframe())
    assert joined.qrels == whole.qrels
    order = np.random.default_rng(0).permutation(len(whole))
    pd.testing.assert_frame_equal(
        joined.select(order).top(2).to_dataframe(), whole.select(order).top(2).to_dataframe(), check_dtype=False
    )
    if not added:
        pd.testing.assert_frame_equal(joined.with_added().to_dataframe(), whole.with_added().to_dataframe())
        assert joined.run() == whole.run()


def test_joined_lists_use_the_tokens_of_their_folders(tmp_path: Path, tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    whole, *parts = two(tmp_path)
    tokens, separate = tokenise(concat(parts).store, tokenizer, 4, 16), tokenise(whole.store, tokenizer, 4, 16)
    for i in range(len(parts)):
        assert len(list((tmp_path / str(i + 1) / "tokens").glob("*"))) == 1
    store, joined = whole.store, concat(parts).store
    for mine, theirs in zip(joined.document, store.document, strict=True):
        assert tokens.documents[mine].tolist() == separate.documents[theirs].tolist()
    for mine, theirs in zip(joined.query, store.query, strict=True):
        assert tokens.queries[mine].tolist() == separate.queries[theirs].tolist()


def test_tokens_of_lists_in_memory_are_those_of_a_folder(tmp_path: Path, tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    stored = make_lists(tmp_path)
    memory = Lists.from_dataframe(stored.to_dataframe())
    one, other = tokenise(stored.store, tokenizer, 4, 16), tokenise(memory.store, tokenizer, 4, 16)
    assert one.truncated == other.truncated > 0
    for mine, theirs in zip(memory.documents, stored.documents, strict=True):
        assert other.documents[mine].tolist() == one.documents[theirs].tolist()


def test_a_query_twice_cannot_be_joined(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    with pytest.raises(UserError, match="query 'q0' is in"):
        concat([lists, lists])
    with pytest.raises(UserError, match="some lists have texts"):
        concat([lists, Lists.from_dataframe(pd.DataFrame({"query_id": ["x"], "doc_id": ["y"]}))])


def test_the_first_stage_is_what_the_rows_are_sorted_by(caplog: pytest.LogCaptureFixture) -> None:
    """Not a column that happens to come first; and nothing at all where rows are shuffled, which is said."""
    frame = pd.DataFrame({"query": ["x"] * 3, "text": ["a", "b", "c"], "length": [5, 9, 7], "bm25": [3.0, 2.0, np.nan]})
    assert Lists.from_dataframe(frame).store.order == "bm25"
    assert not caplog.records
    shuffled = Lists.from_dataframe(frame.iloc[[1, 0, 2]])
    assert shuffled.store.order is None and "not sorted by length or bm25" in caplog.text
    assert shuffled.to_dataframe()["text"].tolist() == ["b", "a", "c"], "rows stay as they come"
    ranked = Lists.from_dataframe(frame.assign(rank=[3, 1, 2], grade=[0, 1, 2]))
    assert ranked.store.order == "rank"
    back = ranked.to_dataframe()
    assert back["text"].tolist() == ["b", "c", "a"] and back["grade"].tolist() == [1, 2, 0]
    assert back["length"].tolist() == [9, 7, 5]
