"""The evidence's pages say what the kept values say, by a script that shares no code with the package."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from rerank.evaluation.crossed import paired, standard_error
from rerank.evaluation.significance import correct, equivalence, smallest_difference
from scripts.evidence import pages, statistics
from scripts.evidence.kept import kept
from tests.conftest import ROOT


def test_every_table_and_number_is_that_of_the_kept_values() -> None:
    assert pages.problems(pages.pages()) == []


@pytest.mark.parametrize("page", ["README.md", "docs/evidence.md", "docs/studies/losses.md"])
def test_what_a_page_has_otherwise_is_named(page: str) -> None:
    texts = pages.pages()
    number = re.findall(r"[+−]\.\d{4}", texts[page])[0]
    texts[page] = texts[page].replace(number, number[:-1] + str((int(number[-1]) + 1) % 10), 1)
    assert any(page in line for line in pages.problems(texts))


def test_a_number_that_nothing_bears_is_named() -> None:
    texts = pages.pages()
    texts["docs/evidence.md"] += "\nFusing gains .1234.\n"
    assert pages.problems(texts) == ["docs/evidence.md: no claim has .1234"]


def test_the_script_does_not_import_the_package() -> None:
    for path in (ROOT / "scripts" / "evidence").glob("*.py"):
        names = re.findall(r"(?m)^ *(?:from|import) (\S+)", path.read_text())
        assert [name for name in names if re.match(r"rerank\b|scripts(?!\.evidence\b)", name)] == []


@pytest.mark.parametrize("name", ["scifact", "dl", "cranfield", "vaswani"])
def test_a_collection_is_as_the_package_has_it(name: str) -> None:
    for row, against in (("TwinSigmoid", "LambdaLoss"), ("TwinSigmoid + first stage", "first stage")):
        ours, theirs = kept(name).table(row), kept(name).table(against)
        gaps, folds = paired(ours.to_numpy().T, theirs.to_numpy().T, pd.factorize(ours.index.get_level_values(0))[0])
        one = statistics.difference(ours, theirs)
        assert (one.error, one.freedom) == pytest.approx(standard_error(gaps, folds))
        assert one.mean == pytest.approx(gaps.mean())
        assert one.finds() == pytest.approx(smallest_difference(one.error, one.freedom))
        assert one.within(0.01) == pytest.approx(equivalence(one.mean, one.error, one.freedom, 0.01))


# Thirteen trials of the BCG vaccine (Colditz et al. 1994): tuberculosis and not, of the vaccinated and the others.
BCG = """4 119 11 128|6 300 29 274|3 228 11 209|62 13536 248 12619|33 5036 47 5761|180 1361 372 1079|8 2537 10 619|
505 87886 499 87892|29 7470 45 7232|17 1699 65 1600|186 50448 141 27197|5 2493 3 2338|27 16886 29 17825"""


def test_random_effects_of_the_published_example() -> None:
    """Viechtbauer (2010), "Conducting meta-analyses in R with the metafor package": tau² .3132, I² 92.22 %, -.7145."""
    a, b, c, d = np.array([row.split() for row in BCG.split("|")], dtype=np.float64).T
    y, errors = np.log(a / (a + b)) - np.log(c / (c + d)), np.sqrt(1 / a - 1 / (a + b) + 1 / c - 1 / (c + d))
    trials = [statistics.Found(*one, 9) for one in zip(y, errors, strict=True)]
    one = statistics.pooled(trials)
    assert (one.tau**2, one.mean, one.heterogeneity) == pytest.approx((0.3132, -0.7145, 0.9222), abs=5e-5)
    combine_effects = pytest.importorskip("statsmodels.stats.meta_analysis").combine_effects
    other = statistics.pooled(trials, "Paule-Mandel")
    theirs = combine_effects(y, errors**2, method_re="iterated", use_t=True)
    assert (other.tau**2, other.mean) == pytest.approx((theirs.tau2, theirs.mean_effect_re))
    assert other.error == pytest.approx(theirs.sd_eff_w_re_hksj)


@pytest.mark.parametrize("estimator", ["REML", "Paule-Mandel"])
def test_random_effects_by_hand(estimator: str) -> None:
    """v = 0.01 each: tau² is the variance of both, 0.02, less 0.01; no spread beyond the errors is none at all."""
    one = statistics.pooled([statistics.Found(0.1, 0.1, 9), statistics.Found(0.3, 0.1, 9)], estimator)
    assert (one.mean, one.tau, one.heterogeneity, one.error) == pytest.approx((0.2, 0.1, 0.5, 0.1))
    assert one.p == pytest.approx(2 * stats.t.sf(2, 1))
    same = statistics.pooled([statistics.Found(0.1, error, 9) for error in (0.1, 0.05, 0.2)], estimator)
    assert (same.mean, same.tau, same.error) == pytest.approx((0.1, 0, 525**-0.5))


@pytest.mark.parametrize("trials", [200, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("tau", [0.0, 0.0084, 0.03])
def test_pooled_intervals_hold_their_level_with_six_collections(tau: float, trials: int) -> None:
    """Of nominal 95: 92 to 100; unequal errors, those of the evidence, and a small tau cost two points."""
    rng, errors = np.random.default_rng(4), np.array([0.058, 0.0083, 0.0095, 0.0049, 0.0029, 0.0029])
    covered = 0
    for _ in range(trials):
        y = 0.02 + tau * rng.standard_normal(6) + errors * rng.standard_normal(6)
        one = statistics.pooled([statistics.Found(*each, 9) for each in zip(y, errors, strict=True)])
        covered += abs(one.mean - 0.02) <= one.half
    assert covered / trials >= 0.925 - 3 * np.sqrt(0.07 / trials)


def test_holm() -> None:
    p = np.random.default_rng(0).uniform(0, 0.2, 7).tolist()
    assert statistics.holm(p) == pytest.approx(list(correct(p, "holm")))


def test_dl19s_table_has_the_means_of_its_kept_values() -> None:
    text = (ROOT / "docs" / "text.md").read_text().partition("## DL19, cross-validated")[2]
    rows = re.findall(r"^\| (.+?)(?: \(baseline\))? \| (.* ± .*) \|$", text, re.MULTILINE)
    values = kept("losses", ROOT / "configs" / "dl19" / "kept")
    assert len(rows) == 9 and {row for row, _ in rows} == {*values.methods()}
    for row, cells in rows:
        shown = [float(mean) for mean in re.findall(r"(\d\.\d+) ±", cells)]
        tables = [values.table(row, measure) for measure in ("nDCG@10", "AP(rel=2)", "RR(rel=2)")]
        assert shown == [round(float(table.to_numpy().mean()), 4) for table in tables]
