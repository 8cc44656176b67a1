"""Lists in memory: from data frames and back, and joined."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.collections import Query, open_collection
from rerank.errors import UserError
from rerank.lists import Lists, build_lists
from rerank.lists.concat import concat
from tests.builders import make_lists, random_run, write_collection

NUMBERS = st.floats(width=32, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Rows in which a query has a document once, in any order; awkward texts and numbers, or some of them lacking."""
    pairs = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=25, unique=True))
    frame = pd.DataFrame({"query_id": [f"0{q}" for q, _ in pairs], "doc_id": [f"{d}e5" for _, d in pairs]})
    if draw(st.booleans()):
        asked, told = draw(st.lists(TEXTS, min_size=5, max_size=5)), draw(st.lists(TEXTS, min_size=7, max_size=7))
        frame["query"], frame["text"] = [asked[q] for q, _ in pairs], [told[d] for _, d in pairs]
    if draw(st.booleans()):
        frame["grade"] = draw(st.lists(st.integers(0, 32_767), min_size=len(pairs), max_size=len(pairs)))
    names = draw(st.sampled_from([[], ["bm25"], ["bm25", "splade"], ["bm25", "f/1", "f/2"]]))
    for name in names:
        frame[name] = np.array(draw(st.lists(NUMBERS, min_size=len(pairs), max_size=len(pairs))), np.float32)
    return frame


@given(frames().filter(lambda frame: "grade" in frame.columns))
def test_grades_are_judgments_unless_qrels_are_given(frame: pd.DataFrame) -> None:
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
    cut, without = lists.top(1), judged.top(1)
    assert cut.qrels == expected, "a cut takes no judgment away"
    assert cut.judged_grades() == without.judged_grades() and cut.size == without.size <= lists.size
    with TemporaryDirectory() as folder:
        saved = cut.save(Path(folder) / "cut")
        assert saved.qrels == expected and saved.size == cut.size


def test_concat_keeps_judgments_of_some_parts() -> None:
    rows = {"query_id": ["1", "1"], "doc_id": ["a", "b"], "bm25": [2.0, 1.0]}
    judged = Lists.from_dataframe(pd.DataFrame(rows | {"grade": [0, 1]}))
    other = Lists.from_dataframe(pd.DataFrame(rows | {"query_id": ["2", "2"]}))
    both = concat([other, judged])
    assert both.qrels == judged.qrels == {"1": {"a": 0, "b": 1}}
    assert both.judged.tolist() == [False, True] and both.judged_grades() == [None, None, 0, 1]


def two(folder: Path) -> tuple[Lists, Lists, Lists]:
    """The lists of a collection, and the same queries in two folders, both with added documents and another column."""
    name = write_collection(folder / "c")
    run = random_run(name, [7, 3, 9, 0, 4, 8, 2, 5, 6, 1, 7, 3])
    collection = open_collection(name)
    queries = list(collection.queries())

    def build(i: int, some: list[Query]) -> Lists:
        part = {query.id: run[query.id] for query in some}
        lists = build_lists(collection, part, folder / str(i), queries=some, add_relevant=True)
        ids = lists.document_ids(lists.store.document)
        lists.store.add_column("length", np.array([float(id[1:]) for id in ids]))
        return lists

    return build(0, queries), build(1, queries[:5]), build(2, queries[5:])


@pytest.mark.parametrize("added", [False, True])
def test_concat_equals_the_whole(tmp_path: Path, added: bool) -> None:
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


def test_concat_refuses_a_query_twice(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    with pytest.raises(UserError, match="query 'q0' is in"):
        concat([lists, lists])
    with pytest.raises(UserError, match="some lists have texts"):
        concat([lists, Lists.from_dataframe(pd.DataFrame({"query_id": ["x"], "doc_id": ["y"]}))])


def test_order_is_the_column_that_sorts_all_rows(caplog: pytest.LogCaptureFixture) -> None:
    """A column that happens to come first does not count, and shuffled rows have no order, which is logged."""
    frame = pd.DataFrame({"query": ["x"] * 3, "text": ["a", "b", "c"], "length": [5, 9, 7], "bm25": [3.0, 2.0, np.nan]})
    assert Lists.from_dataframe(frame).store.order == "bm25"
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    shuffled = Lists.from_dataframe(frame.iloc[[1, 0, 2]])
    assert shuffled.store.order is None and "not sorted by length or bm25" in caplog.text
    assert shuffled.to_dataframe()["text"].tolist() == ["b", "a", "c"], "rows stay as they come"
    ranked = Lists.from_dataframe(frame.assign(rank=[3, 1, 2], grade=[0, 1, 2]))
    assert ranked.store.order == "rank"
    assert Lists.from_dataframe(frame.assign(length=1)).store.order == "bm25", "a constant sorts nothing"
    assert Lists.from_dataframe(frame[["query", "text"]].assign(length=1)).store.order is None
    tied = Lists.from_dataframe(frame.assign(rank=[3, 1.5, 1.5]))
    assert tied.store.order == "rank" and tied.top(1).to_dataframe()["text"].tolist() == ["b"], (
        "half a rank is one, too"
    )
    with pytest.raises(UserError, match="rank has numbers above and below 0"):
        Lists.from_dataframe(frame.assign(rank=[1, 2, -1]))
    back = ranked.to_dataframe()
    assert back["text"].tolist() == ["b", "c", "a"] and back["grade"].tolist() == [1, 2, 0]
    assert back["length"].tolist() == [9, 7, 5]


@settings(max_examples=40)
@given(frame=frames())
def test_from_dataframe_round_trips(frame: pd.DataFrame) -> None:
    lists = Lists.from_dataframe(frame)
    found = lists.to_dataframe()
    back = Lists.from_dataframe(found)
    assert list(found.columns[:2]) == ["query_id", "doc_id"]
    assert back.store.has_text == lists.store.has_text
    assert back.qrels == lists.qrels and back.store.order == lists.store.order
    assert back.store.column_names == lists.store.column_names
    for column in lists.store.column_names:
        np.testing.assert_array_equal(back.matrix([column]), lists.matrix([column]))
        assert back.store.entry(column).names == lists.store.entry(column).names
    pd.testing.assert_frame_equal(back.to_dataframe(), lists.to_dataframe())
