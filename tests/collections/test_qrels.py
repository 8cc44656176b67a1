from __future__ import annotations

import gzip
from pathlib import Path

import ir_measures
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.collections import read_qrels
from rerank.errors import UserError

IDS = st.text("abz019-_.é", min_size=1, max_size=4)


@given(st.dictionaries(IDS, st.dictionaries(IDS, st.integers(-2, 4), min_size=1, max_size=4), min_size=1, max_size=4))
def test_trec_qrels_read_as_ir_measures_reads_them(tmp_path_factory: pytest.TempPathFactory, qrels: dict) -> None:
    path = tmp_path_factory.getbasetemp() / "qrels.hypothesis"
    path.write_text("".join(f"{q} 0 {d}\t{grade}\n" for q, grades in qrels.items() for d, grade in grades.items()))
    theirs = ir_measures.read_trec_qrels(str(path))
    assert read_qrels(path) == qrels == ir_measures.util.QrelsConverter(theirs).as_dict_of_dict()


def test_beir_tsv_is_known_by_its_header(tmp_path: Path) -> None:
    path = tmp_path / "test.tsv.gz"
    path.write_bytes(gzip.compress(b"query-id\tcorpus-id\tscore\r\n1\td1\t2.0\r\n1\td2\t0\r\n"))
    assert read_qrels(path) == read_qrels(str(path)) == {"1": {"d1": 2, "d2": 0}}


def test_comment_lines_of_judgments_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("# pooled depth 100\n1 0 a 1\n#1 0 b 1\n")
    assert read_qrels(tmp_path / "qrels") == {"1": {"a": 1}}


@pytest.mark.parametrize("name", ["qrels.parquet", "qrels.jsonl", "qrels.csv", "zipped"])
def test_tables_are_read_as_judgments(tmp_path: Path, name: str) -> None:
    frame = pd.DataFrame({"qid": ["1", "1"], "docno": ["a", "b"], "relevance": [2, 0]})
    path = tmp_path / name
    if name == "qrels.parquet":
        frame.to_parquet(path)
    elif name == "qrels.jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif name == "qrels.csv":
        frame.to_csv(path, index=False)
    else:
        path.write_bytes(gzip.compress(b"1 0 a 2\n1 0 b 0\n"))
    assert read_qrels(path) == {"1": {"a": 2, "b": 0}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 0 a 1\n1 0 b\n", "qrels:2: 3 columns; expected a query id, 0, a document id and a grade"),
        ("1\ta\t1\n", "a document id and a grade, or BEIR's header, query-id corpus-id score"),
        ("1 0 a 1 extra\n", "qrels:1: 5 columns"),
        ("1 0 a 0.5\n", "qrels:1: grade '0.5'; expected a whole number"),
        ("query-id\tcorpus-id\tscore\n1 0 a 1\n", "qrels:2: 4 columns; expected a query id, a document id and a grade"),
        ("1 0 a 1\n\n1 0 a 2\n", "qrels:3: document 'a' of query '1' has grade 2 here and 1 before"),
        ("\n", "qrels: no judgments in this file"),
        *(
            (f"1 0 d {grade}\n", r"qrels:1: grade")
            for grade in ("1_0", "１", "1.5", "one", "32768", "-32768", str(2**63), "9" * 5000)
        ),
    ],
)
def test_bad_judgments_are_named_by_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "qrels"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_qrels(path)


def test_read_qrels_takes_a_collection_with_judgments(tmp_path: Path) -> None:
    (tmp_path / "docs.tsv").write_text("a\ttext\n")
    with pytest.raises(UserError, match="this collection has no judgments"):
        read_qrels(f"files:{tmp_path}")
    (tmp_path / "qrels").write_text("1 0 a 1\n")
    assert read_qrels(f"files:{tmp_path}") == {"1": {"a": 1}}
