"""Logistic calibration maximises the likelihood, and refuses data without a maximum."""

from __future__ import annotations

import numpy as np
import pytest

from rerank.errors import UserError
from rerank.evaluation.calibration import Calibration, calibration_error, fit


def drawn(seed: int, n: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Draw scores, and relevance with probability σ(2 s − 1)."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n)
    return scores, rng.random(n) < 1 / (1 + np.exp(1 - 2 * scores))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("scale", "shift"), [(1.0, 0.0), (1e-3, 50.0), (1e4, -3e6)])
def test_fit_solves_the_score_equations(seed: int, scale: float, shift: float) -> None:
    """Residuals sum to 0 at the maximum, also when they are weighted with the scores."""
    scores, relevant = drawn(seed)
    calibration = fit(scale * scores + shift, relevant, 1)
    residuals = calibration(scale * scores + shift) - relevant
    assert residuals.mean() == pytest.approx(0, abs=1e-7)
    assert (residuals * scores).mean() == pytest.approx(0, abs=1e-7)
    assert calibration.n == len(scores)


@pytest.mark.parametrize(
    ("scores", "relevant", "message"),
    [
        ([1, 2, 3], [0, 0, 0], "no relevant candidate at --grade 2"),
        ([1, 2, 3], [1, 1, 1], "no non-relevant candidate at --grade 2"),
        ([1, 2, 3, 4], [0, 0, 1, 1], "separate relevant candidates perfectly"),
        ([1, 2, 3, 4], [1, 0, 1, 0], "higher scores are not more relevant"),
        ([1, 1, 1, 1], [1, 0, 1, 0], "separate|higher scores are not more relevant"),
    ],
)
def test_fit_rejects_data_without_a_maximum(scores: list[float], relevant: list[int], message: str) -> None:
    with pytest.raises(UserError, match=message):
        fit(np.array(scores, float), np.array(relevant, bool), 2)


def test_probabilities_do_not_overflow() -> None:
    assert Calibration(1.0, 0.0, 1, 1)(np.array([-1e5, 0, 1e5])).tolist() == [0, 0.5, 1]


def test_calibration_error_weights_bins_by_candidates() -> None:
    p, relevant = np.array([0.05] * 8 + [1.0] * 2), np.array([False] * 8 + [True, False])
    assert calibration_error(p, relevant) == pytest.approx((8 * 0.05 + 2 * 0.5) / 10)
