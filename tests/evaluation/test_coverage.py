"""How often intervals hold the truth and tests are wrong, in designs like those of the evidence: docs/evidence.md."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from rerank.evaluation.crossed import Crossed, crossed_difference
from rerank.evaluation.significance import equivalence


class Design(NamedTuple):
    """Queries, seeds and folds, and standard deviations over queries, trainings and of a query with a training."""

    queries: int
    seeds: int
    folds: int
    query: float
    training: float
    residual: float

    def draw(self, rng: np.random.Generator, truth: float, place: int) -> Crossed:
        """What is found where methods differ by ``truth``; differences over queries have heavy tails."""
        folds = np.arange(self.queries) % self.folds
        difference = truth + self.query * rng.standard_t(4, self.queries) / np.sqrt(2)
        difference = difference + self.training * rng.standard_normal((self.seeds, self.folds))[:, folds]
        difference = difference + self.residual * rng.standard_normal((self.seeds, self.queries))
        return crossed_difference(difference, folds, seed=place, resamples=500)


DESIGNS = {
    "SciFact": Design(300, 3, 1, 0.145, 0.08, 0.22),
    "NFCorpus": Design(323, 3, 1, 0.02, 0.012, 0.106),
    "DL": Design(43, 3, 1, 0.035, 0.0, 0.093),
    "Cranfield": Design(225, 1, 5, 0.05, 0.01, 0.0),
    "CISI": Design(76, 3, 5, 0.01, 0.005, 0.025),
    "trainings": Design(200, 3, 5, 0.01, 0.03, 0.05),
}
trials_of = pytest.mark.parametrize("trials", [250, pytest.param(3000, marks=pytest.mark.slow)])


@trials_of
@pytest.mark.parametrize("name", DESIGNS)
def test_intervals_hold_the_truth_as_often_as_they_say(name: str, trials: int) -> None:
    """95 of a hundred. Where seeds matter most, three cannot quite tell how much; the rest counts twice elsewhere."""
    rng = np.random.default_rng(1)
    found = [DESIGNS[name].draw(rng, 0.03, place) for place in range(trials)]
    covered = np.mean([one.interval[0] <= 0.03 <= one.interval[1] for one in found])
    doubt = 3 * np.sqrt(0.05 / trials)
    assert 0.925 - doubt <= covered <= 0.99 + doubt


@trials_of
@pytest.mark.parametrize("name", ["NFCorpus", "CISI", "trainings"])
def test_what_differs_by_the_margin_is_seldom_called_equivalent(name: str, trials: int) -> None:
    """Five of a hundred at most: the size of two one-sided tests; and of what is equal, more are found to be."""
    rng, margin = np.random.default_rng(3), 0.03

    def share(truth: float) -> float:
        found = [DESIGNS[name].draw(rng, truth, place) for place in range(trials)]
        return float(np.mean([equivalence(one.mean, one.error, one.freedom, margin) < 0.05 for one in found]))

    wrong = share(margin)
    assert wrong <= 0.05 + 3 * np.sqrt(0.05 / trials)
    assert share(0.0) > 2 * wrong
