"""Columns: added to lists, from files too, mapped from their own file, refused where they do not belong."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.lists.add import add_runs
from rerank.lists.columns import named_files
from tests.builders import contents, make_lists, make_lists_with_added


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
    with pytest.raises(UserError, match="2 numbers a candidate; name one, such as two/first"):
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
        pytest.param("bm25", lambda v: v, "has a column bm25 already", id="again"),
        pytest.param("x", lambda v: v[:-1], "rows, the lists have", id="too short"),
        pytest.param("x", lambda v: np.append(v, 1.0), "rows, the lists have", id="too long"),
        pytest.param("x", lambda v: np.where(v == v[0], np.inf, v), "infinite", id="infinite"),
        pytest.param("x", lambda v: np.where(v == v[0], 1e300, v), "infinite", id="beyond float32"),
        pytest.param("../x", lambda v: v, "letters, digits", id="path"),
        pytest.param("", lambda v: v, "letters, digits", id="no name"),
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


def test_a_damaged_column_can_be_removed_and_made_again(tmp_path: Path) -> None:
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


WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "trec": write_trec,
    "csv": lambda frame, path: frame.rename(columns={"query_id": "qid"}).to_csv(path, index=False),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True, double_precision=15),
    "parquet": lambda frame, path: frame.to_parquet(path),
    "csv.gz": lambda frame, path: frame.to_csv(path, index=False),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("shuffled", [False, True])
def test_every_format_says_the_same(tmp_path: Path, kind: str, shuffled: bool) -> None:
    lists = make_lists(tmp_path)
    frame = frame_of(lists)
    frame = frame.sample(frac=1, random_state=0) if shuffled else frame
    WRITERS[kind](frame, tmp_path / f"x.{kind}")
    coverage = add_runs(tmp_path / "lists", {"teacher": tmp_path / f"x.{kind}"})["teacher"]
    expected = lists.to_dataframe()[["query_id", "doc_id"]].merge(frame, how="left", on=["query_id", "doc_id"])
    found = Lists.open(tmp_path / "lists").column("teacher")
    np.testing.assert_allclose(found, expected["score"].astype(np.float32), rtol=1e-6)
    assert coverage.candidates == (-(-lists.size // 2), lists.size)


def test_several_at_once_again_and_dropped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
    for _ in range(2):  # as a killed command is given again, which has removed it already
        again = [*words[:3], f"--run=renamed={tmp_path / 'a.trec'}", "--drop", "a"]
        assert main(again) == 0
    assert "renamed" in Lists.open(folder).store.column_names
    (tmp_path / "bad.csv").write_text("query_id,doc_id,score\nq0,d0,oops\n")
    for there, new in (("teacher", ["--run", f"teacher={tmp_path / 'bad.csv'}"]), ("renamed", ["--model", "nowhere"])):
        assert main([*words[:3], "--drop", there, *new]) == 2
        assert there in Lists.open(folder).store.column_names, "what cannot be replaced stays"
    assert main(["add", "--lists", folder, "--drop", "renamed", "teacher"]) == 0
    assert Lists.open(folder).store.column_names == ["bm25"]
    assert main(["add", "--lists", folder, "--drop", "bm25"]) == 2
    assert main(["add", "--lists", folder, "--drop", "bm26"]) == 2
    assert main(["add", "--lists", folder]) == 2
    assert [line.startswith("rerank: error: ") for line in capsys.readouterr().err.splitlines()[-3:]] == [True] * 3


def bad_files(lists: Lists, folder: Path) -> dict[str, tuple[str, str]]:
    """Files that cannot become columns: what they are called, and what the one line has to say.

    Faults that a file has as a run, too, are tested with runs.
    """
    pairs = lists.to_dataframe()[["query_id", "doc_id"]].itertuples(index=False)
    rows = [f"{query} Q0 {document} 1 9.5 x\n" for query, document in pairs]

    def write(name: str, content: str) -> str:
        (folder / name).write_text(content)
        return str(folder / name)

    good = pd.DataFrame([row.split()[0:3:2] for row in rows], columns=["query_id", "doc_id"]).assign(score=1.0)
    good.assign(score="high").to_parquet(folder / "words.parquet")
    good.assign(score=np.where(good.index == 3, np.inf, 1.0)).to_parquet(folder / "inf.parquet")
    return {
        "a pair twice": (
            write("g.trec", "".join(rows) + rows[0]),
            r"g\.trec: query .* has document .* twice",
        ),
        "empty": (write("h.trec", ""), r"h\.trec: is empty"),
        "other collection": (write("l.trec", "77 Q0 MS_1 1 9.5 x\n"), "0 of 12 queries only; its ids are such as '77'"),
        "one query in twelve": (write("m.trec", rows[0]), "1 of 12 queries only"),
        "no header": (write("n.csv", "q0,d1,2.5\nq1,d1,2\n"), r"n\.csv: columns .* are of no known shape"),
        "a cell too many": (write("o.csv", "qid,docno,score\nq0,d1,1,2\n"), r"o\.csv: row 1: 4 columns; expected 3"),
        "a name twice": (write("p.csv", "qid,qid,docno,score\n1,1,2,3\n"), r"p\.csv: has two columns 'qid'"),
        "no score": (write("q.csv", "qid,docno,text\nq0,d1,x\n"), r"q\.csv: has no column score"),
        "text in Parquet": (str(folder / "words.parquet"), r"words\.parquet: query .* score 'high'"),
        "infinite in Parquet": (str(folder / "inf.parquet"), r"inf\.parquet: query .* score inf"),
        "a bad name": (f"a/b={write('y.trec', ''.join(rows))}", "letters, digits"),
        "the same name": (f"bm25={write('z.trec', ''.join(rows))}", "has a column bm25 already, made from something"),
    }


def test_bad_files_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lists = make_lists(tmp_path)
    before = contents(tmp_path / "lists")
    for what, (word, message) in bad_files(lists, tmp_path).items():
        assert main(["add", "--lists", str(tmp_path / "lists"), "--run", word]) == 2, what
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("rerank: error: "), (what, lines)
        assert re.search(message, lines[0]), (what, lines)
        assert contents(tmp_path / "lists") == before, what
