"""Several folders of training lists are one."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from rerank.errors import UserError
from rerank.lists import Lists
from rerank.lists.data import ListsData


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    """Three folders of two queries each."""
    for name in "abc":
        queries = [f"{name}{number}" for number in (1, 1, 2, 2)]
        rows = {"query_id": queries, "doc_id": ["x", "y"] * 2, "grade": [1, 0, 0, 1], "bm25": [2.0, 1.0] * 2}
        Lists.from_dataframe(pd.DataFrame(rows)).save(tmp_path / name)
    return [str(tmp_path / name) for name in "abc"]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_training_lists_of_all_folders_are_trained_on(folders: list[str], count: int) -> None:
    train = ListsData(folders[:count], validation_share=0).splits(1).train
    assert list(train.query_ids) == [f"{name}{number}" for name in "abc"[:count] for number in (1, 2)]


def test_a_weight_for_each_folder(folders: list[str]) -> None:
    ListsData(folders, weights=[1, 2, 0.5])
    ListsData(folders[0], weights=[2])
    for train, weights in ((folders, [1, 2]), (folders[0], [1, 2]), (folders, [1, 2, 0])):
        with pytest.raises(UserError, match=r"data\.weights: expected a number above 0 for each"):
            ListsData(train, weights=weights)
