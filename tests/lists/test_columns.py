"""Columns: added to lists, from files too, mapped from their own file, refused where they do not belong."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rerank import concat
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.lists.add import add_runs
from rerank.storage.arrow import Array
from tests.builders import contents, make_lists, make_lists_with_added


def test_column_is_read_by_every_view_of_the_lists(tmp_path: Path) -> None:
    lists = make_lists_with_added(tmp_path)
    rows = len(lists.store.document)
    lists.store.add_column("teacher", np.arange(rows) / 8)
    lists = Lists.open(tmp_path / "lists")
    assert lists.store.column_names == ["bm25", "teacher"]
    np.testing.assert_array_equal(lists.column("teacher"), lists.row_numbers / 8)
    np.testing.assert_array_equal(lists.with_added().column("teacher"), np.arange(rows) / 8)
    some = lists.select([5, 2]).top(1)
    np.testing.assert_array_equal(some.column("teacher"), lists.starts[[5, 2]] / 8)


def test_matrix_reads_columns_in_the_given_order(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    pairs = np.arange(2.0 * lists.size).reshape(-1, 2)
    lists.store.add_column("two", pairs, names=["first", "second"])
    order = lists.column("bm25")
    np.testing.assert_array_equal(lists.matrix(["two"]), pairs)
    np.testing.assert_array_equal(
        lists.matrix(["two/second", "bm25", "two/first"]), np.stack([pairs[:, 1], order, pairs[:, 0]], 1)
    )
    assert np.shares_memory(lists.matrix(["two"]), lists.store.entry("two").values), "one file is read where it lies"
    with pytest.raises(UserError, match="2 numbers a candidate; name one, such as two/first"):
        lists.column("two")
    with pytest.raises(UserError, match="'third'"):
        lists.matrix(["two/third"])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        pytest.param("bm25", lambda v: v, "has a column bm25 already", id="again"),
        pytest.param("x", lambda v: v[:-1], "rows, the lists have", id="too short"),
        pytest.param("x", lambda v: np.where(v == v[0], np.inf, v), "infinite", id="infinite"),
        pytest.param("x", lambda v: np.where(v == v[0], 1e300, v), "infinite", id="beyond float32"),
        pytest.param("../x", lambda v: v, "letters, digits", id="path"),
    ],
)
def test_add_column_refuses_bad_columns(
    tmp_path: Path, name: str, change: Callable[[Array], Array], message: str
) -> None:
    lists = make_lists(tmp_path)
    folder = lists.store.folder
    assert folder is not None
    before = sorted(path.name for path in folder.rglob("*"))
    with pytest.raises(UserError, match=message):
        lists.store.add_column(name, change(lists.store.column("bm25").astype(np.float64)))
    assert sorted(path.name for path in folder.rglob("*")) == before, "nothing half-written"


def test_column_refuses_other_candidates(tmp_path: Path) -> None:
    one, other = make_lists(tmp_path / "one"), make_lists(tmp_path / "other", seed=1)
    assert one.store.folder is not None and other.store.folder is not None
    shutil.copy(other.store.folder / "columns" / "bm25.arrow", one.store.folder / "columns" / "splade.arrow")
    with pytest.raises(UserError, match=r"splade\.arrow: a column of other candidates"):
        Lists.open(one.store.folder).column("splade")


def test_drop_column_removes_a_damaged_column(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    lists.store.add_column("teacher", np.ones(lists.size))
    path = lists.store.column_path("teacher")
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    store = Lists.open(str(lists.store)).store
    with pytest.raises(UserError, match=r"teacher\.arrow: not a whole Arrow file"):
        store.column("teacher")
    store.drop_column("teacher")
    assert store.column_names == ["bm25"]
    store.add_column("teacher", np.zeros(lists.size))
    assert not Lists.open(str(lists.store)).column("teacher").any()
    for name, message in (("bm25", "order of column bm25"), ("splade", "no column 'splade'")):
        with pytest.raises(UserError, match=message):
            store.drop_column(name)


def frame_of(lists: Lists) -> pd.DataFrame:
    """A made-up score for every second candidate, and for pairs that are no candidates."""
    frame = lists.to_dataframe()[["query_id", "doc_id"]]
    frame["score"] = np.random.default_rng(0).normal(size=len(frame)).astype(np.float32)
    strangers = pd.DataFrame({"query_id": ["q0", "q99"], "doc_id": ["nowhere", "d1"], "score": [1.0, 2.0]})
    return pd.concat([frame.iloc[::2], strangers], ignore_index=True)


def write_trec(frame: pd.DataFrame, path: Path) -> None:
    with path.open("w") as file:
        file.writelines(f"{row.query_id} Q0 {row.doc_id} 1 {row.score!r} x\n" for row in frame.itertuples())


def test_add_runs_reads_a_run_in_any_order(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    frame = frame_of(lists).sample(frac=1, random_state=0)
    write_trec(frame, tmp_path / "x.trec")
    add_runs(tmp_path / "lists", {"teacher": tmp_path / "x.trec"})
    expected = lists.to_dataframe()[["query_id", "doc_id"]].merge(frame, how="left", on=["query_id", "doc_id"])
    found = Lists.open(tmp_path / "lists").column("teacher")
    np.testing.assert_allclose(found, expected["score"].astype(np.float32), rtol=1e-6)


def test_add_runs_finds_documents_that_parts_of_a_concatenation_share(tmp_path: Path) -> None:
    parts = [{"query_id": id, "query": id, "doc_id": ["a", "b"], "text": ["x", "y"], "grade": 0} for id in ("1", "2")]
    concat([Lists.from_dataframe(pd.DataFrame(part)) for part in parts]).save(tmp_path / "lists")
    run = pd.DataFrame({"query_id": ["1", "1", "2", "2"], "doc_id": ["a", "b"] * 2, "score": [1.0, 2.0, 3.0, 4.0]})
    write_trec(run, tmp_path / "x.trec")
    add_runs(tmp_path / "lists", {"x": tmp_path / "x.trec"})
    assert Lists.open(tmp_path / "lists").column("x").tolist() == [1, 2, 3, 4]


def test_add_resumes_and_drops_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "lists")
    lists = make_lists(tmp_path)
    write_trec(frame_of(lists), tmp_path / "a.trec")
    write_trec(frame_of(lists).assign(score=1.0), tmp_path / "b.trec")
    words = ["add", "--lists", folder, "--run", str(tmp_path / "a.trec"), "--run", f"teacher={tmp_path / 'b.trec'}"]
    assert main(words) == 0
    assert Lists.open(folder).store.column_names == ["a", "bm25", "teacher"]
    before = contents(Path(folder))
    (Path(folder) / "columns" / "a.arrow").unlink()  # as a kill between the two would leave it
    assert main(words) == 0
    assert contents(Path(folder)) == before
    assert main(["add", "--lists", folder, "--drop", "a", "teacher"]) == 0
    assert Lists.open(folder).store.column_names == ["bm25"]
    assert main(["add", "--lists", folder, "--drop", "bm25"]) == 2
    assert main(["add", "--lists", folder, "--drop", "bm26"]) == 2
    assert main(["add", "--lists", folder]) == 2
    assert [line.startswith("rerank: error: ") for line in capsys.readouterr().err.splitlines()[-3:]] == [True] * 3


def test_add_refuses_bad_files_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lists = make_lists(tmp_path)
    before = contents(tmp_path / "lists")
    query, document = lists.query_ids[0], lists.document_ids(lists.documents[:1])[0]
    row = f"{query} Q0 {document} 1 9.5 x\n"
    for name, content, message in [
        ("h.trec", "", r"h\.trec: empty"),
        ("l.trec", "77 Q0 MS_1 1 9.5 x\n", "0 of 12 queries only; its ids are such as '77'"),
        ("m.trec", row, "1 of 12 queries only"),
        ("bm25.trec", row, "1 of 12 queries only|has a column bm25 already, made from something"),
    ]:
        (tmp_path / name).write_text(content)
        assert main(["add", "--lists", str(tmp_path / "lists"), "--run", str(tmp_path / name)]) == 2, name
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("rerank: error: ") and re.search(message, line), line
        assert contents(tmp_path / "lists") == before, name
