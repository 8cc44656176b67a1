"""Evidence that is not what it should be: each case is one line, an exit code, no traceback, and nothing is left."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rerank.commands.cli import main
from rerank.lists import Lists
from tests.builders import make_lists

RUN = ["retrieve", "--collection", "beir:DIR/collection/test", "--output", "DIR/out", "--run"]
HITS = ["retrieve", "--output", "DIR/out", "--collection"]
ADD = ["add", "--lists", "DIR/lists", "--run"]
EXPORT = ["export", "--lists", "DIR/lists", "--output"]

CASES: dict[str, tuple[list[str], str]] = {
    # What systems found: retrieve --run
    "two columns of the same name": (
        [*RUN, "x=DIR/a.trec", "x=DIR/b.trec"],
        r"there is a column 'x' already, of .*a\.trec",
    ),
    "two files of the same stem": ([*RUN, "DIR/a.trec", "DIR/other/a.trec"], r"there is a column 'a' already"),
    "a run called as the fusion": ([*RUN, "rrf=DIR/a.trec", "DIR/b.trec"], r"a run is called 'rrf'"),
    "a run and BM25 of one name": ([*RUN, "bm25=DIR/a.trec", "--bm25"], r"run: BM25's column is called bm25, too"),
    "an order that there is not": ([*RUN, "DIR/a.trec", "DIR/b.trec", "--order", "c"], r"order: no column 'c'"),
    "a run with a document twice": ([*RUN, "DIR/twice.trec"], r"twice\.trec:\d+: document .* already; keep one"),
    "a run of unknown documents": ([*RUN, "DIR/strange_documents.trec"], r"the run's document 'MS_1' is not in"),
    "a run of another collection": ([*RUN, "DIR/strangers.trec"], r"lacks 3 of its 3 queries, such as 'x1'"),
    "a run without a line": ([*RUN, "DIR/empty.trec"], r"run empty: has no candidate"),
    "a truncated Parquet run": ([*RUN, "DIR/cut.parquet"], r"cut\.parquet: not a readable Parquet file"),
    "a Parquet run without ids": (
        [*RUN, "DIR/no_ids.parquet"],
        r"no_ids\.parquet: no document id; fields: query_id, document, score",
    ),
    # What engines answered: hits:
    "hits without text": ([*HITS, "hits:DIR/no_text.jsonl"], r"no_text\.jsonl:2: document 'd2' has no text"),
    "two texts of one id": ([*HITS, "hits:DIR/two_texts.jsonl"], r"two_texts\.jsonl:2: document 'd1' has another text"),
    "an error in place of hits": ([*HITS, "hits:DIR/error.json"], r"an error in place of hits \(index_not_found"),
    "an answer of failed shards": ([*HITS, "hits:DIR/shards.json"], r"an incomplete answer \(1 shards failed"),
    "hits of an infinite score": ([*HITS, "hits:DIR/infinite.jsonl"], r"infinite\.jsonl:1: score 'inf'"),
    "hits of a half grade": ([*HITS, "hits:DIR/grade.jsonl"], r"grade\.jsonl:1: grade '0.5'; expected a whole number"),
    "hits of a query twice": ([*HITS, "hits:DIR/again.jsonl"], r"again\.jsonl:3: query 'q1' again, after others"),
    "a truncated line of hits": ([*HITS, "hits:DIR/cut.jsonl"], r"cut\.jsonl:2: not JSON"),
    "truncated Parquet hits": ([*HITS, "hits:DIR/cut.parquet"], r"cut\.parquet: not a readable Parquet file"),
    "hits of which there are none": ([*HITS, "hits:DIR/empty.jsonl"], r"no hits"),
    "hits that are not there": ([*HITS, "hits:DIR/nowhere.jsonl"], r"nowhere\.jsonl: no such file"),
    "hits and further documents": (
        [*HITS, "hits:DIR/good.jsonl", "--add-relevant"],
        r"has no documents beyond the hits",
    ),
    "tuned and set parameters": (
        [*HITS, "beir:DIR/collection/test", "--tune-on", "beir:DIR/collection/test", "--k1", "1.2"],
        r"k1: --tune-on chooses k1 and b",
    ),
    "a measure of no tuning": (
        [*HITS, "beir:DIR/collection/test", "--tune-measure", "AP"],
        r"--tune-measure: is what --tune-on COLLECTION maximises",
    ),
    # What teachers say: add --run
    "a teacher that covers nothing": ([*ADD, "DIR/strangers.trec"], r"0 of 12 queries only; its ids are such as 'x1'"),
    "a teacher of one query": ([*ADD, "DIR/one_query.trec"], r"1 of 12 queries only"),
    "a teacher of words": ([*ADD, "DIR/words.csv"], r"words\.csv:3: score 'high'"),
    "a teacher's NaN": ([*ADD, "DIR/nan.jsonl"], r"nan\.jsonl:1: score nan"),
    "a teacher's truncated Parquet": ([*ADD, "DIR/cut.parquet"], r"cut\.parquet: not a readable Parquet file"),
    "a teacher's truncated JSON": ([*ADD, "DIR/cut.jsonl"], r"cut\.jsonl:2: not JSON"),
    "a teacher without scores": ([*ADD, "DIR/no_score.csv"], r"no_score\.csv:1: no score"),
    "a column that is there": ([*ADD, "bm25=DIR/a.trec"], r"has a column bm25 already, made from something else"),
    "a name that is a path": ([*ADD, "../x=DIR/a.trec"], r"column '\.\./x': a name has letters"),
    "a teacher that is a folder": ([*ADD, "DIR"], r"no such file; expected NAME=FILE or FILE"),
    "a model that is none": (["add", "--lists", "DIR/lists", "--model", "DIR/collection"], r"not a model folder"),
    "an experiment that is none": (["add", "--lists", "DIR/lists", "--out-of-fold", "DIR"], r"no finished experiment"),
    "lists that are none": (["add", "--lists", "DIR", "--run", "DIR/a.trec"], r"not a lists folder"),
    # What goes out
    "an export of no kind": ([*EXPORT, "DIR/out.csv"], r"name a file that ends in \.jsonl, \.parquet or \.trec"),
    "an export of no column": (
        [*EXPORT, "DIR/out.trec", "--column", "bm52"],
        r"no column 'bm52' \(did you mean 'bm25'",
    ),
    "an export of one column as rows": ([*EXPORT, "DIR/out.jsonl", "--column", "bm25"], r"only a run has one column"),
}
"""What is wrong, the command, and what its line has to say."""


def write_files(folder: Path, lists: Lists) -> None:
    """All files of the cases."""
    frame = lists.to_dataframe()[["query_id", "doc_id"]].assign(score=1.0)
    pairs = list(frame[["query_id", "doc_id"]].itertuples(index=False, name=None))
    rows = [f"{query} Q0 {document} {rank} {9 - rank / 9} t\n" for rank, (query, document) in enumerate(pairs, 1)]

    def hit(query: str = "q1", document: str = "d1", **others: object) -> str:
        given = {"query_id": query, "query": f"text of {query}", "doc_id": document, "text": "t", "score": 1.0}
        return json.dumps({key: value for key, value in (given | others).items() if value is not None}) + "\n"

    answer = {"hits": {"hits": [{"_id": "a", "_score": 1.0, "_source": {"text": "x"}}]}}
    texts = {
        "a.trec": "".join(rows),
        "b.trec": "".join(rows[::2]),
        "other/a.trec": "".join(rows),
        "twice.trec": "".join(rows) + rows[0],
        "strange_documents.trec": "q0 Q0 MS_1 1 9.5 t\n" + "".join(rows),
        "strangers.trec": "".join(f"x{i} Q0 MS_1 1 9.5 t\n" for i in (1, 2, 3)),
        "one_query.trec": rows[0],
        "empty.trec": "",
        "no_text.jsonl": hit() + hit("q1", "d2", text=None),
        "two_texts.jsonl": hit() + hit("q2", "d1", text="other"),
        "error.json": json.dumps({"error": {"type": "index_not_found_exception", "reason": "no"}, "status": 404}),
        "shards.json": json.dumps(answer | {"_shards": {"total": 2, "failed": 1}}),
        "infinite.jsonl": hit(score=float("inf")),
        "grade.jsonl": hit(grade=0.5),
        "again.jsonl": hit() + hit("q2") + hit("q1", "d2"),
        "cut.jsonl": hit() + hit("q1", "d2")[:-9],
        "empty.jsonl": "",
        "good.jsonl": hit(),
        "words.csv": "qid,docno,score\n" + "".join(f"{q},{d},{'high' if i else 1}\n" for i, (q, d) in enumerate(pairs)),
        "nan.jsonl": '{"query_id": "q0", "doc_id": "d1", "score": NaN}\n',
        "no_score.csv": "qid,docno,text\nq0,d1,x\n",
    }
    (folder / "other").mkdir()
    for name, text in texts.items():
        (folder / name).write_text(text)
    frame.to_parquet(folder / "whole.parquet")
    (folder / "cut.parquet").write_bytes((folder / "whole.parquet").read_bytes()[:-40])
    frame.rename(columns={"doc_id": "document"}).to_parquet(folder / "no_ids.parquet")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lists, their collection, and the files."""
    folder = tmp_path_factory.mktemp("bad")
    write_files(folder, make_lists(folder))
    return folder


@pytest.mark.parametrize("what", CASES)
def test_one_line_says_what_is_wrong(
    what: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RERANK_HOME", str(folder / "home"))
    words, message = CASES[what]
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert main([word.replace("DIR", str(folder)) for word in words]) == 2
    shown = capsys.readouterr()
    lines = shown.err.splitlines()
    assert len(lines) == 1 and lines[0].startswith("rerank: error: ") and not shown.out, (lines, shown.out)
    assert re.search(message, lines[0]), lines
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before, "nothing is left"
