"""Robust04: documents in the formats of TREC disks 4 and 5, the real topics, folds, judgments and CEDR's runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from rerank.collections import read_qrels
from rerank.lists import Lists
from rerank.retrieval import read_run
from tests.collections.disks45 import FILES, make_text, write_disks
from tests.forked import python

NAME = "disks45/nocr/trec-robust-2004"
DEPTH = 4
RETRIEVE = """
import json, sys
from rerank.commands.cli import main
from rerank.lists.folds import read_folds
name, run, depth, output = sys.argv[1:]
words = ["--collection", name, "--run", run, "--depth", depth, "--output", output]
assert main(["retrieve", *words]) == 0
print(json.dumps([sorted(fold) for fold in read_folds(name)]))
"""


class Robust04(NamedTuple):
    """Lists built through ir_datasets from CEDR's candidates, and the folds that it knows."""

    lists: Lists
    folds: list[list[str]]
    cedr: Path


@pytest.fixture(scope="module")
def robust04(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Robust04:
    folder = tmp_path_factory.mktemp("robust04")
    cedr = shared_data / "robust04" / "cedr"
    run = folder / "cedr.run"
    run.write_text("".join((cedr / f"f{i}.test.run").read_text() for i in range(1, 6)))
    home = folder / "home"
    shutil.copytree(shared_data / "ir_datasets" / "disks45", home / "disks45")
    wanted = {scored.id for ranked in read_run(run).values() for scored in ranked[:DEPTH]}
    judged = {line.split()[2] for line in (home / "disks45" / "qrels.robust2004.txt").read_text().splitlines()}
    wanted |= set(sorted(judged)[::8])  # judgments of another collection would be refused
    write_disks(home / "disks45" / "corpus", sorted(wanted))
    assert sum(path.is_file() for path in (home / "disks45" / "corpus").rglob("*")) == FILES
    done = python(RETRIEVE, NAME, str(run), str(DEPTH), str(folder / "lists"), IR_DATASETS_HOME=str(home))
    return Robust04(Lists.open(folder / "lists"), json.loads(done.stdout), cedr)


def test_the_text_of_all_four_sources_is_read(robust04: Robust04) -> None:
    table = robust04.lists.store.documents
    ids, texts = table.column("doc_id").to_pylist(), table.column("text").to_pylist()
    assert {id[:2] for id in ids} == {"FT", "FB", "LA", "FR"}
    for id, text in zip(ids, texts, strict=True):
        title, words = make_text(id)
        assert title in text
        assert words in text
        assert "<" not in text and "PJG" not in text, "markup"


def test_candidates_topics_and_labels_are_the_real_ones(robust04: Robust04, shared_data: Path) -> None:
    lists = robust04.lists
    assert len(lists) == 250
    titles = [line.split("\t") for line in (robust04.cedr / "queries.tsv").read_text().splitlines()]
    assert dict(zip(lists.query_ids, lists.store.queries.column("text").to_pylist(), strict=True)) == {
        id: text for kind, id, text in titles if kind == "query"
    }
    qrels = read_qrels(shared_data / "robust04" / "qrels.robust04.301-450.txt")
    for i in range(1, 6):
        for query, ranked in read_run(robust04.cedr / f"f{i}.test.run").items():
            row = lists.query_ids.index(query)
            part = slice(lists.offsets[row], lists.offsets[row + 1])
            ids = [scored.id for scored in ranked[:DEPTH]]
            assert lists.document_ids(lists.documents[part]) == ids
            assert lists.grades[part].tolist() == [max(0, qrels.get(query, {}).get(id, 0)) for id in ids]
