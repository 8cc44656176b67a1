"""The notebooks and scripts in ``examples/`` run, and notebooks keep their outputs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import ir_datasets
import pytest

from examples.nano_beir import NAMES, main
from tests.builders import write_collection
from tests.conftest import ROOT

NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))


def outputs(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [output for cell in cells for output in cell.get("outputs", ())]


def test_notebooks_keep_their_outputs() -> None:
    assert NOTEBOOKS
    for path in NOTEBOOKS:
        cells = json.loads(path.read_text())["cells"]
        assert all(cell["execution_count"] for cell in cells if cell["cell_type"] == "code"), path
        kinds = {kind for output in outputs(cells) for kind in output.get("data", ())}
        assert {"image/png", "text/html"} <= kinds, path
        assert not [output for output in outputs(cells) if output["output_type"] == "error"], path
        assert path.stat().st_size < 400_000, path


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # a notebook leaves a gigabyte there
    notebook = nbformat.read(path, 4)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3").execute(cwd=str(tmp_path))
    before = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    after = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for old, new in zip(before, after, strict=True):  # numbers may differ between processors, kinds may not
        assert {kind for one in outputs([old]) for kind in one.get("data", ())} == {
            kind for one in outputs([new]) for kind in one.get("data", ())
        }


@pytest.mark.slow
def test_paper_figures_draws_six_pictures(tmp_path: Path) -> None:
    subprocess.run([sys.executable, ROOT / "examples" / "paper_figures.py", tmp_path / "new"], check=True)
    paths = list((tmp_path / "new").iterdir())
    assert len(paths) == 6
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 10_000 for path in paths)


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
