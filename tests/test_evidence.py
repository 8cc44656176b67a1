"""The evidence's pages say what the kept values say, by a script that shares no code with the package."""

from __future__ import annotations

import ast
import re

import numpy as np
import pytest

from rerank.evaluation.crossed import paired, standard_error
from rerank.evaluation.pooling import Estimator, random_effects
from rerank.evaluation.power import smallest_difference
from rerank.evaluation.significance import correct, equivalence
from rerank.experiments.pool import read_results
from scripts.evidence import pages, statistics
from scripts.evidence.kept import KEPT, kept
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
        tree = ast.parse(path.read_text())
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        ours = {"scripts.evidence", *(f"scripts.evidence.{one.stem}" for one in path.parent.glob("*.py"))}
        assert {name.split(".")[0] for name in names - ours}.isdisjoint({"rerank", "scripts"})


@pytest.mark.parametrize("name", ["scifact", "dl", "cranfield", "vaswani"])
def test_a_collection_is_as_the_package_has_it(name: str) -> None:
    results = read_results(name, KEPT / f"{name}.jsonl.xz")
    values = results.values
    for row, against in (("TwinSigmoid", "LambdaLoss"), ("TwinSigmoid + first stage", "first stage")):
        gaps, folds = paired(values[row]["nDCG@10"], values[against]["nDCG@10"], results.folds)
        one = statistics.difference(kept(name).table(row), kept(name).table(against))
        assert (one.error, one.freedom) == pytest.approx(standard_error(gaps, folds))
        assert one.mean == pytest.approx(gaps.mean())
        assert one.finds(4) == pytest.approx(smallest_difference(one.error, one.freedom, 4))
        assert one.within(0.01) == pytest.approx(equivalence(one.mean, one.error, one.freedom, 0.01))


@pytest.mark.parametrize("estimator", ["REML", "Paule-Mandel"])
def test_pools_are_as_the_package_has_them(estimator: Estimator) -> None:
    rng = np.random.default_rng(0)
    for k in (2, 3, 6):
        means, errors = rng.normal(0, 0.02, k), rng.uniform(0.003, 0.05, k)
        ours = statistics.pooled([statistics.Found(*one, 9) for one in zip(means, errors, strict=True)], estimator)
        theirs = random_effects(means, errors, estimator)
        assert (ours.mean, ours.error, ours.p) == pytest.approx(
            (theirs.mean, theirs.error, theirs.p), rel=1e-3, abs=1e-7
        )
        assert ours.tau == pytest.approx(theirs.tau, rel=1e-3, abs=1e-4)
    p = rng.uniform(0, 0.2, 7).tolist()
    assert statistics.holm(p) == pytest.approx(list(correct(p, "holm")))
