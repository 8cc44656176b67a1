"""Documents looked up by their ids: those that streaming gives, in its order."""

from __future__ import annotations

import gzip
import json
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rerank.collections import open_collection
from rerank.collections.base import ById
from rerank.collections.records import keep_json
from rerank.commands.cli import main
from rerank.errors import UserError
from tests.forked import python
from tests.retrieval.compared import foreign_index

TEXTS = {
    "d10": "red apple",
    "d9": 'a "_id": "d2" quoted',
    "1": "one",
    "ä": "umlaut",
    "d2": "",
    "ö" * 30: "long",
    "7": "seven\\n",
}


def tab(folder: Path) -> str:
    (folder / "docs.tsv").write_text("\ufeff" + "".join(f"{id}\t{text}\n" for id, text in TEXTS.items()) + "\n")
    return f"files:{folder}"


def zipped(folder: Path) -> str:
    with gzip.open(folder / "docs.tsv.gz", "wt") as file:
        file.writelines(f"{id}\t{text}\r\n" for id, text in TEXTS.items())
    return f"files:{folder}"


def json_lines(folder: Path) -> str:
    """Every way to spell an id: first or last, a number, beside another that counts less, escaped or not."""
    ways: list[Callable[[str, str], str]] = [
        lambda id, text: json.dumps({"_id": id, "text": text}),
        lambda id, text: json.dumps({"text": text, "id": id}, ensure_ascii=False),
        lambda id, text: json.dumps({"id": int(id) if id.isdecimal() else id, "text": text}),
        lambda id, text: json.dumps({"id": "d9", "text": text, "_id": id}),
        lambda id, text: ' { "id" : "d10","text": ' + json.dumps(text) + ', "id": ' + json.dumps(id) + "}",
    ]
    lines = [ways[number % len(ways)](id, text) for number, (id, text) in enumerate(TEXTS.items())]
    (folder / "docs.jsonl").write_text("\n".join(lines))
    return f"files:{folder}"


def lucene(folder: Path) -> str:
    return f"lucene:{foreign_index(folder, [(id, text or 'blank') for id, text in TEXTS.items()])}"


@pytest.mark.parametrize("make", [tab, zipped, json_lines, lucene])
@pytest.mark.parametrize(
    "wanted", [[], ["d2"], ["7", "ä", "unknown", "d10"], ["d9", "ö" * 30], ["ö" * 31, "d", " "], [*TEXTS]]
)
def test_what_is_looked_up_is_what_is_streamed(
    tmp_path: Path, make: Callable[[Path], str], wanted: Sequence[str]
) -> None:
    collection = open_collection(make(tmp_path))
    assert isinstance(collection, ById)
    streamed = list(collection.documents())
    assert {document.id for document in streamed} == set(TEXTS)
    found = list(collection.documents_by_id(set(wanted)))
    assert found == [document for document in streamed if document.id in wanted]


@given(
    st.dictionaries(st.sampled_from(["_id", "id", "docid", "text", "x"]), st.text(max_size=5), min_size=1), st.data()
)
def test_no_line_that_is_wanted_is_passed_over(record: dict[str, str], data: st.DataObject) -> None:
    keys = [key for key in ("_id", "id", "docid") if key in record]
    if keys:
        line = json.dumps(record, ensure_ascii=data.draw(st.booleans())).encode(errors="surrogatepass")
        assert keep_json({record[keys[0]]})(line)


@pytest.mark.parametrize("make", [tab, lucene])
def test_it_is_cheaper_for_few_of_many(tmp_path: Path, make: Callable[[Path], str]) -> None:
    collection, of_fields = (open_collection(make(tmp_path), fields) for fields in (None, ["text"]))
    assert [collection.cheaper_by_id(wanted) for wanted in (1, 3, 5, 7)] == [True, True, False, False]
    assert not of_fields.cheaper_by_id(1), "a field that no document has shows where all are read"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ('{"_id": "1", "text": "a"}\n' * 2, "2: document id '1' again"),
        ('{"_id": "0", "text": "a"}\n{"_id": "1", "text"}\n', "2: not JSON"),
    ],
)
def test_errors_are_as_in_the_stream(tmp_path: Path, lines: str, said: str) -> None:
    (tmp_path / "docs.jsonl").write_text(lines)
    collection = open_collection(f"files:{tmp_path}")
    with pytest.raises(UserError, match=said):
        list(collection.documents_by_id({"1", "3"}))


CRANFIELD = """
import random
from rerank.collections import open_collection
collection = open_collection("cranfield", FIELDS)
streamed = list(collection.documents())
assert not collection.cheaper_by_id(1), "there is no copy yet"
collection._dataset.docs_store().build()
assert list(collection.documents()) == streamed
assert collection.cheaper_by_id(1) and not collection.cheaper_by_id(1000)
wanted = {*random.Random(0).sample([document.id for document in streamed], 300), "14000", "x"}
found = list(collection.documents_by_id(wanted))
assert found == [document for document in streamed if document.id in wanted] and len(found) == 300
"""


@pytest.mark.parametrize("fields", ["None", "['title', 'bib']"])
def test_a_copy_of_ir_datasets(shared_data: Path, tmp_path: Path, fields: str) -> None:
    home = tmp_path / "ir_datasets"  # the copy is made beside the data
    shutil.copytree(shared_data / "ir_datasets" / "cranfield", home / "cranfield")
    python(CRANFIELD.replace("FIELDS", fields), IR_DATASETS_HOME=str(home))


def test_files_warn_once_of_bytes_that_are_not_utf8(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "docs.tsv").write_bytes(b"a\xff\tone\nb\ttwo\xfe\nc\tthree\n")
    collection = open_collection(f"files:{tmp_path}")
    with caplog.at_level(logging.WARNING, "rerank"):
        assert [document.id for document in collection.documents_by_id({"a\ufffd", "c"})] == ["a\ufffd", "c"]
    assert "1 lines hold bytes that are not UTF-8" in caplog.text


def test_an_index_with_an_id_twice_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Searched, and read for the texts of a run."""
    foreign_index(tmp_path / "index", [(id, f"a wing {i}") for i, id in enumerate(["d1", "d2", "d1"])])
    (tmp_path / "queries.tsv").write_text("q1\twing\n")
    (tmp_path / "run.trec").write_text("q1 Q0 d1 1 2.0 x\n")
    words = ["retrieve", "--collection", f"lucene:{tmp_path / 'index'}", f"--queries={tmp_path / 'queries.tsv'}"]
    assert main([*words, f"--index={tmp_path / 'index'}", f"--output={tmp_path / 'a'}"]) == 2
    assert "has several documents of the id 'd1'" in capsys.readouterr().err
    assert main([*words, "--run", str(tmp_path / "run.trec"), f"--output={tmp_path / 'b'}"]) == 2
    assert "document 'd1' comes a second time" in capsys.readouterr().err
