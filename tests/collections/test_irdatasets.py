"""Corpora that ir_datasets cannot download: found again only while their files are the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.collections.disks45 import write_disks

IDS = ["FT911-3", "LA010189-0001", "FBIS3-1", "FR940104-0-00001"]
SCRIPT = """
import sys
from rerank.collections import Query, open_collection
from rerank.retrieval import BM25, build_index
collection = open_collection("disks45/nocr")
index = build_index(collection)
for scored in BM25().search(index, [Query("q", "zebra")])["q"]:
    print(scored.id)
print(index.name)
"""


def search(tmp_path: Path) -> list[str]:
    """The documents that match "zebra", and the index, in a process: ir_datasets reads its home when it is imported."""
    environment = os.environ | {"IR_DATASETS_HOME": str(tmp_path / "irds"), "RERANK_HOME": str(tmp_path / "home")}
    words = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True, timeout=250)
    return [*done.stdout.split(), done.stderr]


def test_an_index_is_built_again_when_a_file_of_the_corpus_changes(tmp_path: Path) -> None:
    """Ids, fields, and the count and sizes of files and documents stay: only a word is another."""
    corpus = tmp_path / "irds" / "disks45" / "corpus"
    write_disks(corpus, IDS)
    *found, first, _ = search(tmp_path)
    assert found == []
    *found, again, _ = search(tmp_path)
    assert (found, again) == ([], first)

    texts = [(path, path.read_bytes()) for path in sorted(corpus.rglob("*")) if path.is_file()]
    words = (b"trade", b"crime", b"river", b"women", b"water")
    plain, before, word = next((*text, word) for text in texts for word in words if word in text[1])
    stamp = plain.stat().st_mtime_ns
    plain.write_bytes(before.replace(word, b"zebra"))
    os.utime(plain, ns=(stamp, stamp))
    *found, changed, _ = search(tmp_path)
    assert len(found) == 1
    assert changed != first

    plain.write_bytes(before)
    *found, restored, _ = search(tmp_path)
    assert (found, restored) == ([], first), "the content counts, not the time"
