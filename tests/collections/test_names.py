from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import ir_datasets
import pytest

from rerank.collections import Query, open_collection, read_queries
from rerank.errors import UserError


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("cranfeld", r"\(did you mean 'cranfield'\?\)"),
        ("beir/scifact/trian", r"\(did you mean 'beir/scifact/train'\?\)"),
        ("dmeo", r"\(did you mean 'demo'\?\)"),
        ("bier:some/folder", r"\(did you mean 'beir:some/folder'\?\)"),
        ("beir:", "unknown collection 'beir:'"),
        ("", "unknown collection ''"),
    ],
)
def test_unknown_names_get_the_nearest(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        open_collection(name)
    assert "\n" not in str(caught.value)


def test_a_folder_by_itself_gets_the_ways_to_name_it(tmp_path: Path) -> None:
    ways = f"beir:{tmp_path}, files:{tmp_path}, trec:{tmp_path} or smart:{tmp_path}"
    with pytest.raises(UserError, match=f"for a folder, write {ways}"):
        open_collection(str(tmp_path))


def test_queries_of_files_and_collections(tmp_path: Path) -> None:
    (tmp_path / "docs.tsv").write_text("a\ttext\n")
    path = tmp_path / "queries.tsv"
    path.write_text("1\tone\n")
    assert list(read_queries(path)) == list(read_queries(str(path))) == [Query("1", "one")]
    assert list(read_queries(f"files:{tmp_path}")) == [Query("1", "one")]
    with pytest.raises(UserError, match="no such file"):
        read_queries(tmp_path / "nowhere")


def test_an_ir_dataset_without_its_files_says_so(tmp_path: Path) -> None:
    # In a process of its own: ir_datasets reads its home when it is imported.
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
    environment = {**os.environ, "IR_DATASETS_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60)
    assert done.returncode == 0, done.stderr
    documents, queries = done.stdout.splitlines()
    assert documents.startswith("disks45/nocr: ir_datasets cannot get its files (FileNotFoundError: ")
    assert queries.startswith("disks45/nocr: this ir_datasets id has no queries")


def test_ir_datasets_fields_are_checked_at_once() -> None:
    with pytest.raises(
        UserError, match=r"no field 'titel' \(did you mean 'title'\?\); doc_id, title, text, author, bib"
    ):
        open_collection("cranfield", ["titel"])


def test_splits_of_an_ir_dataset_share_documents() -> None:
    train, test = (open_collection(f"beir/scifact/{split}") for split in ("train", "test"))
    assert train.fingerprint() == test.fingerprint() != open_collection("beir/scifact", ["text"]).fingerprint()
    assert train.document_count() == ir_datasets.load("beir/scifact").docs_count()
