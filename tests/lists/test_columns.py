"""Columns: added to lists, mapped from their file, refused where they do not belong."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.collections import open_collection
from rerank.errors import UserError
from rerank.lists import Lists, build_lists
from rerank.lists.columns import named_files
from rerank.lists.tokens import tokenise
from tests.builders import make_lists, make_lists_with_added, random_run, write_collection


def test_a_column_comes_back_for_every_view_of_the_lists(tmp_path: Path) -> None:
    lists = make_lists_with_added(tmp_path)
    rows = len(lists.store.document)
    lists.store.add_column("teacher", np.arange(rows) / 8)
    lists = Lists.open(tmp_path / "lists")
    assert lists.store.column_names == ["bm25", "teacher"]
    np.testing.assert_array_equal(lists.column("teacher"), lists.row_numbers / 8)
    np.testing.assert_array_equal(lists.with_added().column("teacher"), np.arange(rows) / 8)
    some = lists.select([5, 2]).top(1)
    np.testing.assert_array_equal(some.column("teacher"), lists.starts[[5, 2]] / 8)


def test_columns_stand_side_by_side_in_the_order_asked_for(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    pairs = np.arange(2.0 * lists.size).reshape(-1, 2)
    lists.store.add_column("two", pairs, names=["first", "second"])
    order = lists.column("bm25")
    np.testing.assert_array_equal(lists.matrix(["two"]), pairs)
    np.testing.assert_array_equal(
        lists.matrix(["two/second", "bm25", "two/first"]), np.stack([pairs[:, 1], order, pairs[:, 0]], 1)
    )
    assert np.shares_memory(lists.matrix(["two"]), lists.store.entry("two").values), "one file is read where it lies"
    with pytest.raises(UserError, match="2 numbers a candidate"):
        lists.column("two")
    with pytest.raises(UserError, match="'third'"):
        lists.matrix(["two/third"])


@given(st.integers(1, 40), st.integers(1, 4), st.randoms(use_true_random=False))
def test_blocks_do_not_change_a_column(tmp_path_factory: pytest.TempPathFactory, size: int, width: int, random) -> None:  # type: ignore[no-untyped-def]
    lists = make_lists(tmp_path_factory.mktemp("lists"))
    values = np.array(
        [[random.choice([0.0, -1.5, float("nan"), 3e38]) for _ in range(width)] for _ in range(lists.size)]
    )
    blocks = (values[start : start + size] for start in range(0, lists.size, size))
    lists.store.add_column("x", blocks, names=[str(i) for i in range(width)])
    np.testing.assert_array_equal(Lists.open(lists.store.folder).matrix(["x"]), values.astype(np.float32))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("bm25", lambda v: v, "has a column bm25 already"),
        ("x", lambda v: v[:-1], "rows, the lists have"),
        ("x", lambda v: np.append(v, 1.0), "rows, the lists have"),
        ("x", lambda v: np.where(v == v[0], np.inf, v), "infinite"),
        ("x", lambda v: np.where(v == v[0], 1e300, v), "infinite"),
        ("../x", lambda v: v, "letters, digits"),
        ("", lambda v: v, "letters, digits"),
    ],
)
def test_columns_that_cannot_be(tmp_path: Path, name: str, change, message: str) -> None:  # type: ignore[no-untyped-def]
    lists = make_lists(tmp_path)
    folder = lists.store.folder
    assert folder is not None
    before = sorted(path.name for path in folder.rglob("*"))
    with pytest.raises(UserError, match=message):
        lists.store.add_column(name, change(lists.store.column("bm25").astype(np.float64)))
    assert sorted(path.name for path in folder.rglob("*")) == before, "nothing half-written"


def test_a_column_of_other_candidates_is_refused(tmp_path: Path) -> None:
    one, other = make_lists(tmp_path / "one"), make_lists(tmp_path / "other", seed=1)
    assert one.store.folder is not None and other.store.folder is not None
    shutil.copy(other.store.folder / "columns" / "bm25.arrow", one.store.folder / "columns" / "splade.arrow")
    with pytest.raises(UserError, match=r"splade\.arrow: a column of other candidates"):
        Lists.open(one.store.folder).column("splade")


@pytest.mark.parametrize(("path", "name"), [("run.bm25.trec", "run.bm25"), ("x.trec.gz", "x"), ("my run!", "my_run")])
def test_columns_are_called_after_their_files(tmp_path: Path, path: str, name: str) -> None:
    (tmp_path / path).touch()
    assert list(named_files([str(tmp_path / path)])) == [name]


def test_lists_that_are_regraded_keep_their_tokens_and_columns(tmp_path: Path, tiny_model: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    name = write_collection(tmp_path / "c")
    collection, run = open_collection(name), random_run(name, [5] * 12)
    lists = build_lists(collection, run, tmp_path / "lists")
    lists.store.add_column("teacher", np.arange(lists.size))
    tokenise(lists.store, tokenizer, 4, 16)
    before = lists.grades.copy()
    tokens = {path: path.stat().st_ino for path in (tmp_path / "lists" / "tokens").rglob("*.arrow")}
    qrels = collection.qrels()
    assert qrels is not None
    changed = {query: {id: grade + 1 for id, grade in judged.items()} for query, judged in qrels.items()}

    again = build_lists(collection, run, tmp_path / "lists", qrels=changed, replace=True)
    assert (again.grades != before).any()
    np.testing.assert_array_equal(again.column("teacher"), np.arange(lists.size))
    assert {path: path.stat().st_ino for path in tokens} == tokens, "the very files"

    deeper = build_lists(collection, random_run(name, [6] * 12), tmp_path / "lists", replace=True)
    assert deeper.store.column_names == ["bm25"], "those of other candidates are gone"
    assert not (tmp_path / "lists" / "tokens").exists()


def test_a_damaged_column_can_be_removed_and_made_again(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    lists.store.add_column("teacher", np.ones(lists.size))
    path = lists.store.column_path("teacher")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    store = Lists.open(str(lists.store)).store
    with pytest.raises(UserError, match=r"teacher\.arrow: damaged"):
        store.column("teacher")
    store.drop_column("teacher")
    assert store.column_names == ["bm25"]
    store.add_column("teacher", np.zeros(lists.size))
    assert not Lists.open(str(lists.store)).column("teacher").any()
    for name, message in (("bm25", "order of column bm25"), ("splade", "no column 'splade'")):
        with pytest.raises(UserError, match=message):
            store.drop_column(name)
