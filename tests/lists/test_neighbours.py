"""Queries of nearly equal text, or with a relevant document in common, against brute force; splits leave them whole."""

from __future__ import annotations

import itertools
import logging
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.lists import Lists
from rerank.lists.data import ListsData, keep_back
from rerank.lists.folds import FoldsData, drawn_folds, fold_of
from rerank.lists.neighbours import (
    FEW,
    grouped,
    have_near,
    in_common,
    near_links,
    query_groups,
    relevant_links,
    seen_queries,
    words,
)
from rerank.lists.view import concat
from rerank.storage.files import say_once

TEXTS = st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=8).map(" ".join), max_size=25)
"""Many have most of their words in common; some have none."""


def near(one: str, other: str) -> bool:
    a, b = (set(re.findall(r"\w+", text.lower())) for text in (one, other))
    return bool(a) and Fraction(len(a & b), len(a | b)) >= Fraction(4, 5)


def components(count: int, pairs: Iterable[tuple[int, int]]) -> set[frozenset[int]]:
    """By taking unions until nothing changes."""
    groups = [{i} for i in range(count)]
    for one, other in pairs:
        both = [group for group in groups if group & {one, other}]
        groups = [group for group in groups if group not in both] + [set().union(*both)]
    return set(map(frozenset, groups))


def as_sets(groups: np.ndarray | None) -> set[frozenset[int]]:
    assert groups is not None
    return {frozenset(np.flatnonzero(groups == group).tolist()) for group in groups.tolist()}


def questions(texts: Sequence[str], relevant: Sequence[Iterable[int]] | None = None, prefix: str = "q") -> Lists:
    """A query of each text, its relevant documents by number; without, each has one of its own."""
    ids = [f"{prefix}{i}" for i in range(len(texts))]
    rows = {"query_id": ids, "query": list(texts), "doc_id": "d", "text": "a document", "grade": 0, "bm25": 1.0}
    own = [[f"own-{i}"] for i in ids] if relevant is None else relevant
    return Lists.from_dataframe(
        pd.DataFrame(rows), qrels={id: {str(d): 1 for d in some} | {"d": 0} for id, some in zip(ids, own, strict=True)}
    )


@given(TEXTS)
def test_nearly_equal_texts_are_all_linked_and_no_others(texts: list[str]) -> None:
    pairs = [(i, j) for i, j in itertools.combinations(range(len(texts)), 2) if near(texts[i], texts[j])]
    assert as_sets(grouped(len(texts), near_links(texts), len(texts))) == components(len(texts), pairs)
    for i, j in near_links(texts):
        assert near(texts[i], texts[j])
        assert i < j


@given(TEXTS, TEXTS)
def test_nearly_equal_texts_of_two_sides_are_found_from_either(some: list[str], others: list[str]) -> None:
    assert have_near(some, others).tolist() == [any(near(one, other) for other in others) for one in some]
    assert have_near(others, some).tolist() == [any(near(other, one) for one in some) for other in others]


@given(st.lists(st.sets(st.integers(0, 12), max_size=3), min_size=1, max_size=15))
@settings(max_examples=30, deadline=None)
def test_queries_are_linked_by_the_relevant_documents_that_they_share(relevant: list[set[int]]) -> None:
    lists = questions([f"query{i}" for i in range(len(relevant))], relevant)
    pairs = [(i, j) for i, j in itertools.combinations(range(len(relevant)), 2) if relevant[i] & relevant[j]]
    assert as_sets(grouped(len(relevant), relevant_links(lists), len(relevant))) == components(len(relevant), pairs)


@given(st.integers(1, 12), st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=12), st.integers(1, 6))
def test_groups_that_are_too_large_are_refused(count: int, links: list[tuple[int, int]], largest: int) -> None:
    links = [(one % count, other % count) for one, other in links]
    expected = components(count, links)
    found = grouped(count, links, largest)
    assert (found is None) == (max(map(len, expected)) > largest)
    if found is not None:
        assert as_sets(found) == expected
        assert all(found[i] == min(group) for group in expected for i in group)


