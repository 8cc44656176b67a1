"""What was added to train on is seen by training alone: elsewhere it would tell which documents are relevant."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerank.lists import Lists
from rerank.lists.data import ListsData
from rerank.lists.folds import FoldsData
from tests.builders import make_lists_with_added


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    """Two candidates a query, and many that were added."""
    lists = make_lists_with_added(tmp_path)
    assert lists.with_added().size > lists.size
    return lists


def seen(part: Lists | None) -> set[int]:
    """How many candidates the lists of a part have."""
    assert part is not None
    return {*part.lengths.tolist()}


def test_validation_and_test_lists_of_their_own(lists: Lists, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rerank.lists.data.check_disjoint", lambda train, others: None)  # one folder is enough here
    folder = str(lists.store.folder)
    splits = ListsData(folder, validation=folder, test=folder).splits(1)
    assert max(seen(splits.train)) > 2, "training sees what was added"
    assert seen(splits.validation) == seen(splits.test) == {2}


def test_lists_that_are_kept_back(lists: Lists) -> None:
    splits = ListsData(str(lists.store.folder), validation_share=0.3).splits(1)
    assert max(seen(splits.train)) > 2
    assert seen(splits.validation) == {2}


def test_folds(lists: Lists) -> None:
    splits = FoldsData(str(lists.store.folder), fold=1, folds=3).splits(1)
    assert max(seen(splits.train)) > 2
    assert seen(splits.validation) == seen(splits.test) == {2}
