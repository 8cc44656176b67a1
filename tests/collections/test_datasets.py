from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, DatasetDict, Features, Sequence, Value

from rerank.collections import Query, open_collection
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists import Lists

ROWS = [
    {"qid": 7, "question": "why", "pid": "a", "passage": "so", "score": 2.0, "clicks": 0.5},
    {"qid": 7, "question": "why", "pid": "b", "passage": "no", "score": 1.0, "clicks": None},
]
COLUMNS = ["query=question", "doc_id=pid", "text=passage"]


def read(name: str, **options: Any) -> list[tuple[Query, dict[str, Any]]]:
    lists = open_collection(f"datasets:{name}", **options).lists()
    return [(query, {hit.id: (hit.text, hit.scores) for hit in hits}) for query, hits in lists]


READ = [(Query("7", "why"), {"a": ("so", {"score": 2.0, "clicks": 0.5}), "b": ("no", {"score": 1.0})})]


def test_a_saved_data_set_is_read_as_rows(tmp_path: Path) -> None:
    Dataset.from_list(ROWS).save_to_disk(tmp_path / "one")
    assert read(f"{tmp_path}/one", columns=COLUMNS) == READ


def test_a_split_is_named_where_there_are_several(tmp_path: Path) -> None:
    two = {"train": Dataset.from_list(ROWS), "test": Dataset.from_list(ROWS[:1])}
    DatasetDict(two).save_to_disk(tmp_path / "two")
    DatasetDict(train=two["train"]).save_to_disk(tmp_path / "one")
    assert read(f"{tmp_path}/two/train", columns=COLUMNS) == read(f"{tmp_path}/one", columns=COLUMNS) == READ
    assert len(read(f"{tmp_path}/two/test", columns=COLUMNS)[0][1]) == 1
    with pytest.raises(UserError, match=r"has the splits train, test; name one, datasets:.*/SPLIT"):
        open_collection(f"datasets:{tmp_path}/two")
    with pytest.raises(UserError, match=r"no split 'tests' \(did you mean 'test'\?\); there are test, train"):
        open_collection(f"datasets:{tmp_path}/two/tests")


def test_selected_rows_are_what_is_read(tmp_path: Path) -> None:
    data = Dataset.from_list(ROWS)
    data.save_to_disk(tmp_path / "all")
    data.select([1]).save_to_disk(tmp_path / "some")
    assert list(read(f"{tmp_path}/some", columns=COLUMNS)[0][1]) == ["b"]
    of = {open_collection(f"datasets:{tmp_path}/{name}").fingerprint() for name in ("all", "some")}
    assert len(of) == 2


@pytest.mark.parametrize("together", [True, False])
def test_a_row_may_be_a_list(tmp_path: Path, together: bool) -> None:
    hit = {"pid": Value("string"), "passage": Value("string"), "score": Value("float32")}
    features = Features({"qid": Value("int64"), "question": Value("string")})
    features["passages"] = Sequence(hit) if together else [hit]
    given = [{"pid": row["pid"], "passage": row["passage"], "score": row["score"]} for row in ROWS]
    passages: Any = {key: [row[key] for row in given] for key in hit} if together else given
    rows = [{"qid": 7, "question": "why", "passages": passages}]
    Dataset.from_list(rows, features=features).save_to_disk(tmp_path / "lists")
    found = read(f"{tmp_path}/lists", columns=["hits=passages", *COLUMNS])
    assert found == [(Query("7", "why"), {"a": ("so", {"score": 2.0}), "b": ("no", {"score": 1.0})})]


def test_the_hub_without_a_network_is_one_line() -> None:
    for name in ("nobody/nothing", "nobody/nothing:train", "nobody/nothing:config:train"):
        with pytest.raises(UserError, match="cannot be loaded from the hub") as error:
            open_collection(f"datasets:{name}")
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="expected NAME:SPLIT"):
        open_collection("datasets:a:b:c:d")


def test_bad_data_sets_are_one_line(tmp_path: Path) -> None:
    Dataset.from_list([ROWS[0], ROWS[1] | {"passage": None}]).save_to_disk(tmp_path / "gap")
    with pytest.raises(UserError, match=r"gap: row 2: document 'b' has no text"):
        read(f"{tmp_path}/gap", columns=COLUMNS)
    (tmp_path / "other").mkdir()
    for name in ("other", "nowhere"):
        with pytest.raises(UserError, match=f"{name}: not a data set that was saved whole") as error:
            open_collection(f"datasets:{tmp_path}/{name}")
        assert "\n" not in str(error.value)
    arrow = next((tmp_path / "gap").glob("*.arrow"))
    arrow.write_bytes(arrow.read_bytes()[:200])
    with pytest.raises(UserError, match="gap: not a data set that was saved whole"):
        read(f"{tmp_path}/gap", columns=COLUMNS)


def test_what_is_no_fault_of_the_data_is_not_said_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise MemoryError

    Dataset.from_list(ROWS).save_to_disk(tmp_path / "one")
    monkeypatch.setattr("datasets.load_from_disk", fail)
    monkeypatch.setattr("datasets.load_dataset", fail)
    for name in (str(tmp_path / "one"), "nobody/nothing"):
        with pytest.raises(MemoryError):
            open_collection(f"datasets:{name}")


def test_the_command_takes_columns(tmp_path: Path) -> None:
    Dataset.from_list(ROWS).save_to_disk(tmp_path / "one")
    output = ["--output", str(tmp_path / "lists")]
    assert main(["retrieve", "--collection", f"datasets:{tmp_path}/one", "--columns", *COLUMNS, *output]) == 0
    lists = Lists.open(tmp_path / "lists")
    assert lists.store.column_names == ["clicks", "score"] and lists.query_texts == ["why"]