def related(count: int, seed: int) -> Lists:
    """Two of three queries in groups of up to four, by text, by documents, or by both in a chain."""
    rng, texts, relevant = random.Random(seed), list[str](), list[list[int]]()
    while len(texts) < count:
        base, number = [f"w{len(texts)}x{i}" for i in range(9)], len(texts)
        for i in range(rng.choice((1, 1, 2, 3, 4))):
            other = base if rng.random() < 0.5 else [f"v{len(texts)}x{j}" for j in range(5)]
            texts.append(" ".join([*rng.sample(other, len(other)), f"new{len(texts)}"]))
            relevant.append([1000 + len(texts), *([number] if other is not base or i == 0 else [])])
    return questions(texts[:count], relevant[:count])


def linked(lists: Lists) -> set[frozenset[int]]:
    """What belongs together, by brute force."""
    texts, qrels = lists.query_texts, lists.qrels or {}
    relevant = [{d for d, grade in qrels[query].items() if grade > 0} for query in lists.query_ids]
    every = itertools.combinations(range(len(lists)), 2)
    return components(len(lists), [(i, j) for i, j in every if relevant[i] & relevant[j] or near(texts[i], texts[j])])


@given(st.integers(30, 70), st.integers(0, 10**6), st.floats(0.15, 0.5))
@settings(max_examples=20, deadline=None)
def test_a_share_that_is_kept_back_cuts_no_group(count: int, seed: int, share: float) -> None:
    lists = related(count, seed)
    groups, wanted = linked(lists), round(count * share)
    assert max(map(len, groups)) <= wanted
    train, validation = keep_back(lists, share, seed)
    assert validation is not None
    sides = [{int(query[1:]) for query in side.query_ids} for side in (train, validation)]
    assert all(group <= sides[0] or group <= sides[1] for group in groups)
    assert sorted(sides[0] | sides[1]) == list(range(count))
    assert wanted <= len(validation) < wanted + max(map(len, groups))
    assert keep_back(lists, share, seed)[0].query_ids == train.query_ids


@given(st.integers(30, 70), st.integers(0, 10**6), st.integers(2, 7))
@settings(max_examples=20, deadline=None)
def test_drawn_folds_cut_no_group(count: int, seed: int, folds: int) -> None:
    lists = related(count, seed)
    groups = linked(lists)
    drawn = drawn_folds(lists, folds, seed)
    assert all(len({int(drawn[i]) for i in group}) == 1 for group in groups)
    sizes = np.bincount(drawn, minlength=folds)
    assert sizes.max() - sizes.min() <= max(map(len, groups))
    turned = np.random.default_rng(seed).permutation(count)
    assert drawn_folds(lists.select(turned), folds, seed).tolist() == drawn[turned].tolist(), "whatever their order"


@given(st.integers(1, 60), st.integers(0, 10**6), st.integers(1, 3))
@settings(max_examples=20, deadline=None)
def test_where_few_have_a_neighbour_a_split_is_as_it_was(count: int, seed: int, alike: int) -> None:
    """As it was: the first of the permutation, with whatever has the text of one of them."""
    assume(2 * alike <= FEW * count or alike == 1)
    texts = [f"text{i} of {i}" for i in range(count)]
    if 2 * alike <= FEW * count:
        for i in range(alike):
            texts[-1 - i] = texts[i].upper() + "?"  # the words of one, with another sign
    lists = questions(texts)
    _, validation = keep_back(lists, 0.3, seed) if count > 1 else (lists, None)
    drawn = np.random.default_rng(seed).permutation(count)[: max(1, round(count * 0.3))]
    if validation is not None:
        assert sorted(validation.query_ids) == sorted(f"q{i}" for i in drawn)
    folds = min(3, count)
    assert drawn_folds(lists, folds, seed).tolist() == fold_of(lists.query_ids, folds, seed).tolist()


