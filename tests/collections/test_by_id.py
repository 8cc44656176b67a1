"""Documents looked up by their ids: the same as streaming gives, in its order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from rerank.collections import open_collection
from rerank.collections.base import ById
from rerank.commands.cli import main
from tests.retrieval.compared import foreign_index

TEXTS = {"d10": "red apple", "d9": "a pear", "1": "one", "ä": "umlaut", "d2": "blank", "ö" * 30: "long", "7": "seven"}


@pytest.mark.parametrize(
    "wanted", [[], ["d2"], ["7", "ä", "unknown", "d10"], ["d9", "ö" * 30], ["ö" * 31, "d", " "], [*TEXTS]]
)
def test_documents_by_id_are_those_of_the_stream(tmp_path: Path, wanted: Sequence[str]) -> None:
    name = f"lucene:{foreign_index(tmp_path, list(TEXTS.items()))}"
    collection, of_fields = open_collection(name), open_collection(name, ["text"])
    assert isinstance(collection, ById) and isinstance(of_fields, ById)
    streamed = list(collection.documents())
    assert {document.id for document in streamed} == set(TEXTS)
    found = list(collection.documents_by_id(set(wanted)))
    assert found == [document for document in streamed if document.id in wanted]
    assert [collection.cheaper_by_id(count) for count in (1, 3, 5, 7)] == [True, True, False, False]
    assert not of_fields.cheaper_by_id(1), "a field that no document has is found only if all are read"


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
