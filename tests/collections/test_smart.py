from __future__ import annotations

from pathlib import Path

import pytest

from rerank.collections import Document, Query, open_collection
from rerank.errors import UserError

FILES = {
    "MADE.ALL": ".I 1\r\n.T\r\nOf Wings\r\n.A\r\nA. B.\r\n.A\r\nC. D.\r\n.W\r\n  A wing\r\nlifts.  .W is here\r\n"
    ".X\r\n1\t5\t1\r\n.I 2\r\n.T \r\nOf Drag\r\n.W\r\n.I 3\r\n",
    "MADE.QRY": ".I 1\n.W\nWhat is\na wing?\n.I 7\n.T\nDrag\n.W\nits causes\n",
    "MADE.REL": "     1      1\t0\t0.000000\n     1      2\t0\t0.000000\n     7      2\t0\t0.000000\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, newline="")
    return tmp_path


def test_documents_queries_and_judgments(folder: Path) -> None:
    made = open_collection(f"smart:{folder}")
    assert list(made.documents()) == [
        Document("1", "Of Wings\nA wing\nlifts.  .W is here"),
        Document("2", "Of Drag"),
        Document("3", ""),
    ]
    assert list(made.queries()) == [Query("1", "What is a wing?"), Query("7", "Drag its causes")]
    assert made.qrels() == {"1": {"1": 1, "2": 1}, "7": {"2": 1}}
    fields = open_collection(f"smart:{folder}", ["A", "t"])
    assert next(fields.documents()) == Document("1", "A. B.\nC. D.\nOf Wings")
    assert fields.fingerprint() != made.fingerprint()
    with pytest.raises(UserError, match=r"no document has a field 'z'; fields: a, t, w, x"):
        list(open_collection(f"smart:{folder}", ["z"]).documents())


def test_judgments_as_trec_has_them(folder: Path) -> None:
    (folder / "MADE.REL").write_text("1 0 2 1\n1 0 3 0\n")
    assert open_collection(f"smart:{folder}").qrels() == {"1": {"2": 1, "3": 0}}
    (folder / "MADE.REL").unlink()
    assert open_collection(f"smart:{folder}").qrels() is None


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("MADE.ALL", "words\n", r"MADE.ALL:1: expected .I and a number, or a field such as .W, not 'words'"),
        ("MADE.ALL", ".I 1\n.W\na\n.I 2\nwords\n", r"MADE.ALL:5: expected .I and a number"),
        ("MADE.ALL", "", r"no records in this file"),
        ("MADE.ALL", ".I 1\n.W\na\n.I 1\n.W\nb\n", r"MADE.ALL:4: .*'1' again"),
        ("MADE.QRY", ".I 1\n.W\na\n.I 1\n.W\nb\n", r"MADE.QRY:4: query id '1' again, first at .*MADE.QRY:1"),
        ("MADE.ALL", ".I 1\n.W\na\n.I 2 b\n.W\nc\n", r"MADE.ALL:4: expected .I and one number, .*not '.I 2 b'"),
        ("MADE.ALL", ".I 1\n.W\na\n .I\n.W\nc\n", r"MADE.ALL:4: expected .I and one number"),
        ("MADE.REL", "1 0 3 x\n", r"MADE.REL:1: the grade 'x' is no whole number"),
        ("MADE.REL", "1 2 3\n", r"MADE.REL:1: 3 columns; expected a query, a document and two others"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(folder: Path, name: str, text: str, message: str) -> None:
    (folder / name).write_text(text)
    made = open_collection(f"smart:{folder}")
    with pytest.raises(UserError, match=message):
        print(list(made.documents()), list(made.queries()), made.qrels())


def test_files_that_are_not_there(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    with pytest.raises(UserError, match=r"no NAME.ALL, as the SMART system has it, in this folder"):
        open_collection(f"smart:{tmp_path_factory.mktemp('empty')}")
    (folder / "MADE.QRY").unlink()
    with pytest.raises(UserError, match=r"no MADE.QRY in this folder"):
        list(open_collection(f"smart:{folder}").queries())


def test_cisi(shared_data: Path) -> None:
    cisi = open_collection(f"smart:{shared_data}/cisi")
    documents, queries, qrels = list(cisi.documents()), list(cisi.queries()), cisi.qrels()
    assert [document.id for document in documents] == [str(i) for i in range(1, 1461)]
    assert documents[0].text.startswith("18 Editions of the Dewey Decimal Classifications\nThe present study")
    assert all(document.text for document in documents)
    assert [query.id for query in queries] == [str(i) for i in range(1, 113)]
    assert (len(qrels), sum(map(len, qrels.values()))) == (76, 3114)
    assert {id for grades in qrels.values() for id in grades} <= {document.id for document in documents}
