"""Folders of version 1, in which a query held its candidates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from rerank.arrow import write_arrow
from rerank.collections import open_collection
from rerank.errors import UserError
from rerank.lists import Lists, build_lists
from rerank.lists.upgrade import upgrade
from tests.builders import random_run, write_collection

QUERIES = pa.schema(
    [
        ("query_id", pa.string()),
        ("text", pa.string()),
        ("documents", pa.list_(pa.int32())),
        ("labels", pa.list_(pa.int16())),
        ("scores", pa.list_(pa.float32())),
        ("added", pa.int32()),
    ]
)


def as_version_1(lists: Lists, folder: Path) -> None:
    """What version 1 would have written for these lists."""
    store = lists.store
    assert store.folder is not None
    folder.mkdir()
    rows = [slice(*pair) for pair in zip(np.append(0, store.ends[:-1]), store.ends, strict=True)]
    scores = [store.column("bm25")[row] for row in rows]
    write_arrow(
        folder / "queries.arrow",
        QUERIES,
        [
            {
                "query_id": store.queries.column("query_id").to_pylist(),
                "text": store.queries.column("text").to_pylist(),
                "documents": [store.document[row] for row in rows],
                "labels": [store.grades[row] for row in rows],
                "scores": [np.nan_to_num(score, nan=np.nanmin(score)) for score in scores],
                "added": store.added,
            }
        ],
    )
    for name in ("documents.arrow", "qrels.trec", "run.trec"):
        (folder / name).write_bytes((store.folder / name).read_bytes())
    about = {name: store.manifest[name] for name in ("collection", "retriever", "depth", "counts")}
    hashes = {"texts": "0", "run": "0"}
    (folder / "manifest.json").write_text(json.dumps({"version": 1, "judged": True, "hashes": hashes} | about))


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    """Lists with added documents, as they are built today; and, in ``old``, as version 1 had them."""
    name = write_collection(tmp_path / "c")
    run = random_run(name, [3, 1, 7, 5, 20, 2, 16, 5, 20, 11, 3, 18])
    retriever = {"bm25": {"k1": 0.9, "b": 0.4}}
    made = build_lists(open_collection(name), run, tmp_path / "new", add_relevant=True, retriever=retriever, depth=4)
    as_version_1(made, tmp_path / "old")
    return made


def test_a_converted_folder_is_the_folder_built_today(lists: Lists, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--upgrade"):
        Lists.open(tmp_path / "old")
    upgrade(tmp_path / "old")
    new, old = tmp_path / "new", tmp_path / "old"
    files = [path.relative_to(new) for path in new.rglob("*") if path.is_file()]
    assert sorted(files) == sorted(path.relative_to(old) for path in old.rglob("*") if path.is_file())
    assert int(lists.store.added.sum()) > 0
    for file in files:
        if file.name != "manifest.json":
            assert (new / file).read_bytes() == (old / file).read_bytes(), file
    assert Lists.open(old).store.manifest["files"] == Lists.open(new).store.manifest["files"]


def test_what_is_new_already_is_left_alone(lists: Lists, tmp_path: Path) -> None:
    before = (tmp_path / "new" / "manifest.json").stat()
    upgrade(tmp_path / "new")
    assert (tmp_path / "new" / "manifest.json").stat() == before


@pytest.mark.parametrize("content", ["", "[]", '{"version": 3}', '{"version": "1"}', "{"])
def test_other_folders_are_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "manifest.json").write_text(content)
    with pytest.raises(UserError):
        upgrade(tmp_path / "x")
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["manifest.json"]
