from __future__ import annotations

from pathlib import Path

import ir_datasets
import pytest

from examples.nano_beir import NAMES, main
from tests.builders import write_collection


def test_nano_beir_prints_collections_and_their_mean(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [write_collection(tmp_path / name, queries=4, documents=40) for name in ("a", "b")]
    words = [str(tiny_model), "--depth", "10", "--output", str(tmp_path / "lists"), "--collections", *names]
    for _ in range(2):  # again with stored lists
        main(words)
        head, *rows = map(str.split, capsys.readouterr().out.splitlines())
        assert head == ["queries", "bm25", "reranked"]
        assert [row[0] for row in rows] == [*names, "mean"]
        first, second, mean = (float(row[-1]) for row in rows)
        assert mean == pytest.approx((first + second) / 2, abs=1e-4)


def test_nano_beir_names_all_collections() -> None:
    registered = {name.partition("/")[2] for name in ir_datasets.registry._registered if name.startswith("nano-beir/")}
    assert {*NAMES} == registered
