"""Folds that others have made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rerank.errors import UserError
from rerank.lists import Lists
from rerank.lists.folds import FoldsData

FOLDS = [["q0", "q3", "q6", "q9"], ["q1", "q4", "q7", "q10"], ["q2", "q5", "q8", "q11"]]


def write_runs(folder: Path, shift: int = 1) -> str:
    """Run files named as CEDR names them."""
    for i, fold in enumerate(FOLDS):
        for name, queries in (("test", fold), ("valid", FOLDS[i - shift])):
            lines = [f"{query} Q0 d{rank} {rank} {-rank} run\n" for query in queries for rank in (1, 2)]
            (folder / f"f{i + 1}.{name}.run").write_text("".join(lines))
    return str(folder)


@pytest.mark.parametrize("kind", ["json", "runs"])
@pytest.mark.parametrize("fold", [1, 2, 3])
def test_a_fold_tests_the_one_before_validates_the_others_train(
    lists: Lists, tmp_path: Path, kind: str, fold: int
) -> None:
    if kind == "json":
        source = str(tmp_path / "folds.json")
        Path(source).write_text(json.dumps([*FOLDS[:2], [*FOLDS[2], "unknown"]]))
    else:
        source = write_runs(tmp_path)
    splits = FoldsData(str(lists.store.folder), fold, folds=3, assignment=source).splits(0)
    assert splits.validation is not None and splits.test is not None
    before, after = {1: (3, 2), 2: (1, 3), 3: (2, 1)}[fold]
    assert set(splits.test.query_ids) == set(FOLDS[fold - 1])
    assert set(splits.validation.query_ids) == set(FOLDS[before - 1])
    assert set(splits.train.query_ids) == set(FOLDS[after - 1])


def test_what_cannot_work_is_refused(lists: Lists, tmp_path: Path) -> None:
    file = tmp_path / "folds.json"
    file.write_text(json.dumps(FOLDS))

    def refused(message: str, source: str | Path = file, folds: int = 3) -> None:
        with pytest.raises(UserError, match=message):
            FoldsData(str(lists.store.folder), 1, folds, assignment=str(source)).splits(0)

    refused("is 5, but .* has 3 folds", folds=5)
    refused("is not a JSON list", "nowhere/at/all")
    refused("is not a JSON list", tmp_path)
    file.write_text(json.dumps([*FOLDS[:2], FOLDS[2][1:]]))
    refused("has no query 'q2'")
    file.write_text(json.dumps([*FOLDS, ["more"]]))
    refused("no judged query of fold 4", folds=4)
    file.write_text(json.dumps([*FOLDS[:2], [*FOLDS[2], "q0"]]))
    refused("'q0' is in folds 1 and 3")
    file.write_text("{}")
    refused("not a list of lists")
    file.write_text("[")
    refused("not JSON")
    refused("not the queries of the fold before", write_runs(tmp_path, shift=2))
