"""One's own data, right and wrong: each case is read as it says, or is a UserError of one line; nothing is silent."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import rerank
from rerank.collections import as_qrels, read_qrels
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.retrieval.runs import read_run
from tests.builders import write_packed as write

NAN, NONE = float("nan"), None
BASE = {
    "query_id": ["q1", "q1", "q2"],
    "query": ["x", "x", "y"],
    "doc_id": ["a", "b", "a"],
    "text": ["s", "t", "s"],
    "grade": [1, 0, 0],
    "bm25": [9.5, 7.0, 3.0],
}


def frame(**changes: Any) -> pd.DataFrame:
    """The base with other columns; one that is ... is left out."""
    return pd.DataFrame({key: value for key, value in (BASE | changes).items() if value is not ...})


def lists(given: Any = None, /, qrels: Any = None, columns: Any = None, **changes: Any) -> Lists:
    return Lists.from_dataframe(frame(**changes) if given is None else given, qrels=qrels, columns=columns)


def csv(folder: Path, content: str | bytes) -> Lists:
    return lists(write(folder / "x.csv", content))


CSV = "query_id,query,doc_id,text,grade,bm25\nq1,x,a,s,1,9.5\nq1,x,b,t,0,7\nq2,y,a,s,0,3\n"

WRONG: dict[str, tuple[Callable[[Path], Any], str]] = {
    # columns
    "id is None": (lambda f: lists(doc_id=["a", NONE, "b"]), r"row 1: no doc_id"),
    "id with a space": (lambda f: lists(doc_id=["a", "New York", "b"]), r"'New York' holds white space"),
    "id of a comment": (lambda f: lists(query_id=["#1", "q1", "q2"]), r"the id '#1' begins with #"),
    "document twice": (
        lambda f: lists(query_id=[7, "7", 7], doc_id=[1, "1", 2], query=..., text=...),
        r"row 1: document '1' a second time for query '7'",
    ),
    "query with two texts": (lambda f: lists(query=["x", "z", "y"]), r"row 1: query_id 'q1' has another query"),
    "queries without texts": (lambda f: lists(text=...), r"has query, but no text"),
    "half a grade": (lambda f: lists(grade=[0.5, 1, 0]), r"grade has fractions; grades are whole numbers"),
    "grade beyond 16 bits": (lambda f: lists(grade=[0, 40_000, 0]), r"row 1: grade 40000; expected"),
    "numbers that float32 joins": (lambda f: lists(bm25=[2**24 + 1, 2**24, 0]), r"bm25: .* that are one in float32"),
    "name and a part of it": (lambda f: lists(**{"f": [1.0, 2, 4], "f/1": [1.0, 2, 4]}), r"has columns f and f/1"),
    "one for two fields": (lambda f: lists(columns={"text": "query", "query": "query"}), r"one column for two fields"),
    # tables
    "text twice with two grades": (
        lambda f: lists({"question": ["x", "x"], "passage": ["s", "s"], "label": [1, 0]}),
        r"row 1: has the passage of an earlier row of its query, but another grade",
    ),
    "column twice": (
        lambda f: lists(pd.concat([frame(), frame()[["text"]]], axis=1)),
        r"has two columns 'text'; rename one",
    ),
    "lists of two lengths": (
        lambda f: lists({"query": ["x", "y"], "docs": [["s", "t"], ["s"]], "labels": [[1, 0], [1, 0]]}),
        r"row 1: docs and labels are not lists of one length",
    ),
    "no rows": (lambda f: lists(frame()[:0]), r"data frame: has no rows"),
    # files
    "word among numbers": (lambda f: csv(f, CSV.replace("0,7", "0,7..5")), r"x\.csv: row 2: bm25 '7..5' is not a num"),
    "Latin-1": (lambda f: csv(f, CSV.replace("a,s", "a,café").encode("latin-1")), r"x\.csv:2: byte 0xe9 is not UTF-8"),
    "cell too many": (lambda f: csv(f, CSV.replace("b,t", "b,t,u")), r"x\.csv:3: 7 cells, but 6 columns"),
    "open quote": (
        lambda f: csv(f, CSV.replace("x,b", 'x,"b')),
        r"x\.csv: not a readable csv file \(unexpected end",
    ),
    # judgments beside the frame
    "other queries": (lambda f: lists(grade=..., qrels={"z": {"a": 1}}), r"only 0 of the 1 judged queries"),
    "other documents": (lambda f: lists(grade=..., qrels={"q1": {"z": 1}}), r"has only 0 of the 1 judged documents"),
    "other grades": (lambda f: lists(qrels={"q1": {"a": 0}, "q2": {"a": 0}}), r"row 0: grade 1, but 0 by the qrels"),
    "judgments without ids": (lambda f: lists(doc_id=..., grade=..., qrels={"q1": {"a": 1}}), r"column doc_id, which"),
    # runs
    "run: id None": (lambda f: rerank.as_run({NONE: {"a": 1.0}}), r"run: pair 1: no id"),
    "run: score NA": (lambda f: rerank.as_run(frame(score=pd.array([1, None, 2], "Float64"))), r"'b': score <NA>"),
    # judgments
    "qrels: query None": (lambda f: as_qrels({NONE: {}}), r"qrels: no id"),
    "qrels: two grades": (lambda f: as_qrels({7: {"a": 1}, "7": {"a": 0}}), r"has grade 0 here and 1 before"),
    # texts of one's own
    "queries: id None": (lambda f: rerank.retrieve("demo", queries={NONE: "x"}), r"queries: no id"),
    # choosing and saving
    "query twice": (lambda f: lists().select([0, 0]).save(f / "l"), r"query 'q1' is chosen twice"),
    "depth below 0": (lambda f: lists().top(-1), r"top: depth -1; expected a whole number"),
    "added to what is cut": (lambda f: lists().top(1).with_added(), r"with_added: the lists were cut before"),
    "saved twice": (lambda f: [lists().save(f / "l") for _ in range(2)], r"exists already"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_data_raises_an_error_of_one_line(tmp_path: Path, what: str) -> None:
    call, message = WRONG[what]
    with pytest.raises(UserError, match=message) as caught:
        call(tmp_path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


def grades(given: Lists) -> list[Any]:
    return [None if grade is pd.NA else int(grade) for grade in given.to_dataframe()["grade"]]


def ids(given: Lists) -> list[tuple[str, str]]:
    shown = given.to_dataframe()
    return list(zip(shown["query_id"], shown["doc_id"], strict=True))


def column(name: str, given: Lists) -> list[Any]:
    return given.to_dataframe()[name].tolist()


def names(given: Any = None, **changes: Any) -> list[str]:
    return [*lists(given, **changes).store.column_names]


def test_from_dataframe_reads_csv_cells_as_texts(tmp_path: Path) -> None:
    """Zeros in front of ids stay, and words that others take for missing values are texts."""
    zeros = "qid,query,docno,text,label,bm25\n007,x,0012,null,1,9\n007,x,0013,NA,0,8\n008,007,0012,null,,\n"
    read = csv(tmp_path, zeros)
    assert ids(read) == [("007", "0012"), ("007", "0013"), ("008", "0012")]
    assert column("text", read) == ["null", "NA", "null"]
    assert grades(read) == [1, 0, None]
    assert str(column("bm25", read)) == "[9.0, 8.0, nan]"


PAIRS = [("q1", "a"), ("q1", "b"), ("q2", "a")]
RIGHT: dict[str, tuple[Callable[[Path], Any], Any]] = {
    "byte-order mark": (lambda f: ids(csv(f, "\ufeff" + CSV)), PAIRS),
    "ids in the index": (lambda f: ids(lists(frame().set_index(["query_id", "doc_id"]))), PAIRS),
    # ids and texts
    "ids in JSON, texts and numbers": (
        lambda f: ids(lists(write(f / "x.jsonl", '{"qid": "007", "docno": 12}\n{"qid": "007", "docno": "13"}'))),
        [("007", "12"), ("007", "13")],
    ),
    "no document ids": (lambda f: [query for query, _ in ids(lists(doc_id=...))], ["q1", "q1", "q2"]),
    "another name for texts": (
        lambda f: column("text", lists(passage=[*"121"], columns={"text": "passage"})),
        ["1", "2", "1"],
    ),
    # grades
    "unjudged rows": (lambda f: lists(grade=[1, NAN, 0]).qrels, {"q1": {"a": 1}, "q2": {"a": 0}}),
    "judged below 0": (lambda f: grades(lists(grade=[1, -2, 0])), [1, -2, 0]),
    "below 0 to train on": (lambda f: lists(grade=[1, -2, 0]).grades.tolist(), [1, 0, 0]),
    "qrels beside": (lambda f: grades(lists(grade=..., qrels={"q1": {"a": 0, "b": 2}, "q2": {"z": 1}})), [0, 2, None]),
    # columns
    "texts are no columns": (lambda f: names(url=["u"] * 3, year=["1984", "b", "c"]), ["bm25"]),
    "row numbers are no column": (lambda f: names(frame().reset_index()), ["bm25"]),
    "rank": (lambda f: column("rank", lists(rank=[1, 2, 1])), [-1.0, -2.0, -1.0]),
    "lists": (lambda f: column("bm25", lists({"query": ["x"], "docs": [["s", "t"]], "bm25": [[2, 1]]})), [2, 1]),
    "vectors are no columns": (lambda f: names({"query": ["x"], "docs": [["s", "t"]], "v": [[1.0, 2.0, 3.0]]}), []),
    # choosing and saving
    "mask": (lambda f: lists().select([False, True]).query_ids, ["q2"]),
}


@pytest.mark.parametrize("what", RIGHT)
def test_right_data_is_read(tmp_path: Path, what: str) -> None:
    call, expected = RIGHT[what]
    assert call(tmp_path) == expected


ODD: dict[str, tuple[Callable[[], Any], str]] = {
    "a text twice": (
        lambda: lists(frame(doc_id=..., query_id=..., query=["x"] * 3, grade=[1, 0, 1]).set_index(pd.Index([4, 5, 6]))),
        r"1 rows repeat a document of their query and were left out",
    ),
    "no grade of 0": (lambda: lists(grade=[1, 4, 2]), r"every candidate has a grade above 0"),
}


@pytest.mark.parametrize("what", ODD)
def test_odd_data_is_warned_of_once(caplog: pytest.LogCaptureFixture, what: str) -> None:
    call, message = ODD[what]
    call()
    (line,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert re.search(message, line) and "\n" not in line


def test_save_writes_judgments_and_run_for_other_tools(tmp_path: Path) -> None:
    for folder, grade in ((tmp_path / "a", [1, 0, 0]), (tmp_path / "b", [1, NAN, -1])):
        given_ = lists(grade=grade)
        saved = given_.save(folder)
        assert read_qrels(folder / "qrels.trec") == given_.qrels == saved.qrels
        assert read_run(folder / "run.trec") == given_.run()
        pd.testing.assert_frame_equal(saved.to_dataframe(), given_.to_dataframe())
        saved.to_dataframe().to_parquet(tmp_path / "e.parquet")
        assert Lists.from_dataframe(tmp_path / "e.parquet").qrels == given_.qrels
    lists(grade=..., bm25=...).save(tmp_path / "l")
    assert not (tmp_path / "l" / "qrels.trec").exists() and not (tmp_path / "l" / "run.trec").exists()
