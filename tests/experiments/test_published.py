"""What pages show of configs/letor/kept: published rankings in docs/papers.md, trees in docs/letor.md."""

from __future__ import annotations

import re

import numpy as np
import pytest

from rerank.evaluation.crossed import crossed_difference
from rerank.experiments.keep import read_kept
from scripts import published
from scripts.evidence.kept import kept
from tests.conftest import ROOT

GAIN = "nDCG(dcg='exp-log2')"
LINEAR = ["P@1", "P@5", "P@10", "nDCG@1", "nDCG@5", "nDCG@10", "nDCG", "AP"]
MEANS = {
    "mq2008-table2-full": ("## MQ2008: the table", LINEAR),
    "ohsumed": ("## OHSUMED", LINEAR),
    "mq2008-figure4": ("Figure 4", LINEAR[:-1]),
    "neuralndcg2021-table3-mq2008": ("**Pobrotyn", [f"{GAIN}@5", f"{GAIN}@10"]),
    "bruch2019-table1-mq2008": ("Table 1**", [f"{GAIN}@1", f"{GAIN}@5", f"{GAIN}@10"]),
    **{f"yu2020-table{n}-mq2008": ("**Yu 2020, Tables", [f"{GAIN}@1", f"{GAIN}@5", f"{GAIN}@10"]) for n in range(4, 8)},
}
"""By the kept file: where its table begins in docs/letor.md, and the table's first measures."""


def mean_of(name: str, row: str) -> float:
    """Over the queries of a kept row that have a relevant document, read without the library's tables."""
    files = read_kept(published.LETOR / "kept" / f"{name}.jsonl.xz")
    contents = [file.content for file in files if file.method == row and "/test-" in file.path]
    which = contents[0]["measures"].index(published.MEASURE)
    values = [value for content in contents for value in content["values"][which]]
    return float(np.mean([value for value in values if value is not None]))


def test_the_page_has_it() -> None:
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    assert "\n".join(published.table(published.CLAIMS)) in page


@pytest.mark.parametrize("row", ["TwinSigmoid", "SmoothI"])
def test_the_page_has_the_differences_of_trees(row: str) -> None:
    page = (ROOT / "docs" / "letor.md").read_text(encoding="utf-8")
    name, cells = "mq2008-trees", []
    for measure in [measure for method, measure in kept(name, published.LETOR / "kept").tables if method == row]:
        one = crossed_difference(*published.differences(name, row, name, "LambdaMART", measure))
        cells.append(f"{one.mean:+.4f} [{one.interval[0]:+.4f}, {one.interval[1]:+.4f}]".replace("0.", "."))
    assert f"| {row} | {' | '.join(cells)} |" in page


@pytest.mark.parametrize("name", MEANS)
def test_the_page_has_the_means_of_what_is_kept(name: str) -> None:
    page = (ROOT / "docs" / "letor.md").read_text(encoding="utf-8")
    start, measures = MEANS[name]
    values = kept(name, published.LETOR / "kept")
    table = re.sub(r"[*†]|<sup>t</sup>| \(baseline\)", "", page.partition(start)[2])
    for row in values.methods():
        cells = re.search(rf"^\|(?: \d \|)? {re.escape(row.removeprefix('SmoothI-'))} \|(.*)", table, re.MULTILINE)
        assert cells, row
        shown = [cell.split()[0] for cell in cells[1].split("|")[: len(measures)]]
        means = [np.nanmean(values.table(row, measure)) for measure in measures]
        assert [float(cell) for cell in shown] == [round(mean, len(shown[0].split(".")[1])) for mean in means], row


def test_published_differences() -> None:
    """Yu 2020, Table 4, and Bruch et al. 2019, Table 1, nDCG@5 of ApproxNDCG, as printed there."""
    assert published.published("yu2020-table4", "ApproxNDCG (R4.L)") == 0.4554
    assert published.published("bruch2019-table1-web30k", "ApproxNDCG") == 0.4538
    assert published.published("mq2008-table2-full", "SmoothI") == 0.477, "with linear gain, as Thonet et al. print it"


def test_ours_is_the_mean_of_the_differences() -> None:
    rows = published.CLAIMS["type 3 − type 1, mean of four measures"]["ours"]
    expected = [mean_of(f"{one}-mq2008", row) - mean_of(f"{two}-mq2008", other) for one, row, two, other in rows]
    assert len(rows) == 4
    assert published.ours(rows).mean == pytest.approx(np.mean(expected), abs=1e-12)


@pytest.mark.parametrize(
    ("mean", "p", "signs", "expected"),
    [
        (0.1, 0.2, [0.1], "open"),
        (0.1, float("nan"), [0.1], "open"),
        (0.1, 0.01, [0.3, 0.1], "yes"),
        (0.1, 0.01, [-0.1], "no"),
        (0.1, 0.01, [-0.1, 0.1], "as some"),
    ],
)
def test_verdicts(mean: float, p: float, signs: list[float], expected: str) -> None:
    assert published.verdict(mean, p, signs) == expected
