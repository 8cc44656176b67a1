"""Content hashes of lists: other queries of the folder and their place in it do not count."""

from __future__ import annotations

import pandas as pd
import pytest

from rerank.lists import Lists
from rerank.lists.data import content_hashes

COLUMNS = ["bm25"]


def frame() -> pd.DataFrame:
    """Six lists of one to six documents out of seven."""
    rows = [
        (f"q{q}", f"what is {q}", f"d{(q + place) % 7}", f"text {(q + place) % 7}", place == 0, 10.0 - place)
        for q in range(6)
        for place in range(q + 1)
    ]
    frame = pd.DataFrame(rows, columns=["query_id", "query", "doc_id", "text", "grade", "bm25"])
    return frame.astype({"grade": int})


def hashes(rows: pd.DataFrame, queries: list[str]) -> dict[str, str]:
    lists = Lists.from_dataframe(rows)
    return content_hashes(lists.select([lists.query_ids.index(query) for query in queries]), COLUMNS)


def test_content_hashes_count_only_the_given_queries() -> None:
    chosen = ["q4", "q2"]
    whole = hashes(frame(), chosen)
    assert set(whole) == {"texts", "candidates", "labels", "column bm25"}
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
        ("grade", 3, {"labels"}),
        ("bm25", 9.5, {"column bm25"}),
        ("text", "other", {"texts"}),
        ("query", "other", {"texts"}),
    ],
)
def test_content_hashes_tell_what_changed(column: str, value: object, changed: set[str]) -> None:
    rows = frame()
    at = {"query": rows.query_id == "q2", "text": rows.doc_id == "d3"}.get(column, rows.index == 4)
    rows.loc[at, column] = value
    before, after = hashes(frame(), ["q2", "q3"]), hashes(rows, ["q2", "q3"])
    assert {name for name in before if before[name] != after[name]} == changed


def test_content_hashes_count_order_and_depth() -> None:
    lists = Lists.from_dataframe(frame())
    whole = content_hashes(lists, COLUMNS)
    assert content_hashes(lists.top(3), COLUMNS)["candidates"] != whole["candidates"]
    assert content_hashes(lists.select([1, 0, 2, 3, 4, 5]), COLUMNS)["candidates"] != whole["candidates"]
    assert set(content_hashes(lists, [])) == {"texts", "candidates", "labels"}
