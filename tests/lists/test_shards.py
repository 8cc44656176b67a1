"""Lists built side by side from Parquet shards: read together they are what one folder holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists.data import ListsData

QUERIES, DEPTH, SHARDS = 12, 5, 3


def write_shards(folder: Path) -> None:
    """Hits of some queries in each file, and all in ``whole.parquet``; documents come in several of them."""
    rng = np.random.default_rng(1)
    query, rank = np.divmod(np.arange(QUERIES * DEPTH), DEPTH)
    document = np.concatenate([rng.choice(20, DEPTH, replace=False) for _ in range(QUERIES)])
    numbers = {"query_id": query, "query": query, "doc_id": document, "text": document}
    rows = pd.DataFrame({name: [f"{name} {i}".replace("_id ", "") for i in some] for name, some in numbers.items()})
    rows = rows.assign(score=(DEPTH - rank).astype(float), grade=(rank == query % DEPTH).astype(int))
    for shard in range(SHARDS):
        rows[query * SHARDS // QUERIES == shard].to_parquet(folder / f"{shard}.parquet", index=False)
    rows.to_parquet(folder / "whole.parquet", index=False)


def test_shards_together_are_the_whole(tmp_path: Path) -> None:
    write_shards(tmp_path)
    for shard, folder in [*((shard, f"lists/part-{shard}") for shard in range(SHARDS)), ("whole", "whole")]:
        words = ["--collection", f"hits:{tmp_path}/{shard}.parquet", "--output", f"{tmp_path}/{folder}"]
        assert main(["retrieve", *words]) == 0
    parts = ListsData(f"{tmp_path}/lists/part-*", validation_share=0.0).splits(1).train
    whole = ListsData(f"{tmp_path}/whole", validation_share=0.0).splits(1).train
    assert whole.size == QUERIES * DEPTH
    pd.testing.assert_frame_equal(parts.to_dataframe(), whole.to_dataframe())


def test_a_pattern_that_nothing_fits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"data.train: no folder is called .*part-\*"):
        ListsData(f"{tmp_path}/part-*").splits(1)
