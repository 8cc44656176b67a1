from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.retrieval import pairs
from rerank.retrieval.runs import Scored, read_run, write_run
from tests.builders import write_packed

RUN = {"7": [Scored("b", 2.5), Scored("a", 2.5), Scored("c", -1.0)], "q8": [Scored("a", 0.125)]}
ROWS = [(query, document.id, document.score) for query, ranking in RUN.items() for document in ranking]


def records(query: str = "query_id", document: str = "doc_id") -> list[dict[str, Any]]:
    return [{query: q, "rank": "?", document: d, "score": s, "text": "…"} for q, d, s in ROWS]


@pytest.mark.parametrize("names", [("query_id", "doc_id"), ("qid", "docid"), ("qid", "docno")])
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".jsonl.xz", ".parquet"])
def test_a_run_is_the_same_in_every_format(tmp_path: Path, names: tuple[str, str], suffix: str) -> None:
    path = tmp_path / f"run{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(records(*names)), path, row_group_size=2)
    else:
        write_packed(path, "".join(json.dumps(record) + "\n" for record in records(*names)))
    assert read_run(path) == RUN


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"qid": "1", "docno": "a"}, "run.jsonl:2: no field 'score', which line 1 has"),
        ({"qid": "1", "document_id": "a", "score": 1}, "run.jsonl:2: no field 'docno', which line 1 has"),
        ({"qid": "1", "docno": "a", "score": "high"}, "run.jsonl:2: score 'high'; expected a finite number"),
        ({"qid": "1", "docno": "a", "score": True}, "run.jsonl:2: score True"),
        ({"qid": "1", "docno": "a", "score": None}, "run.jsonl:2: no score; expected a finite number"),
        ({"qid": "1", "docno": "a", "score": float("nan")}, "run.jsonl:2: score nan"),
        ({"qid": "1", "docno": "x", "score": 1}, "run.jsonl:2: document 'x' is in the list of query '1' already"),
        ({"qid": "1", "docno": "", "score": 1}, "run.jsonl:2: no id"),
        ({"qid": "", "docno": "a", "score": 1}, "run.jsonl:2: no id"),
        ({"qid": "1", "docno": "a\u00a0", "score": 1}, "run.jsonl:2: the id 'a\\xa0' holds white space"),
        ({"qid": None, "docno": "a", "score": 1}, "run.jsonl:2: no id"),
        ({"qid": 1.5, "docno": "a", "score": 1}, "run.jsonl:2: no id"),
        (["1", "a", 1], "run.jsonl:2: not a JSON object"),
    ],
)
def test_bad_lines_are_named(tmp_path: Path, record: object, said: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(json.dumps({"qid": "1", "docno": "x", "score": 1}) + "\n" + json.dumps(record) + "\n")
    with pytest.raises(UserError) as error:
        read_run(path)
    assert said in str(error.value)


def test_parquet_is_read_in_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "batched", None)
    pq.write_table(pa.Table.from_pylist(records("qid", "docno")), tmp_path / "run.parquet", row_group_size=3)
    numbered = {"qid": [7, 7], "docid": [1, 2], "score": pa.array([2, 1], pa.int32())}
    pq.write_table(pa.table(numbered), tmp_path / "numbered.parquet")
    assert read_run(tmp_path / "run.parquet") == RUN
    assert read_run(tmp_path / "numbered.parquet") == {"7": [Scored("1", 2.0), Scored("2", 1.0)]}


@given(st.lists(st.text(max_size=3).filter(lambda id: id.isprintable() or id.isspace() or not id), min_size=1))
def test_ids_in_parquet_are_single_words(tmp_path_factory: pytest.TempPathFactory, ids: list[str]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.parquet"
    pq.write_table(pa.table({"qid": ids, "docno": [str(i) for i in range(len(ids))], "score": [1.0] * len(ids)}), path)
    if all(id.split() == [id] for id in ids):
        assert set(read_run(path)) == set(ids)
    else:
        with pytest.raises(UserError, match=r"any\.parquet: row \d+: "):
            read_run(path)


def test_the_first_line_says_what_the_fields_are(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text('{"qid": "1", "document_id": "a", "score": 1}\n')
    with pytest.raises(UserError, match=r"run\.jsonl:1: no document id \(did you mean 'document_id'\?\)"):
        read_run(path)
    path.write_text('{"qid": "1", "docno": "a"}\n')
    with pytest.raises(UserError, match=r"run\.jsonl:1: no score; fields: qid, docno; expected"):
        read_run(path)


def test_bad_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_text("1 Q0 a 1 2.5 tag\n")
    with pytest.raises(UserError, match=r"run.jsonl:1: not JSON"):
        read_run(tmp_path / "run.jsonl")
    (tmp_path / "run.parquet").write_text("no parquet")
    with pytest.raises(UserError, match=r"run.parquet: not a readable Parquet file"):
        read_run(tmp_path / "run.parquet")
    for name in ("none.jsonl", "none.parquet"):
        with pytest.raises(UserError, match=f"{name}: no such file"):
            read_run(tmp_path / name)
    pq.write_table(pa.table({"qid": ["1"], "docno": ["a"]}), tmp_path / "run.parquet")
    with pytest.raises(UserError, match=r"run.parquet: no score; fields: qid, docno; expected"):
        read_run(tmp_path / "run.parquet")


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet", ".json", ".gz"])
def test_runs_are_not_written_under_a_name_that_would_be_read_otherwise(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(UserError, match="plain TREC files"):
        write_run(tmp_path / f"run{suffix}", RUN)
    assert list(tmp_path.iterdir()) == []
