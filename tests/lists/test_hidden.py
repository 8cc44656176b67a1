"""What was added to train on is seen by training alone: elsewhere it would tell which documents are relevant."""

from __future__ import annotations

from pathlib import Path

import pytest

from rerank.lists.data import ListsData
from rerank.lists.folds import FoldsData
from tests.builders import make_lists_with_added


def test_validation_and_test_lists_have_their_candidates_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two a query; lists of their own, a share that is held out, and folds."""
    lists = make_lists_with_added(tmp_path)
    assert lists.with_added().size > lists.size
    monkeypatch.setattr("rerank.lists.data.check_disjoint", lambda train, others: None)  # one folder is enough here
    folder = str(lists.store.folder)
    own, share = ListsData(folder, validation=folder, test=folder), ListsData(folder, validation_share=0.3)
    for data, held in ((own, 2), (share, 1), (FoldsData(folder, fold=1, folds=3), 2)):
        splits = data.splits(1)
        assert splits.train.lengths.max() > 2, "training sees what was added"
        parts = [part for part in (splits.validation, splits.test) if part is not None]
        assert [{*part.lengths.tolist()} for part in parts] == [{2}] * held
