"""Groups of queries that splits keep whole, against brute force."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.lists import Lists
from rerank.lists.concat import concat
from rerank.lists.data import FoldsData, ListsData, drawn_folds, hold_out
from rerank.lists.neighbours import relevant_links, seen_queries
from rerank.storage.files import say_once
from rerank.training.configuration import check


def components(count: int, pairs: Iterable[tuple[int, int]]) -> set[frozenset[int]]:
    """Connected components, found by taking unions."""
    groups = [{i} for i in range(count)]
    for one, other in pairs:
        both = [group for group in groups if group & {one, other}]
        groups = [group for group in groups if group not in both] + [set().union(*both)]
    return set(map(frozenset, groups))


def questions(texts: Sequence[str], relevant: Sequence[Iterable[int]] | None = None) -> Lists:
    """Lists with a query of each text and its relevant documents by number; by default each has one of its own."""
    ids = [f"q{i}" for i in range(len(texts))]
    rows = {"query_id": ids, "query": list(texts), "doc_id": "d", "text": "a document", "grade": 0, "bm25": 1.0}
    own = [[f"own-{i}"] for i in ids] if relevant is None else relevant
    qrels = {id: {str(d): 1 for d in some} | {"d": 0} for id, some in zip(ids, own, strict=True)}
    return Lists.from_dataframe(pd.DataFrame(rows), qrels=qrels)


def related(count: int, seed: int) -> Lists:
    """Queries in groups of up to four, by text, by documents, or by both in a chain."""
    rng, texts, relevant = random.Random(seed), list[str](), list[list[int]]()
    while len(texts) < count:
        number = len(texts)
        for i in range(rng.choice((1, 1, 2, 3, 4))):
            same_text = i > 0 and rng.random() < 0.5
            texts.append(f"Text {number}" if same_text or i == 0 else f"text {len(texts)}")
            relevant.append([1000 + len(texts), *([] if same_text else [number])])
    return questions(texts[:count], relevant[:count])


def linked(lists: Lists) -> set[frozenset[int]]:
    texts, qrels = lists.query_texts, lists.qrels or {}
    relevant = [{d for d, grade in qrels[query].items() if grade > 0} for query in lists.query_ids]
    every = itertools.combinations(range(len(lists)), 2)
    return components(len(lists), [(i, j) for i, j in every if relevant[i] & relevant[j] or texts[i] == texts[j]])


@given(st.integers(30, 70), st.integers(0, 10**6), st.floats(0.15, 0.5))
@settings(max_examples=20)
def test_hold_out_cuts_no_group(count: int, seed: int, share: float) -> None:
    lists = related(count, seed)
    groups, wanted = linked(lists), round(count * share)
    train, validation = hold_out(lists, share, seed)
    assert validation is not None
    sides = [{int(query[1:]) for query in side.query_ids} for side in (train, validation)]
    assert all(group <= sides[0] or group <= sides[1] for group in groups)
    assert sorted(sides[0] | sides[1]) == list(range(count))
    assert wanted <= len(validation) < wanted + max(map(len, groups))
    assert hold_out(lists, share, seed)[0].query_ids == train.query_ids


@given(st.integers(30, 70), st.integers(0, 10**6), st.integers(2, 7))
@settings(max_examples=20)
def test_drawn_folds_cut_no_group(count: int, seed: int, folds: int) -> None:
    lists = related(count, seed)
    groups = linked(lists)
    drawn = drawn_folds(lists, folds, seed)
    assert all(len({int(drawn[i]) for i in group}) == 1 for group in groups)
    sizes = np.bincount(drawn, minlength=folds)
    assert sizes.max() - sizes.min() <= max(map(len, groups))
    turned = np.random.default_rng(seed).permutation(count)
    assert drawn_folds(lists.select(turned), folds, seed).tolist() == drawn[turned].tolist(), "whatever their order"


def test_query_groups_ignore_documents_that_join_too_many(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each query shares a document with the next, so all are one group; equal texts still stay together."""
    lists = questions([f"text {i // 2}" for i in range(40)], [[i, i + 1] for i in range(40)]).save(tmp_path / "lists")
    with caplog.at_level(logging.INFO, "rerank"):
        (train, validation), alone = hold_out(lists, 0.2, 1), hold_out(lists, 0.2, 1, "none")
    assert [train.query_ids, validation.query_ids] == [side.query_ids for side in alone]
    assert not set(train.query_texts) & set(validation.query_texts)
    assert f"{lists.store}: relevant documents join more than 8 queries, too many for one side" in caplog.text


def test_leakage_groups_keep_related_queries_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lists = related(60, 5).save(tmp_path / "lists")
    groups = [group for group in linked(lists) if len(group) > 1]
    say_once.cache_clear()
    with caplog.at_level(logging.INFO, "rerank"):
        found = ListsData(str(tmp_path / "lists"), validation_fraction=0.2).splits(1)
    assert f"{sum(map(len, groups))} of 60 queries have the text of another" in caplog.text
    assert f"{len(groups)} groups of them stay together (data.leakage_groups)" in caplog.text
    alone = ListsData(str(tmp_path / "lists"), validation_fraction=0.2, leakage_groups="none").splits(1)
    assert alone.validation is not None and found.validation is not None
    assert seen_queries(alone.validation.qrels or {}, [alone.train.qrels or {}])
    assert not seen_queries(found.validation.qrels or {}, [found.train.qrels or {}])
    with pytest.raises(UserError, match="expected 'auto' or 'none'"):
        check(["--data=ListsData", f"--data.train={tmp_path / 'lists'}", "--data.leakage_groups=some of it"])
    test = FoldsData(str(tmp_path / "lists"), 1, 3).splits(1).test
    assert test is not None and test.query_ids == [f"q{i}" for i in np.flatnonzero(drawn_folds(lists, 3, 0) == 0)]


def test_relevant_links_ignore_an_id_with_several_texts() -> None:
    frames = [
        pd.DataFrame({"query_id": [q], "query": [q], "doc_id": ["1"], "text": [text], "grade": [1], "bm25": [1.0]})
        for q, text in (("one", "lift of a wing"), ("two", "a library"), ("three", "a library"))
    ]
    one, two, three = map(Lists.from_dataframe, frames)
    both = [[side.store.documents for side in pair] for pair in ((two, one), (two, three))]
    assert not seen_queries(two.qrels or {}, [one.qrels or {}], both[0])
    assert seen_queries(two.qrels or {}, [three.qrels or {}], both[1]) == {"two"}
    assert not list(relevant_links(concat([one, two])))
    assert list(relevant_links(concat([two, three]))) == [(0, 1)]
