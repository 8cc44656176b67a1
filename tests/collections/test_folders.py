from __future__ import annotations

from pathlib import Path

import pytest

from rerank.collections import Document, Query, open_collection
from rerank.errors import UserError
from tests.builders import write_packed


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
    return folder


CORPUS = '{"_id": "d1", "title": "One", "text": "first", "metadata": {}}\n{"_id": "d2", "title": "", "text": ""}\n'
QUERIES = '{"_id": "q2", "text": "second"}\n{"_id": "q1", "text": "first"}\n{"_id": "q3", "text": "third"}\n'
HEADER = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def beir(tmp_path: Path) -> Path:
    return write(
        tmp_path / "beir",
        {
            "corpus.jsonl": CORPUS,
            "queries.jsonl": QUERIES,
            "qrels/test.tsv": HEADER + "q1\td1\t2\nq2\td1\t0\n",
            "qrels/train.tsv": HEADER.replace("\n", "\r\n") + "q3\td2\t1\r\n",
        },
    )


def test_beir_splits_have_the_queries_of_their_judgments(beir: Path, caplog: pytest.LogCaptureFixture) -> None:
    test, train, whole = (open_collection(f"beir:{beir}{split}") for split in ("/test", "/train", ""))
    assert list(test.documents()) == [Document("d1", "One\nfirst"), Document("d2", "")]
    assert list(test.queries()) == [Query("q2", "second"), Query("q1", "first")]
    assert test.qrels() == {"q1": {"d1": 2}, "q2": {"d1": 0}}
    assert train.qrels() == {"q3": {"d2": 1}}
    assert [query.id for query in whole.queries()] == ["q2", "q1", "q3"]
    with caplog.at_level("WARNING"):
        assert whole.qrels() is None
    assert f"has no judgments without a split, such as beir:{beir}/test" in caplog.text
    assert test.name == f"beir:{beir}/test"
    before = test.fingerprint()
    assert before == train.fingerprint() == whole.fingerprint()
    write(beir, {"queries.jsonl": QUERIES + "\n"})
    assert open_collection(f"beir:{beir}").fingerprint() == before


def test_beir_refuses_missing_folders_and_splits(beir: Path, tmp_path: Path) -> None:
    for name, message in {
        f"beir:{beir}/tets": r"no qrels/tets\.tsv \(did you mean 'test'\?\); splits: test, train",
        f"beir:{tmp_path}": r"no docs\.tsv, docs\.jsonl or corpus\.jsonl in this folder",
        f"beir:{tmp_path}/nowhere/test": "nowhere/test: no such folder",
    }.items():
        with pytest.raises(UserError, match=message):
            open_collection(name)
    write(beir, {"qrels/test.tsv": HEADER + "d1\tq1\t2\n"})
    with pytest.raises(UserError, match=r"test\.tsv: judges none of the queries; expected query-id, corpus-id"):
        list(open_collection(f"beir:{beir}/test").queries())


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("compressed", ["", ".gz"])
def test_files_are_read_as_tsv_and_jsonl_plain_and_compressed(tmp_path: Path, end: str, compressed: str) -> None:
    files = {
        "docs.tsv": ["1\tcafé", "2\t"],
        "queries.jsonl": ['{"query_id": 7, "query": "coffee", "doc_id": 1}', '{"id": 8, "text": "tea"}'],
        "qrels": ["7 0 1 -1", "7 0 2 3"],
    }
    for name, lines in files.items():
        write_packed(tmp_path / (name + compressed), end.join(lines) + end)
    collection = open_collection(f"files:{tmp_path}")
    assert list(collection.documents()) == [Document("1", "café"), Document("2", "")]
    assert list(collection.queries()) == [Query("7", "coffee"), Query("8", "tea")]
    assert collection.qrels() == {"7": {"1": -1, "2": 3}}


def test_missing_numbers_are_no_text_and_a_byte_order_mark_alone_is_no_line(tmp_path: Path) -> None:
    write(tmp_path, {"docs.jsonl": '{"id": 1, "title": NaN, "text": "a"}\n', "queries.tsv": "\ufeff"})
    collection = open_collection(f"files:{tmp_path}")
    assert list(collection.documents()) == [Document("1", "a")]
    with pytest.raises(UserError, match="no queries in this file"):
        list(collection.queries())


def test_files_that_are_missing_or_double_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no docs\.tsv, docs\.jsonl or corpus\.jsonl in this folder"):
        open_collection(f"files:{tmp_path}")
    write(tmp_path, {"docs.tsv": "1\ta\n"})
    with pytest.raises(UserError, match=r"no queries\.tsv"):
        open_collection(f"files:{tmp_path}").queries()
    write(tmp_path, {"docs.jsonl": '{"id": 1, "text": "a"}\n'})
    with pytest.raises(UserError, match=r"both docs\.jsonl and docs\.tsv"):
        open_collection(f"files:{tmp_path}")


BAD = {
    "docs.tsv": {
        "1\ta\n2 b\n": r"docs\.tsv:2: 1 columns; expected two, an id and a text",
        "1\ta\n\n\tb\n": r"docs\.tsv:3: no id",
        "a b\tc\n": r"docs\.tsv:1: the id 'a b' holds white space",
        "id\ttext\n1\ta\n": r"docs\.tsv:1: .* is a header",
    },
    "docs.jsonl": {
        '{"id": 1, "text": "a"}\n{"id": 2, "text": \n': r"docs\.jsonl:2: not JSON .*expected a line like",
        "[1]\n": r"docs\.jsonl:1: not a JSON object",
        '{"ident": 1, "text": "a"}\n': r"docs\.jsonl:1: no id among the keys ident, text",
        '{"id": null, "text": "a"}\n': r"docs\.jsonl:1: no id",
        '{"id": 1, "body": "a"}\n': r"docs\.jsonl:1: no text among the keys id, body; expected 'text'",
        '{"id": 1, "text": {"en": "a"}}\n': r"docs\.jsonl:1: 'text' is dict",
    },
    "queries.tsv": {
        "1\ta\n1\tb\n": r"queries\.tsv:2: query id '1' again, first at .*queries\.tsv:1",
    },
}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in BAD.items() for text in texts])
def test_bad_files_are_named_by_line(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, {"docs.tsv" if name == "queries.tsv" else name: "1\ta\n", name: text})
    collection = open_collection(f"files:{tmp_path}")
    with pytest.raises(UserError, match=BAD[name][text]) as caught:
        list(collection.queries() if name == "queries.tsv" else collection.documents())
    assert "\n" not in str(caught.value)
