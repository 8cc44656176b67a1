"""Lists built side by side from Parquet shards: read together they are what one folder holds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists.data import ListsData
from rerank.lists.view import Lists

QUERIES, DEPTH, SHARDS = 12, 5, 3


def write_shards(folder: Path) -> None:
    """Hits of some queries in each file, and all in ``whole.parquet``; documents come in several of them."""
    rng = np.random.default_rng(1)
    rows = [
        {
            "query_id": f"q{query}",
            "query": f"text of {query}",
            "doc_id": f"d{document}",
            "text": f"document {document}",
            "score": float(DEPTH - rank),
            "grade": int(rank == query % DEPTH),
        }
        for query in range(QUERIES)
        for rank, document in enumerate(rng.choice(20, DEPTH, replace=False).tolist())
    ]
    size = len(rows) // SHARDS
    for shard in range(SHARDS):
        pq.write_table(pa.Table.from_pylist(rows[shard * size : (shard + 1) * size]), folder / f"{shard}.parquet")
    pq.write_table(pa.Table.from_pylist(rows), folder / "whole.parquet")


def told(lists: Lists) -> list[tuple[str, str, str, int, float]]:
    store = lists.store
    texts, ids = store.documents.column("text").to_pylist(), store.documents.column("doc_id").to_pylist()
    queries = np.repeat(np.array(lists.query_ids), lists.lengths).tolist()
    candidates = zip(queries, lists.documents.tolist(), lists.grades.tolist(), lists.column("score"), strict=True)
    return [(query, ids[row], texts[row], grade, float(score)) for query, row, grade, score in candidates]


def test_shards_together_are_the_whole(tmp_path: Path) -> None:
    write_shards(tmp_path)
    command = [sys.executable, "-m", "rerank.commands.cli", "retrieve", "--collection"]
    side_by_side = [
        subprocess.Popen([*command, f"hits:{tmp_path}/{shard}.parquet", "--output", f"{tmp_path}/lists/part-{shard}"])
        for shard in range(SHARDS)
    ]
    assert [process.wait(300) for process in side_by_side] == [0] * SHARDS
    assert main(["retrieve", "--collection", f"hits:{tmp_path}/whole.parquet", "--output", f"{tmp_path}/whole"]) == 0
    parts = ListsData(f"{tmp_path}/lists/part-*", validation_share=0.0).splits(1).train
    whole = ListsData(f"{tmp_path}/whole", validation_share=0.0).splits(1).train
    assert len(told(whole)) == QUERIES * DEPTH
    assert told(parts) == told(whole)


def test_a_pattern_that_nothing_fits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data.train: no folder is called .*part-\*"):
        ListsData(f"{tmp_path}/part-*").splits(1)
