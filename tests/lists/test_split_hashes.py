"""Hashes of what lists hold: other queries and the place in the folder change nothing, what is one's own does."""

from __future__ import annotations

import pandas as pd
import pytest

from rerank.lists import Lists
from rerank.lists.split_hashes import split_hashes

COLUMNS = ["bm25"]
QUERIES = 6


def frame() -> pd.DataFrame:
    """Six lists of one to six documents out of seven."""
    rows = [
        {
            "query_id": f"q{query}",
            "query": f"what is {query}",
            "doc_id": f"d{(query + place) % 7}",
            "text": f"text {(query + place) % 7}",
            "grade": int(place == 0),
            "bm25": 10.0 - place,
        }
        for query in range(QUERIES)
        for place in range(query + 1)
    ]
    return pd.DataFrame(rows)


def hashes(rows: pd.DataFrame, queries: list[str]) -> dict[str, str]:
    lists = Lists.from_dataframe(rows)
    return split_hashes(lists.select([lists.query_ids.index(query) for query in queries]), COLUMNS)


def test_only_the_queries_that_are_there_count() -> None:
    chosen = ["q4", "q2"]
    whole = hashes(frame(), chosen)
    assert set(whole) == {"texts", "candidates", "grades", "qrels", *COLUMNS}
    others = frame()
    others.loc[others.query_id == "q3", ["grade", "query", "bm25"]] = [1, "something else", -3.0]
    assert hashes(others, chosen) == whole
    few = frame()
    few = few[few.query_id.isin(chosen)]
    assert hashes(few, chosen) == whole
    turned = pd.concat([part for _, part in sorted(frame().groupby("query_id"), reverse=True)])
    assert hashes(turned, chosen) == whole, "documents have other rows in the store"


@pytest.mark.parametrize(
    ("column", "value", "changed"),
    [
        ("grade", 3, {"grades", "qrels"}),
        ("bm25", 9.5, {"bm25"}),
        ("text", "other", {"texts"}),
        ("query", "other", {"texts"}),
    ],
)
def test_what_is_changed_is_said(column: str, value: object, changed: set[str]) -> None:
    rows = frame()
    at = (
        (rows.query_id == "q2") if column == "query" else (rows.doc_id == "d3" if column == "text" else rows.index == 4)
    )
    assert rows[at].query_id.isin(["q1", "q2", "q3", "q4", "q5"]).all()
    rows.loc[at, column] = value
    before, after = hashes(frame(), ["q2", "q3"]), hashes(rows, ["q2", "q3"])
    assert {name for name in before if before[name] != after[name]} == changed


def test_order_and_depth_count() -> None:
    lists = Lists.from_dataframe(frame())
    whole = split_hashes(lists, COLUMNS)
    assert split_hashes(lists.top(3), COLUMNS)["candidates"] != whole["candidates"]
    assert split_hashes(lists.select([1, 0, 2, 3, 4, 5]), COLUMNS)["candidates"] != whole["candidates"]
    assert set(split_hashes(lists, [])) == {"texts", "candidates", "grades", "qrels"}
