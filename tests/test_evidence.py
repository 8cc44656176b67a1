"""Tables of the documentation equal the saved values; their formulas are checked against the package."""

from __future__ import annotations

import re
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from rerank.evaluation.significance import correct, paired, standard_error
from scripts.evidence import pages, papers, statistics, studies
from scripts.evidence.values import ROOT


def test_pages_show_the_saved_values() -> None:
    assert pages.problems(pages.pages()) == []


@pytest.mark.parametrize("page", ["README.md", "docs/evidence.md", "docs/studies/losses.md"])
def test_problems_name_a_changed_table(page: str) -> None:
    texts = pages.pages()
    number = re.findall(r"\.\d{4}", pages.BLOCK.search(texts[page])[3])[0]
    texts[page] = texts[page].replace(number, number[:-1] + str((int(number[-1]) + 1) % 10))
    assert any(page in line for line in pages.problems(texts))


def test_problems_name_a_number_without_saved_values() -> None:
    texts = pages.pages()
    texts["docs/evidence.md"] += "\nFusing gains .1234.\n"
    assert pages.problems(texts) == ["docs/evidence.md: .1234 is in no table"]


def test_evidence_does_not_import_the_package() -> None:
    code = "import sys, scripts.evidence.pages; sys.exit('rerank' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("name", ["SciFact", "DL 2019", "Cranfield", "Vaswani"])
def test_difference_equals_the_packages(name: str) -> None:
    for row, against in (("TwinSigmoid", "LambdaLoss"), ("TwinSigmoid + first stage", "first stage")):
        ours, theirs = studies.trained(name, row), studies.trained(name, against)
        folds = pd.factorize(ours.index.get_level_values(0))[0]
        gaps, folds = paired(ours.to_numpy().T, theirs.reindex(ours.index).to_numpy().T, folds)
        one = statistics.difference(ours, theirs)
        assert (one.error, one.freedom) == pytest.approx(standard_error(gaps, folds))
        assert one.mean == pytest.approx(gaps.mean())


# Thirteen trials of the BCG vaccine (Colditz et al. 1994): tuberculosis and not, of the vaccinated and the others.
BCG = """4 119 11 128|6 300 29 274|3 228 11 209|62 13536 248 12619|33 5036 47 5761|180 1361 372 1079|8 2537 10 619|
505 87886 499 87892|29 7470 45 7232|17 1699 65 1600|186 50448 141 27197|5 2493 3 2338|27 16886 29 17825"""


def test_pooled_gives_the_published_random_effects() -> None:
    """Viechtbauer (2010), "Conducting meta-analyses in R with the metafor package": tau² .3132, mean -.7145."""
    a, b, c, d = np.array([row.split() for row in BCG.split("|")], dtype=np.float64).T
    y, errors = np.log(a / (a + b)) - np.log(c / (c + d)), np.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))
    one = statistics.pooled([statistics.Found(*each, 9) for each in zip(y, errors, strict=True)])
    assert (one.tau**2, one.mean) == pytest.approx((0.3132, -0.7145), abs=5e-5)


def test_holm_equals_the_packages() -> None:
    p = np.random.default_rng(0).uniform(0, 0.2, 7).tolist()
    assert statistics.holm(p) == pytest.approx(list(correct(p, "holm")))


def test_theirs_are_the_printed_differences() -> None:
    """nDCG@5 of Yu 2020, Table 4; Bruch et al. 2019, Table 1; and, with linear gain, Thonet et al. 2021, Table 2."""
    approx, table = "ApproxNDCG (R4.L)", "yu2020-table4"
    assert papers.theirs(table, approx, table, "ListNet (R4.L)") == pytest.approx(0.4554 - 0.4534)
    bruch = "bruch2019-table1-web30k"
    assert papers.theirs(bruch, "ApproxNDCG", bruch, "ListMLE") == pytest.approx(0.4538 - 0.4256)
    thonet = "mq2008-table2-full"
    assert papers.theirs(thonet, "SmoothI", thonet, "ListNet") == pytest.approx(0.477 - 0.422)
