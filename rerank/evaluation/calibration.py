r"""Logistic calibration of scores: :math:`p = \sigma(a s + b)` (Platt 1999, without smoothed targets)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rerank.errors import UserError


@dataclass(frozen=True)
class Calibration:
    """Parameters of a logistic calibration.

    Attributes:
        a: slope, above 0, so that probabilities keep the order of the scores.
        b: intercept.
        grade: lowest relevance label that counts as relevant.
        n: number of candidates it was fitted on.
    """

    a: float
    b: float
    grade: int
    n: int

    def __call__(self, scores: np.ndarray | float) -> np.ndarray:
        """Convert raw scores ``[n]`` to probabilities ``[n]`` float64.

        >>> Calibration(2.0, -1.0, 1, 100)(np.array([0.5, 1.0])).round(4).tolist()
        [0.5, 0.7311]
        """
        return np.exp(-np.logaddexp(0.0, -(self.a * np.asarray(scores, dtype=np.float64) + self.b)))


def fit(scores: np.ndarray, relevant: np.ndarray, grade: int) -> Calibration:
    """Fit a calibration to scores ``[n]`` and relevance ``[n]`` bool by maximum likelihood.

    Raises:
        UserError: if the maximum does not exist, or the slope is not positive.
    """
    from sklearn.linear_model import LogisticRegression

    if relevant.all() or not relevant.any():
        missing = "non-relevant" if relevant.all() else "relevant"
        raise UserError(f"--lists: no {missing} candidate at --grade {grade}; give lists with both kinds")
    if scores[relevant].min() >= scores[~relevant].max():
        raise UserError("--lists: scores separate relevant candidates perfectly, so no slope fits; give more lists")
    centre, spread = scores.mean(), scores.std() or 1.0
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10)
    model.fit(((scores - centre) / spread)[:, None], relevant)
    a = float(model.coef_[0, 0] / spread)
    if not a > 0:
        raise UserError("--lists: higher scores are not more relevant here; check the model and the judgments")
    return Calibration(a, float(model.intercept_[0] - a * centre), grade, len(scores))


def calibration_error(p: np.ndarray, relevant: np.ndarray) -> float:
    """Compute the expected calibration error over ten bins of equal width."""
    bins = np.minimum((10 * p).astype(np.int64), 9)
    return float(np.abs(np.bincount(bins, p - relevant)).sum() / len(p))
