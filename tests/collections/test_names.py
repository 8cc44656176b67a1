from __future__ import annotations

from pathlib import Path

import pytest

from rerank import Texts
from rerank.collections import Query, open_collection, read_queries
from rerank.errors import UserError
from tests.forked import python


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cranfeld", r"\(did you mean 'cranfield'\?\)"),
        ("beir/scifact/trian", r"\(did you mean 'beir/scifact/train'\?\)"),
        ("dmeo", r"\(did you mean 'demo'\?\)"),
        ("bier:some/folder", r"\(did you mean 'beir:some/folder'\?\)"),
        ("beir:", "unknown collection 'beir:'"),
    ],
)
def test_open_collection_suggests_the_nearest_name(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        open_collection(name)
    assert "\n" not in str(caught.value)


def test_open_collection_suggests_prefixes_for_a_folder(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"for a folder, write beir:{tmp_path} or files:{tmp_path}"):
        open_collection(str(tmp_path))


def test_query_fields_are_those_of_an_ir_dataset(tmp_path: Path) -> None:
    (tmp_path / "q.tsv").write_text("1\ta\n")
    for source in (tmp_path / "q.tsv", Texts({"d": "a"}, {"q": "b"})):
        with pytest.raises(UserError, match="queries have one text"):
            read_queries(source, ["description"])
    with pytest.raises(UserError, match=r"no field 'txt' \(did you mean 'text'\?\); query_id, text"):
        list(read_queries("cranfield", ["txt"]))


def test_read_queries_takes_files_and_collections(tmp_path: Path) -> None:
    (tmp_path / "docs.tsv").write_text("a\ttext\n")
    path = tmp_path / "queries.tsv"
    path.write_text("1\tone\n")
    assert list(read_queries(path)) == list(read_queries(str(path))) == [Query("1", "one")]
    assert list(read_queries(f"files:{tmp_path}")) == [Query("1", "one")]
    with pytest.raises(UserError, match="no such file"):
        read_queries(tmp_path / "nowhere")


def test_ir_dataset_without_files_raises_one_line(tmp_path: Path) -> None:
    script = """
from rerank.collections import open_collection
from rerank.errors import UserError
collection = open_collection("disks45/nocr")
for records in (collection.documents, collection.queries):
    try:
        next(records())
    except UserError as error:
        print(error)
"""
    documents, queries = python(script, IR_DATASETS_HOME=str(tmp_path)).stdout.splitlines()
    assert documents.startswith("disks45/nocr: ir_datasets cannot get its files (")
    assert queries.startswith("disks45/nocr: this ir_datasets id has no queries")
