"""Hashes of what lists hold: other queries and the place in the folder change nothing, every bit of one's own does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rerank.lists.split_hashes import split_hashes
from rerank.lists.store import Lists
from tests.builders import make_lists

COLUMNS = ["first_stage"]


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    return make_lists(tmp_path)


def test_only_the_queries_that_are_there_count(lists: Lists) -> None:
    few = lists.select([2, 4, 7])
    whole = split_hashes(few, COLUMNS)
    assert set(whole) == {"texts", "candidates", "grades", "qrels", "first_stage"}
    assert split_hashes(lists.select([0, 2, 4, 7]).select([1, 2, 3]), COLUMNS) == whole
    labels = lists.labels.copy()
    labels[lists.offsets[3]] += 1
    qrels = {query: dict(grades) for query, grades in (lists.qrels or {}).items()}
    qrels.setdefault(lists.query_ids[3], {})["d1"] = 9
    regraded = replace(lists, labels=labels, qrels=qrels)
    assert split_hashes(regraded.select([2, 4, 7]), COLUMNS) == whole
    changed = split_hashes(regraded.select([2, 3, 4]), COLUMNS)
    before = split_hashes(lists.select([2, 3, 4]), COLUMNS)
    assert {name for name in changed if changed[name] != before[name]} == {"grades", "qrels"}


def test_rows_of_the_store_do_not_count(lists: Lists) -> None:
    """The same lists over a store whose documents are in another order."""
    order = np.random.default_rng(0).permutation(lists.document_table.num_rows)
    table = lists.document_table.take(order)
    moved = replace(lists, document_table=table, documents=np.argsort(order)[lists.documents])
    assert moved.document_ids(moved.documents) == lists.document_ids(lists.documents)
    assert split_hashes(moved, COLUMNS) == split_hashes(lists, COLUMNS)


def test_what_is_changed_is_said(lists: Lists) -> None:
    before = split_hashes(lists, COLUMNS)
    documents = lists.documents.copy()
    first, second = lists.offsets[0], lists.offsets[0] + 1
    documents[[first, second]] = documents[[second, first]]
    for other, names in (
        (replace(lists, documents=documents), {"texts", "candidates"}),
        (replace(lists, first_stage=lists.first_stage + 1), {"first_stage"}),
        (replace(lists, query_ids=[f"x{query}" for query in lists.query_ids]), {"qrels"}),
        (lists.top(5), {"texts", "candidates", "grades", "first_stage"}),
    ):
        found = split_hashes(other, COLUMNS)
        assert {name for name in found if found[name] != before[name]} >= names - {"candidates"}
        assert found != before
    assert set(split_hashes(lists, [])) == {"texts", "candidates", "grades", "qrels"}
