r"""Scores as probabilities of relevance: :math:`p = \sigma(a s + b)`, with what was fitted on validation lists."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from rerank.errors import UserError
from rerank.evaluation.calibration import sigmoid
from rerank.storage.arrow import Array


@dataclass(frozen=True)
class Calibration:
    """How scores become probabilities.

    Attributes:
        a: what a score is multiplied by, above 0, so that the order stays.
    """

    a: float
    b: float
    grade: int
    n: int

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Self:
        """Read what a contract says."""
        for name in ("a", "b", "grade", "n"):
            value: Any = saved.get(name)
            kinds = (int,) if name in ("grade", "n") else (int, float)
            number = isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)
            if not number or (name == "a" and not value > 0):
                raise UserError(f"{name}: expected a number{' above 0' if name == 'a' else ''}, not {value!r}")
        return cls(float(saved["a"]), float(saved["b"]), saved["grade"], saved["n"])

    def __call__(self, scores: Array | float) -> Array:
        """Probabilities ``[n]`` float64 of raw scores ``[n]``, in the same order.

        >>> Calibration(2.0, -1.0, 1, 100)(np.array([0.5, 1.0])).round(4).tolist()
        [0.5, 0.7311]
        """
        return sigmoid(self.a * np.asarray(scores, dtype=np.float64) + self.b)
