"""Training, validation and test lists: several folders, held-out shares, given folds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pandas as pd
import pytest

from rerank import evaluate
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.lists.columns import named_files
from rerank.lists.data import FoldsData, ListsData, check_disjoint, hold_out
from rerank.retrieval import read_run
from tests.builders import make_lists, make_lists_with_added
from tests.lists.test_neighbours import questions


def test_hold_out_leaves_out_unjudged_queries_of_a_held_out_text() -> None:
    """It has nothing to validate by, and training on it would be training on a validation query."""
    frame = questions(["a", "b", "a", "b"]).to_dataframe().drop(columns="grade")
    lists = Lists.from_dataframe(frame, qrels={"q0": {"d": 1}, "q1": {"d": 1}})
    train, validation = hold_out(lists, 0.5, 1)
    assert validation is not None and len(validation) == 1
    assert {query for query in ("q0", "q1", "q2", "q3") if query not in train.query_ids} in ({"q0", "q2"}, {"q1", "q3"})
    assert validation.query_ids[0] in ("q0", "q1")


def test_hold_out_refuses_to_hold_out_all() -> None:
    with pytest.raises(UserError, match=r"data\.validation_fraction: leaves no query to train on"):
        hold_out(questions(["a", "a", "a"]), 0.1, 1)


def test_lists_of_another_collection_may_use_the_same_ids(caplog: pytest.LogCaptureFixture) -> None:
    heat = questions(["heat"])
    check_disjoint(heat, {"test": questions(["drag"])})
    assert "1 queries of the test lists have the id of a training query, such as q0, but another text" in caplog.text
    for alike in (questions(["Heat"]), heat):
        with pytest.raises(UserError, match="1 of 1 queries are in the training lists, too"):
            check_disjoint(heat, {"test": alike})


def test_folds_data_refuses_too_few_groups(tmp_path: Path) -> None:
    questions(["a", "b", "a"]).save(tmp_path / "lists")
    with pytest.raises(UserError, match="has too few groups of queries for 3 folds"):
        FoldsData(str(tmp_path / "lists"), 1, 3, leakage_groups="none").splits(1)


@pytest.mark.parametrize("share", [0, 0.25, 0.5])
@pytest.mark.parametrize("named", [False, True])
def test_lists_data_refuses_shared_queries(tmp_path: Path, share: float, named: bool) -> None:
    """All are counted at once, before any are held out: by id and, under other ids, by text."""
    texts = [f"how do I fix it, question {i}" for i in range(20)]
    everything = questions(texts)
    for name, rows in (("train", range(10)), ("validation", range(10, 15)), ("test", [*range(7, 12), 15, 16])):
        everything.select([*rows]).save(tmp_path / name)
    validation = str(tmp_path / "validation") if named else None
    count, where = (5, "training or validation") if named else (3, "training")
    data = {"train": str(tmp_path / "train"), "validation": validation, "validation_fraction": share}
    with pytest.raises(UserError) as error:
        ListsData(**data, test=str(tmp_path / "test")).splits(1)
    assert re.match(
        rf"test: {count} of 7 queries are in the {where} lists, too, such as 'how do I fix it, .*' \(id q7\); leave",
        str(error.value),
    )


def test_splits_hide_added_documents_except_in_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists = make_lists_with_added(tmp_path)
    assert lists.with_added().size > lists.size
    monkeypatch.setattr("rerank.lists.data.check_disjoint", lambda train, others: None)  # one folder is enough here
    folder = str(lists.store.folder)
    own, share = ListsData(folder, validation=folder, test=folder), ListsData(folder, validation_fraction=0.3)
    for data, held in ((own, 2), (share, 1), (FoldsData(folder, fold=1, folds=3), 2)):
        splits = data.splits(1)
        assert splits.train.lengths.max() > 2, "training sees what was added"
        parts = [part for part in (splits.validation, splits.test) if part is not None]
        assert [{*part.lengths.tolist()} for part in parts] == [{2}] * held


FOLDS = [["q0", "q3", "q6", "q9"], ["q1", "q4", "q7", "q10"], ["q2", "q5", "q8", "q11"]]


@pytest.mark.parametrize("fold", [1, 2, 3])
def test_folds_data_assigns_folds(lists: Lists, tmp_path: Path, fold: int) -> None:
    source = str(tmp_path / "folds.json")
    Path(source).write_text(json.dumps([*FOLDS[:2], [*FOLDS[2], "unknown"]]))
    splits = FoldsData(str(lists.store.folder), fold, folds=3, assignment=source).splits(0)
    assert splits.validation is not None and splits.test is not None
    before, after = {1: (3, 2), 2: (1, 3), 3: (2, 1)}[fold]
    assert set(splits.test.query_ids) == set(FOLDS[fold - 1])
    assert set(splits.validation.query_ids) == set(FOLDS[before - 1])
    assert set(splits.train.query_ids) == set(FOLDS[after - 1])


@pytest.mark.parametrize(("number", "left"), [("bm25", 2), ("clicks", 3)])
def test_depth_cuts_only_ordered_lists(number: str, left: int, tmp_path: Path) -> None:
    """Numbers by which no list is sorted are features, and a cut would be of whichever came first."""
    numbers = [3, 2, 1] * 4 if number == "bm25" else [5, 8, 1] * 4
    rows = {"query_id": [f"q{i // 3}" for i in range(12)], "doc_id": list(range(12)), number: numbers}
    Lists.from_dataframe(pd.DataFrame(rows | {"grade": [0, 0, 1] * 4})).save(tmp_path / "lists")
    folder = str(tmp_path / "lists")
    by_folds = FoldsData(folder, 1, 3, depth=2).splits(1)
    by_share = ListsData(folder, validation_fraction=0.5, depth=2).splits(1)
    for lists in (by_folds.validation, by_folds.test, by_share.validation):
        assert lists is not None and set(lists.lengths.tolist()) == {left}


def test_folds_data_refuses_bad_assignments(lists: Lists, tmp_path: Path) -> None:
    file = tmp_path / "folds.json"
    file.write_text(json.dumps(FOLDS))

    def refused(message: str, source: str | Path = file, folds: int = 3) -> None:
        with pytest.raises(UserError, match=message):
            FoldsData(str(lists.store.folder), 1, folds, assignment=str(source)).splits(0)

    refused("is 5, but .* has 3 folds", folds=5)
    refused("is neither a JSON file nor", "nowhere/at/all")
    file.write_text(json.dumps([*FOLDS[:2], FOLDS[2][1:]]))
    refused("has no query 'q2'")
    file.write_text(json.dumps([*FOLDS, ["more"]]))
    refused("no judged query of fold 4", folds=4)
    file.write_text(json.dumps([*FOLDS[:2], [*FOLDS[2], "q0"]]))
    refused("'q0' is in several folds")
    file.write_text("[1]")
    refused("not a JSON list of lists")


def test_lists_data_joins_folders(tmp_path: Path) -> None:
    rows = make_lists(tmp_path / "made").to_dataframe().fillna({"grade": 0})
    shard = rows["query_id"].factorize()[0] // 4
    for name, some in [("whole", rows), *((f"part-{i}", rows[shard == i]) for i in range(3))]:
        some.to_parquet(tmp_path / f"{name}.parquet", index=False)
        words = ["--records", f"{tmp_path}/{name}.parquet", "--output", f"{tmp_path}/lists/{name}"]
        assert main(["retrieve", *words]) == 0
    folder = f"{tmp_path}/lists"
    ways = (f"{folder}/whole", [f"{folder}/part-{i}" for i in range(3)])
    whole, parts = (ListsData(way, validation_fraction=0.0).splits(1).train for way in ways)
    assert whole.size == len(rows)
    pd.testing.assert_frame_equal(parts.to_dataframe(), whole.to_dataframe())


def test_paths_expand_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    make_lists(tmp_path)
    (tmp_path / "x.trec").write_text("q0 Q0 d0 1 2.0 t\n")
    assert len(Lists.open("~/lists")) == 12
    assert ListsData("~/lists", validation_fraction=0).splits(1).train.store.folder == tmp_path / "lists"
    assert named_files(["teacher=~/x.trec"]) == {"teacher": str(tmp_path / "x.trec")}
    assert list(read_run("~/x.trec")) == ["q0"]
    assert evaluate("~/lists", "bm25", "RR") == evaluate(tmp_path / "lists", "bm25", "RR")
