"""Approx: ranks by pairwise sigmoids."""

from __future__ import annotations

from torch import Tensor

from rerank.relaxations.base import Batch, SoftRanks
from rerank.relaxations.pair_ranks import sigmoid_ranks


class Approx(SoftRanks):
    r"""Ranks by pairwise sigmoids (Qin, Liu and Li 2010; Bruch, Zoghi, Bendersky and Najork 2019, Eqs 5 and 6).

    .. math:: r_i = 1 + \sum_{j \ne i} \sigma(\alpha (s_j - s_i)), \quad T_i = \sigma(\beta (k + 1/2 - r_i))

    T is how far document i is within the cut-off k. Tied documents share the mean of their ranks. Only the rows of
    relevant documents are computed, and nothing of size rows x N is kept for the backward pass.

    Args:
        alpha: steepness of the sigmoids over scores; exact as it grows.
        beta: steepness of the sigmoids over ranks (cut-off, AP, RR); None takes alpha.
    """

    def __init__(self, alpha: float = 10.0, beta: float | None = None) -> None:
        if not alpha > 0:
            raise ValueError(f"alpha must be above 0, not {alpha}")
        if beta is not None and not beta > 0:
            raise ValueError(f"beta must be above 0, not {beta}")
        self.alpha = alpha
        self.beta = alpha if beta is None else beta

    def ranks(self, batch: Batch) -> Tensor:
        """The soft ranks, ``[B, R]``."""
        return sigmoid_ranks(batch, self.alpha)