@pytest.mark.parametrize("texts", [False, True])
def test_neighbours_that_are_too_many_for_one_side_do_not_count(
    texts: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each query shares a document with the next (or most words with the first), so all are one group."""
    template = "how many people live in the city of"
    chain = [f"{template} x{i}" if texts else f"query{i}" for i in range(40)]
    lists = questions(chain, None if texts else [[i, i + 1] for i in range(40)]).save(tmp_path / "lists")
    with caplog.at_level(logging.INFO, "rerank"):
        found, alone = keep_back(lists, 0.2, 1), keep_back(lists, 0.2, 1, "none")
    assert [side and side.query_ids for side in found] == [side and side.query_ids for side in alone]
    what = "nearly equal texts" if texts else "relevant documents"
    assert f"{lists.store}: {what} join more than 8 queries, too many for one side of a split" in caplog.text


def test_texts_still_keep_together_where_documents_do_not(tmp_path: Path) -> None:
    lists = questions([f"text{i // 2} by {i // 2}{'!' * (i % 2)}" for i in range(40)], [["all"]] * 40)  # type: ignore[list-item]
    train, validation = keep_back(lists, 0.2, 3)
    assert validation is not None
    assert len(validation) == 8
    assert not {words(text) for text in train.query_texts} & {words(text) for text in validation.query_texts}


def test_the_option_and_what_the_log_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lists = related(60, 5).save(tmp_path / "lists")
    groups = [group for group in linked(lists) if len(group) > 1]
    say_once.cache_clear()
    with caplog.at_level(logging.INFO, "rerank"):
        found = ListsData(str(tmp_path / "lists"), validation_share=0.2).splits(1)
    number = sum(map(len, groups))
    assert f"{number} of 60 queries" in caplog.text
    assert f"{len(groups)} groups of them stay together (data.groups)" in caplog.text
    alone = ListsData(str(tmp_path / "lists"), validation_share=0.2, groups="none").splits(1)
    drawn = np.random.default_rng(1).permutation(60)[:12]
    assert alone.validation is not None and found.validation is not None
    assert sorted(alone.validation.query_ids) == sorted(f"q{i}" for i in drawn)
    assert seen_queries(alone.validation.qrels or {}, [alone.train.qrels or {}])
    assert not seen_queries(found.validation.qrels or {}, [found.train.qrels or {}])
    one = FoldsData(str(tmp_path / "lists"), 1, 3, groups="none").splits(1).test
    assert one is not None
    assert one.query_ids == [f"q{i}" for i in np.flatnonzero(fold_of(lists.query_ids, 3, 0) == 0)]
    with pytest.raises(UserError, match="some of it"):
        from rerank.training.configuration import check

        check(["--data=ListsData", f"--data.train={tmp_path / 'lists'}", "--data.groups=some of it"])


def test_lists_without_texts_are_split_as_they_come() -> None:
    """Features of a document are others for each query: nothing of it can be learned by heart."""
    rows = {"query_id": ["a", "b", "c", "d"], "doc_id": "x", "grade": 1, "feature": 1.0}
    lists = Lists.from_dataframe(pd.DataFrame(rows))
    assert not query_groups(lists, "auto", 2)[1]


def test_an_id_that_several_collections_have_is_no_common_document() -> None:
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
    assert [(here, there) for _, here, there in in_common(two, one)] == [(0, 0)] * 5


@given(
    st.lists(st.sets(st.integers(0, 9), max_size=3), min_size=1, max_size=8),
    st.lists(st.sets(st.integers(0, 9), max_size=3), min_size=1, max_size=8),
)
@settings(max_examples=30, deadline=None)
def test_what_two_sides_share(here: list[set[int]], there: list[set[int]]) -> None:
    sides = [
        questions([f"t{min(some, default=99)}" for some in side], side, p) for side, p in ((here, "a"), (there, "q"))
    ]
    found = {what: (ours, theirs) for what, ours, theirs in in_common(*sides)}
    texts = [Counter(side.query_texts) for side in sides]
    equal = tuple(sum(count for text, count in one.items() if text in other) for one, other in (texts, texts[::-1]))
    assert found["queries of equal text"] == found["queries of nearly equal text"] == equal
    assert found["queries with a relevant document in common"] == tuple(
        sum(bool(some & set().union(*others)) for some in one) for one, others in ((here, there), (there, here))
    )
    assert found["queries of one id"] == (0, 0)
    assert found["distinct candidates"] == (1, 1)
