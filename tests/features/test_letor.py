from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from rerank.errors import UserError
from rerank.features import letor
from rerank.features.letor import LetorData, letor_lists, open_lists
from rerank.lists import Lists
from rerank.storage.arrow import Array
from rerank.storage.files import COMPRESSED
from tests.builders import write_packed


@pytest.fixture(autouse=True)
def cache(home: Path) -> Path:
    return home / "letor"


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def rows(lists: Lists) -> list[tuple[str, str, int, list[float]]]:
    """Query, document, grade and features of every candidate."""
    queries = np.repeat(lists.query_ids, lists.lengths)
    features = lists.matrix(["features"]).tolist()
    return list(zip(queries, lists.document_ids(lists.documents), lists.grades.tolist(), features, strict=True))


def columns(lists: Lists) -> Array:
    return lists.matrix(["features"])


def test_letor_lists_keep_the_order_of_the_file(tmp_path: Path) -> None:
    file = write(
        tmp_path / "train.txt",
        "# a comment\n"
        "2 qid:7 1:0.5 2:-1e-3 3:4 #docid = GX-1 inc = 1 prob = 0.5\n"
        "\n"
        "0\tqid:7  3:2 #docid=2 \r\n"
        "1 qid:a 2:1 # docid=GX-1",
    )
    lists = letor_lists(file)
    half = float(np.float32(-1e-3))
    assert rows(lists) == [("7", "GX-1", 2, [0.5, half, 4]), ("7", "2", 0, [0, 0, 2]), ("a", "GX-1", 1, [0, 1, 0])]
    assert columns(lists).dtype == np.float32
    assert lists.store.manifest["retriever"] == {}
    assert lists.store.column_names == ["features"]
    assert lists.store.order is None
    with pytest.raises(UserError, match="nothing ranked these lists"):
        lists.run()
    assert lists.store.documents.column("doc_id").to_pylist() == ["GX-1", "2"], "each document once"
    assert rows(lists.select([1]))[0][:2] == ("a", "GX-1")


@pytest.mark.parametrize("zero_based", [True, False])
@pytest.mark.parametrize("share", [1.0, 0.2])
def test_letor_lists_equal_scikit_learn(tmp_path: Path, zero_based: bool, share: float, monkeypatch) -> None:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 13)) * (rng.random((400, 13)) < share)
    features[17, [0, 12]] = 3  # so that the sparse file has the first and the last feature as well
    grades, queries = rng.integers(0, 5, 400), np.sort(rng.integers(0, 30, 400))
    file = str(tmp_path / "train.txt")
    dump_svmlight_file(features, grades, file, query_id=queries, zero_based=zero_based)
    theirs, labels, query_ids = load_svmlight_file(file, query_id=True, zero_based=zero_based)
    monkeypatch.setattr(letor, "read_blocks", lambda path, read=letor.read_blocks: read(path, 5000))
    lists = letor_lists(Path(file))
    assert np.array_equal(columns(lists), theirs.toarray().astype(np.float32))
    assert lists.grades.tolist() == labels.tolist()
    assert np.repeat(lists.query_ids, lists.lengths).tolist() == [str(q) for q in query_ids]
    assert lists.store.entry("features").names == tuple(map(str, range(not zero_based, 13 + (not zero_based))))


