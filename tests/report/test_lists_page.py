"""The page of ``rerank lists`` in a real browser."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rerank.evaluation.overview import overview
from rerank.lists import Lists
from rerank.report.lists import shows_runs, write_overview
from tests.builders import make_lists
from tests.report.browser import Page


def test_overlap_is_drawn_and_nothing_is_refused(page: Page, tmp_path: Path) -> None:
    lists = make_lists(tmp_path)
    half = np.where(np.arange(lists.size) % 2, lists.column("bm25"), np.nan)
    lists.store.add_column("splade", half)
    lists = Lists.open(tmp_path / "lists")
    assert shows_runs(lists)
    about = overview(lists, keep_runs=True)
    write_overview(about, tmp_path / "x.html")
    page.size(1280)
    page.open(tmp_path / "x.html")
    cells = page("[...document.querySelectorAll('.heat tbody td')].map((cell) => cell.textContent)")
    assert cells == [f"{100 * value:.0f}%" for value in about.overlap.ravel()] == ["100%", "50%", "100%", "100%"]
    shades = page(
        "[...document.querySelectorAll('.heat tbody td')].map((cell) => getComputedStyle(cell).backgroundColor)"
    )
    assert shades[0] == shades[2] == shades[3] != shades[1]
    assert page("document.querySelectorAll('#charts ~ .charts svg').length") > 0
    assert page("document.querySelector('#run-a').value") != ""
    assert page.complaints() == []
