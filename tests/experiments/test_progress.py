"""How far an experiment is, in a terminal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rerank.experiments.cells import Cell, Group
from rerank.experiments.progress import Progress


def test_the_table_counts_cells_by_method(capsys: pytest.CaptureFixture[str]) -> None:
    cells = [Cell(Group("ListNet", None, seed), {}, Path(f"{seed}"), {}, "AP") for seed in range(4)]
    with Progress({"ListNet": 6, "SmoothI": 6}, live=True) as progress:
        for cell in cells:
            progress.start(cell)
        for cell in cells[:3]:
            progress.end(cell)
        for cell in cells[:2]:
            progress.add(cell, 0.5, 1.0)
        progress.fail(cells[2], "too large")
        progress.measure(cells[0])
    said = capsys.readouterr().err
    assert "failed: ListNet" in said and "too large" in said
    assert "3 of 12 cells" in said
    rows = {row[0]: row[1:] for line in said.splitlines() if (row := re.findall(r"\w+", line))}
    assert rows["ListNet"] == ["6", "1", "2", "1", "1"]
    assert rows["SmoothI"] == ["6"]
