"""What goes out comes back equal, whatever the lists, in every format."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.commands.cli import main
from rerank.lists import Lists, export
from rerank.retrieval import read_run
from tests.builders import make_lists, make_lists_with_added

NUMBERS = st.floats(width=32, allow_infinity=False)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)


@st.composite
def frames(draw: st.DrawFn) -> pd.DataFrame:
    """Lists with awkward texts and numbers, with or without texts, grades and columns of several numbers."""
    pairs = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6)), min_size=1, max_size=25, unique=True))
    pairs.sort(key=lambda pair: pair[0])
    frame = pd.DataFrame({"query_id": [f"0{q}" for q, _ in pairs], "doc_id": [f"{d}e5" for _, d in pairs]})
    if draw(st.booleans()):
        asked, told = draw(st.lists(TEXTS, min_size=5, max_size=5)), draw(st.lists(TEXTS, min_size=7, max_size=7))
        frame["query"], frame["text"] = [asked[q] for q, _ in pairs], [told[d] for _, d in pairs]
    if draw(st.booleans()):
        frame["grade"] = draw(st.lists(st.integers(0, 32_767), min_size=len(pairs), max_size=len(pairs)))
    names = draw(st.sampled_from([[], ["bm25"], ["bm25", "splade"], ["bm25", "f/1", "f/2"]]))
    for name in names:
        frame[name] = np.array(draw(st.lists(NUMBERS, min_size=len(pairs), max_size=len(pairs))), np.float32)
    return frame


def read_json_lines(path: Path) -> pd.DataFrame:
    return pd.DataFrame([json.loads(line) for line in path.read_text().split("\n")[:-1]])


READERS = {
    "x.parquet": pd.read_parquet,
    "x.jsonl": read_json_lines,
    "x": lambda path: datasets.load_from_disk(str(path)).to_pandas(),
}


@pytest.mark.parametrize("name", READERS)
@settings(max_examples=40)
@given(frame=frames(), rows=st.integers(1, 30))
def test_what_goes_out_comes_back(
    tmp_path_factory: pytest.TempPathFactory, name: str, frame: pd.DataFrame, rows: int
) -> None:
    path = tmp_path_factory.mktemp("x") / name
    lists = Lists.from_dataframe(frame)
    whole, export.ROWS = export.ROWS, rows
    try:
        export.export(lists, path)
    finally:
        export.ROWS = whole
    found = READERS[name](path)
    back = Lists.from_dataframe(found)
    assert list(found.columns[:2]) == ["query_id", "doc_id"]
    assert back.store.manifest["candidates"] == lists.store.manifest["candidates"]
    assert back.store.has_text == lists.store.has_text
    assert back.qrels == lists.qrels and back.store.order == lists.store.order
    assert back.store.column_names == lists.store.column_names
    for column in lists.store.column_names:
        np.testing.assert_array_equal(back.matrix([column]), lists.matrix([column]))
        assert back.store.entry(column).names == lists.store.entry(column).names
    pd.testing.assert_frame_equal(back.to_dataframe(), lists.to_dataframe())


def test_added_documents_stay_hidden(tmp_path: Path) -> None:
    lists = make_lists_with_added(tmp_path)
    assert main(["export", "--lists", str(tmp_path / "lists"), "--output", str(tmp_path / "x.parquet")]) == 0
    frame = pd.read_parquet(tmp_path / "x.parquet")
    assert len(frame) == lists.size < lists.with_added().size
    pd.testing.assert_frame_equal(frame, lists.to_dataframe(), check_dtype=False)


def test_a_run_of_any_column(tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    values = np.random.default_rng(0).integers(0, 5, lists.size) / 2
    lists.store.add_column("teacher", np.where(values > 1.5, np.nan, values))
    words = ["export", "--lists", str(tmp_path / "lists"), "--output", str(tmp_path / "x.trec")]
    assert main([*words, "--column", "teacher"]) == 0
    frame = Lists.open(tmp_path / "lists").to_dataframe().dropna(subset="teacher")
    best = frame.sort_values(["teacher", "doc_id"], ascending=False).groupby("query_id")["doc_id"]
    run = read_run(tmp_path / "x.trec")
    assert {query: [s.id for s in ranked] for query, ranked in run.items()} == best.apply(list).to_dict()
    assert main(words) == 0
    assert read_run(tmp_path / "x.trec").keys() == read_run(tmp_path / "lists" / "run.trec").keys()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["x.csv"], "name a file that ends in"),
        (["x.parquet", "--column", "bm25"], "only a run has one column"),
        (["x.trec", "--column", "bm26"], "has no column 'bm26'"),
        (["there"], "exists already"),
        (["lists/candidates.arrow"], "would overwrite what --lists"),
        (["file/x.parquet"], "cannot be written"),
    ],
)
def test_what_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    make_lists(tmp_path)
    monkeypatch.chdir(tmp_path)
    Path("there").mkdir()
    Path("file").touch()
    before = sorted(tmp_path.rglob("*"))
    assert main(["export", "--lists", "lists", "--output", *words]) == 2
    error = capsys.readouterr().err
    assert len(error.splitlines()) == 1 and message in error
    assert sorted(tmp_path.rglob("*")) == before
