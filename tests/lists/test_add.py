"""Columns from files: what the file says of a candidate is what the column says of it, or one line says why not."""

from __future__ import annotations

import json
import re
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
from rerank.retrieval import pairs
from tests.builders import contents, make_lists, make_lists_with_added


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
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True, double_precision=15),
    "parquet": lambda frame, path: frame.assign(rank=1, text="x").to_parquet(path),
    "csv.gz": lambda frame, path: frame.to_csv(path, index=False),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("shuffled", [False, True])
def test_every_format_says_the_same(tmp_path: Path, kind: str, shuffled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "ROWS", 7)  # many batches, some of them with a query that comes again
    lists = make_lists(tmp_path)
    frame = frame_of(lists)
    frame = frame.sample(frac=1, random_state=0) if shuffled else frame
    WRITERS[kind](frame, tmp_path / f"x.{kind}")
    coverage = add_runs(tmp_path / "lists", {"teacher": tmp_path / f"x.{kind}"})["teacher"]
    expected = lists.to_dataframe()[["query_id", "doc_id"]].merge(frame, how="left", on=["query_id", "doc_id"])
    found = Lists.open(tmp_path / "lists").column("teacher")
    np.testing.assert_allclose(found, expected["score"].astype(np.float32), rtol=1e-6)
    assert coverage.candidates == (-(-lists.size // 2), lists.size)


@given(data=st.data())
def test_any_rows_find_their_candidates(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Whatever lists and rows: the value of the row with the candidate's ids, NaN where there is none."""
    pairs = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=25, unique=True)
    frame = pd.DataFrame(data.draw(pairs), columns=["query_id", "doc_id"]).astype(str)
    lists = Lists.from_dataframe(frame)
    given_ = data.draw(pairs)
    said = {(str(q), str(d)): float(i) for i, (q, d) in enumerate(given_)}
    path = tmp_path_factory.mktemp("x") / "x.jsonl"
    path.write_text("".join(json.dumps({"qid": q, "docno": d, "a": i, "b": -i}) + "\n" for (q, d), i in said.items()))
    candidates = list(lists.to_dataframe()[["query_id", "doc_id"]].itertuples(index=False, name=None))
    known = [said.get(pair, np.nan) for pair in candidates]
    covered = {pair[0] for pair in candidates if pair in said}
    if len(covered) < 0.1 * len(lists) or not covered:
        with pytest.raises(UserError, match="are they of the same collection"):
            add_runs(lists.store, {"t": path})
        return
    add_runs(lists.store, {"t": path})
    np.testing.assert_array_equal(lists.matrix(["t/a", "t/b"]), np.array([known, np.negative(known)]).T)


def test_hidden_documents_get_what_the_file_says(tmp_path: Path) -> None:
    lists = make_lists_with_added(tmp_path)
    frame = lists.with_added().to_dataframe()
    frame["score"] = np.arange(len(frame))
    frame[["query_id", "doc_id", "score"]].to_parquet(tmp_path / "t.parquet")
    coverage = add_runs(tmp_path / "lists", {"t": tmp_path / "t.parquet"})["t"]
    lists = Lists.open(tmp_path / "lists")
    np.testing.assert_array_equal(lists.with_added().column("t"), np.arange(len(frame)))
    assert coverage.added == (int(lists.store.added.sum()),) * 2
    assert coverage.candidates == (lists.size,) * 2


def test_the_lock_of_a_killed_writer_goes_when_the_column_is_found_done(tmp_path: Path) -> None:
    write_trec(frame_of(make_lists(tmp_path)), tmp_path / "x.trec")
    add_runs(tmp_path / "lists", {"teacher": tmp_path / "x.trec"})
    lock = tmp_path / "lists" / "columns" / ".teacher.arrow.lock"
    lock.touch()  # killed between the rename and the release
    add_runs(tmp_path / "lists", {"teacher": tmp_path / "x.trec"})
    assert not lock.exists()


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
    assert main(["add", "--lists", folder, "--drop", "a", "teacher"]) == 0
    assert Lists.open(folder).store.column_names == ["bm25"]
    assert main(["add", "--lists", folder, "--drop", "bm25"]) == 2
    assert main(["add", "--lists", folder, "--drop", "bm26"]) == 2
    assert main(["add", "--lists", folder]) == 2
    assert [line.startswith("rerank: error: ") for line in capsys.readouterr().err.splitlines()[-3:]] == [True] * 3


def files(lists: Lists, folder: Path) -> dict[str, tuple[str, str]]:
    """Files that cannot become columns: what they are called, and what the one line has to say.

    Faults that a file has as a run, too, are tested with runs.
    """
    pairs = lists.to_dataframe()[["query_id", "doc_id"]].itertuples(index=False)
    rows = [f"{query} Q0 {document} 1 9.5 x\n" for query, document in pairs]

    def write(name: str, content: str) -> str:
        (folder / name).write_text(content)
        return str(folder / name)

    good = pd.DataFrame([row.split()[0:3:2] for row in rows], columns=["query_id", "doc_id"]).assign(score=1.0)
    good.assign(score="high").to_parquet(folder / "text.parquet")
    good.assign(score=np.where(good.index == 3, np.inf, 1.0)).to_parquet(folder / "inf.parquet")
    return {
        "a pair twice": (
            write("g.trec", "".join(rows) + rows[0]),
            rf"g\.trec:{len(rows) + 1}: document .* second time",
        ),
        "empty": (write("h.trec", ""), r"h\.trec: is empty"),
        "other collection": (write("l.trec", "77 Q0 MS_1 1 9.5 x\n"), "0 of 12 queries only; its ids are such as '77'"),
        "one query in twelve": (write("m.trec", rows[0]), "1 of 12 queries only"),
        "no header": (write("n.csv", "q0,d1,2.5\nq1,d1,2\n"), r"n\.csv:1: no query id"),
        "a cell too many": (write("o.csv", "qid,docno,score\nq0,d1,1,2\n"), r"o\.csv:2: 4 columns; expected 3"),
        "a name twice": (write("p.csv", "qid,qid,docno,score\n"), r"p\.csv:1: has two columns 'qid'"),
        "no score": (write("q.csv", "qid,docno,text\nq0,d1,x\n"), r"q\.csv:1: no score"),
        "text in Parquet": (str(folder / "text.parquet"), r"text\.parquet: column 'score' holds .*string"),
        "infinite in Parquet": (str(folder / "inf.parquet"), r"inf\.parquet: row 4: score inf"),
        "a bad name": (f"a/b={write('y.trec', ''.join(rows))}", "letters, digits"),
        "the same name": (f"bm25={write('z.trec', ''.join(rows))}", "has a column bm25 already, made from something"),
    }


def test_bad_files_are_refused_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lists = make_lists(tmp_path)
    before = contents(tmp_path / "lists")
    for what, (word, message) in files(lists, tmp_path).items():
        assert main(["add", "--lists", str(tmp_path / "lists"), "--run", word]) == 2, what
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == 1 and lines[0].startswith("rerank: error: "), (what, lines)
        assert re.search(message, lines[0]), (what, lines)
        assert contents(tmp_path / "lists") == before, what


def test_saved_lists_know_what_their_columns_were_made_of(tmp_path: Path) -> None:
    """On a part of the lists the same command does nothing, and another file is refused."""
    lists = make_lists(tmp_path)
    frame = frame_of(lists)
    write_trec(frame, tmp_path / "x.trec")
    write_trec(frame.assign(score=1.0), tmp_path / "other.trec")
    add_runs(tmp_path / "lists", {"teacher": tmp_path / "x.trec"})
    Lists.open(tmp_path / "lists").select([0, 1]).save(tmp_path / "some")
    column = tmp_path / "some" / "columns" / "teacher.arrow"
    before = column.stat().st_mtime_ns
    add_runs(tmp_path / "some", {"teacher": tmp_path / "x.trec"})
    assert column.stat().st_mtime_ns == before
    with pytest.raises(UserError, match="made from something else"):
        add_runs(tmp_path / "some", {"teacher": tmp_path / "other.trec"})