def made_file() -> str:
    """Widths that grow, a feature 0 that comes late, queries in two places."""
    rng = np.random.default_rng(1)
    text = ""
    for i in range(300):
        chosen = rng.choice(np.arange(1, 2 + i // 30), size=1 + i // 60, replace=False)
        numbers = {*chosen.tolist(), *([0] if i > 200 else [])}
        text += f"{i % 3} qid:{i // 7 % 30} " + " ".join(f"{j}:{j + i / 8}" for j in sorted(numbers))
        text += f" # docid = D{i}\n"
    return text


@pytest.mark.parametrize(("ending", "size"), [("", 50), ("", 1000), *((ending, 1000) for ending in COMPRESSED)])
def test_letor_lists_ignore_blocks_and_compression(
    tmp_path: Path, size: int, ending: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    text = made_file()
    path = write_packed(tmp_path / f"train.txt{ending}", text)
    assert LetorData(str(tmp_path)).files()["train"] == path
    expected = rows(letor_lists(write(tmp_path / "plain.txt", text + "\n")))  # another file, or the cache would answer
    monkeypatch.setattr(letor, "read_blocks", lambda path, read=letor.read_blocks: read(path, size))
    assert rows(letor_lists(path)) == expected
    assert "13 queries are in several places of the file (joined)" in caplog.text


BAD = {
    "-1 qid:1 1:1": "label -1; expected a whole number from 0 to 30",
    "1 1:1": "expected the query after the label, and spaces between, as in '2 qid:10 1:0.5",
    "1 qid:1 1:nan": "a feature is not a number; leave missing ones out",
    "1 qid:1 1:1 2:": "could not convert string to float: b''; expected features in ascending order",
    "1 qid:1\u00a01:0.5 2:0.1": "expected the query after the label, and spaces between",
    "1 qid:1 99999:1": "n_features was set to 10001, but input file contains 100000 features",
    "1 qid:1 99999999999:1": "value too large to convert to int",
}


@pytest.mark.parametrize("bad", BAD)
def test_letor_lists_name_file_and_line_of_faults(
    tmp_path: Path, bad: str, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(letor, "read_blocks", lambda path, read=letor.read_blocks: read(path, 40))
    file = write(tmp_path / "train.txt", "1 qid:1 1:1 # fine\n\n" * 20 + bad + "\n1 qid:1 1:1\n" * 20)
    with pytest.raises(UserError) as error:
        letor_lists(file)
    assert str(error.value).startswith(f"{file}:41: {BAD[bad]}")
    assert not [found for found in cache.iterdir() if found.is_dir() and found.name != "hashes"], "nothing half-written"


def test_letor_lists_count_values_beyond_float32_as_missing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    largest = "179769313486231570" + "0" * 291
    text = f"1 qid:1 1:{largest} 2:1\n0 qid:1 1:2 2:-1.797e308\n0 qid:1 1:3.4e38 2:4\n"
    lists = letor_lists(write(tmp_path / "train.txt", text))
    assert columns(lists).tolist() == [[0, 1], [2, 0], [float(np.float32(3.4e38)), 4]]
    assert "2 values are beyond float32" in caplog.text


def test_letor_lists_parse_a_file_again_when_it_changes(tmp_path: Path) -> None:
    file = write(tmp_path / "train.txt", "1 qid:1 1:1\n")
    first = letor_lists(file)
    made = (first.store.folder / "documents.arrow").stat()
    assert letor_lists(file).store.folder == first.store.folder
    assert (first.store.folder / "documents.arrow").stat() == made
    write(file, "1 qid:1 1:2\n")  # of the same size
    assert columns(letor_lists(file)).tolist() == [[2]]
    other = write(tmp_path / "other" / "train.txt", "1 qid:1 1:3\n")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    assert columns(letor_lists(other)).tolist() == [[3]], "of the same name, size and time"


def test_open_lists_adds_features_of_the_model_that_a_file_lacks(tmp_path: Path) -> None:
    file = write(tmp_path / "new.txt", "1 qid:1 1:1\n")
    lists = open_lists(file, ["features/1", "features/3", "bm25"])
    assert columns(lists).tolist() == [[1, 0, 0]]
    assert rows(open_lists(lists.store.folder)) == rows(lists)
    assert columns(open_lists(file, ["features/0"])).tolist() == [[0, 1]]


def fold(folder: Path, train: str, vali: str | None, test: str | None) -> Path:
    for name, text in {"train": train, "vali": vali, "test": test}.items():
        if text is not None:
            write(folder / f"{name}.txt", text)
    return folder


def parts(folder: Path, **options: Any) -> list[Lists]:
    """Training lists, and validation and test lists where there are some."""
    splits = LetorData(str(folder), **options).splits(0)
    return [lists for lists in (splits.train, splits.validation, splits.test) if lists is not None]


def test_splits_require_the_features_of_the_training_file(tmp_path: Path) -> None:
    fold(tmp_path, "1 qid:1 1:1 3:1\n", "1 qid:2 1:5\n", "1 qid:3 2:6\n")
    assert [columns(part).tolist() for part in parts(tmp_path)[1:]] == [[[5, 0, 0]], [[0, 6, 0]]]
    for index in (4, 0):
        fold(tmp_path, "1 qid:1 1:1 3:1\n", "1 qid:2 1:5\n", f"0 qid:3 1:1\n1 qid:3 {index}:6\n")
        first, last = min(index, 1), max(index, 3)
        with pytest.raises(UserError, match=rf"test\.txt: has features {first} to {last}, but .*train\.txt has"):
            parts(tmp_path)
    fold(tmp_path, "1 qid:1 0:1 3:1\n", "1 qid:2 1:5\n", "1 qid:3 2:6\n")
    assert columns(parts(tmp_path)[2]).tolist() == [[0, 0, 6, 0]]


def test_splits_hold_out_training_queries_without_a_validation_file(tmp_path: Path) -> None:
    folder = fold(tmp_path, "".join(f"1 qid:{q} 1:{q}\n" for q in range(40)), None, "1 qid:x 1:1\n")
    one, other = (LetorData(str(folder)).splits(seed) for seed in (0, 1))
    assert one.validation is not None
    assert (len(one.train), len(one.validation)) == (30, 10)
    assert sorted([*one.train.query_ids, *one.validation.query_ids]) == sorted(map(str, range(40)))
    assert set(one.validation.qrels or {}) == set(one.validation.query_ids)
    assert other.train.query_ids != one.train.query_ids
    assert LetorData(str(folder), validation_fraction=0).splits(0).validation is None
    named = LetorData(train=str(folder / "train.txt"), test=str(folder / "test.txt")).splits(0)
    assert named.train.query_ids == one.train.query_ids


def test_min_documents_leaves_out_short_lists(tmp_path: Path) -> None:
    text = "".join(f"{i % 2} qid:{qid} 1:{i}\n" for qid, size in ((1, 1), (2, 3), (3, 2)) for i in range(size))
    folder = fold(tmp_path, text, text.replace("qid:", "qid:v"), text.replace("qid:", "qid:t"))
    found = parts(folder, min_documents=2)
    assert [lists.query_ids for lists in found] == [["2", "3"], ["v2", "v3"], ["t2", "t3"]]
    assert set(found[2].qrels or {}) == {"t2", "t3"}
    assert len(parts(folder)[0]) == 3


def test_path_may_be_the_beginning_of_file_names(tmp_path: Path) -> None:
    for name, text in (("train", "1 qid:1 1:1\n"), ("valid", "0 qid:2 1:2\n"), ("test", "2 qid:3 1:3\n")):
        write(tmp_path / f"set1.{name}.txt", text)
    assert [lists.query_ids for lists in parts(tmp_path / "set1")] == [["1"], ["2"], ["3"]]
    with pytest.raises(UserError, match=r"no .*set2\.train\.txt"):
        parts(tmp_path / "set2")


def test_letor_data_refuses_wrong_arguments(tmp_path: Path) -> None:
    fold(tmp_path / "Fold1", "1 qid:1 1:1\n", "1 qid:1 1:1\n", None)
    for arguments, said in (
        ({}, r"data\.path: no .*train\.txt .*; choose data.fold among Fold1"),
        ({"fold": 6}, r"data\.path: no .*Fold6\.train\.txt .*; choose data.fold among Fold1"),
        ({"fold": 1}, "validation: 1 of 1 queries are in the training lists, too, such as .1.; leave them out"),
    ):
        with pytest.raises(UserError, match=said):
            parts(tmp_path, **arguments)
    with pytest.raises(UserError, match=r"no .*[/.]train\.txt"):
        parts(tmp_path / "Fold2")
    for wrong in ({}, {"path": "a", "train": "b"}, {"train": "b", "fold": 1}, {"path": "a", "test": "b"}):
        with pytest.raises(ValueError, match=r"\(path\)|data\.path"):
            LetorData(**wrong)


def test_documents_are_named_by_their_rows_unless_every_row_has_an_id(tmp_path: Path) -> None:
    text = "0 qid:1 1:1 # docid = X\n1 qid:1 1:2 # inc = 1\n0 qid:2 1:3 # docid = X\n"
    lists = letor_lists(write(tmp_path / "train.txt", text))
    assert lists.document_ids(lists.documents) == ["1", "2", "3"]
    text = text.replace("inc = 1", "docid = X")
    with pytest.raises(UserError, match=r"other\.txt: query '1' has document 'X' twice; keep one row"):
        letor_lists(write(tmp_path / "other.txt", text))
