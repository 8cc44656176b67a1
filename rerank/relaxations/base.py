"""The two families of relaxations, the batch of lists that soft ranks see, and exact indicators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal

from rerank.relaxations.order import order_of, ranks_of
from rerank.settings.arguments import Described

if TYPE_CHECKING:
    from torch import Tensor


Adaptive = Literal["adaptive"]
"""Takes a steepness, temperature or strength from the spread of every list's scores; not from a paper."""

FLOOR = 1e-3
"""Smallest spread of scores; closer scores count as nearly tied."""

STEEPNESS = 3.0
"""Steepness of sigmoids over scores, times the spread of a list's scores while that is below 1."""

GainOf = Literal["documents", "ranks"]


def steepness(spread: Tensor) -> Tensor:
    """Compute ``3 / min(1, spread)``: steep enough for an untrained model, whose scores are close together.

    It does not fall once the spread exceeds 1. A model can then sharpen its ranking by spreading scores further, and
    the relaxed measure tends to the exact one.
    """
    return STEEPNESS / spread.clamp(max=1)


def spread(scores: Tensor, mask: Tensor) -> Tensor:
    """Compute the standard deviation of every list's scores, at least :data:`FLOOR`, without gradient: ``[B, 1]``."""
    scores = scores.detach()
    count = mask.sum(dim=1, keepdim=True).clamp(min=1)
    centred = scores - scores.masked_fill(~mask, 0.0).sum(dim=1, keepdim=True) / count
    variance = centred.masked_fill(~mask, 0.0).square().sum(dim=1, keepdim=True) / count
    return variance.sqrt().clamp(min=FLOOR)


@dataclass
class Batch:
    """A padded batch of lists, as soft ranks see it.

    >>> batch = Batch(
    ...     scores=torch.tensor([[0.1, 0.9, 0.5]]),
    ...     labels=torch.tensor([[1.0, 0.0, 0.0]]),
    ...     mask=torch.ones(1, 3, dtype=torch.bool),
    ...     rows=torch.tensor([[0]]),
    ... )
    >>> batch.exact
    tensor([[3., 1., 2.]])
    >>> batch.at_rows(batch.exact)
    tensor([[3.]])

    Attributes:
        scores: ``[B, N]``, zero where padded.
        labels: ``[B, N]`` grades, zero where padded.
        mask: ``[B, N]`` bool, True for real documents.
        rows: ``[B, R]`` int64, the documents that need ranks; a list with fewer is filled up with any others.
        seeds: ``[B]`` int64 or None, for random choices.
        every: whether rows are all documents, in index order.
    """

    scores: Tensor
    labels: Tensor
    mask: Tensor
    rows: Tensor
    seeds: Tensor | None = None
    every: bool = False

    @cached_property
    def exact(self) -> Tensor:
        """Exact rank of every document, ``[B, N]``, 1 for the highest score; ties broken at random."""
        return ranks_of(order_of(self.scores, self.mask, self.seeds, shuffle=True)).to(self.scores.dtype)

    @cached_property
    def spread(self) -> Tensor:
        """Standard deviation of every list's scores, without gradient, ``[B, 1]``."""
        return spread(self.scores, self.mask)

    def at_rows(self, values: Tensor) -> Tensor:
        """Select the values of ``rows``: ``[B, N]`` to ``[B, R]``."""
        return values if self.every else values.gather(1, self.rows)


class Relaxation(Described, ABC):
    """A smooth stand-in for sorting; derive from :class:`RankIndicators` or :class:`SoftRanks`.

    >>> from rerank.measures import parse
    >>> from rerank.relaxations import TwinSigmoid
    >>> scores, labels = torch.tensor([[2.0, 1.0]]), torch.tensor([[0, 1]])
    >>> parse("RR").relaxed(TwinSigmoid(), scores, labels)  # the relevant document is second
    tensor([0.5000])

    Attributes:
        measures: names of the measures that the relaxation is defined for; None for all.
    """

    measures: tuple[str, ...] | None = None


class RankIndicators(Relaxation):
    """Relaxations that give each rank r a distribution over documents: ``E[r, j]``, rows that sum to one.

    A subclass defines :meth:`indicators`. The measures need only :meth:`expected` and :meth:`weighted`, which a
    subclass may override, for example to avoid ``[B, depth, N]`` tensors.

    >>> from rerank.relaxations import SoftSort
    >>> mask, grades = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[3.0, 1.0]])
    >>> SoftSort().expected(torch.tensor([[0.0, 0.0]]), grades, mask, depth=2)  # tied: (3 + 1) / 2 at both ranks
    tensor([[2., 2.]])

    Attributes:
        gain_of: whether nDCG sums expected gains of documents, or gains of the grades expected at the ranks.
    """

    gain_of: GainOf = "documents"

    @abstractmethod
    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        """Compute the indicators of ranks 1 to depth.

        Args:
            scores: ``[B, N]`` float32 or float64, zero where padded.
            mask: ``[B, N]`` bool, True for real documents.
            depth: number of ranks, at most N.

        Returns:
            ``[B, depth, N]``, finite everywhere. Callers ignore values at padded documents, and ranks beyond the
            length of a list.
        """

    def expected(self, scores: Tensor, values: Tensor, mask: Tensor, depth: int) -> Tensor:
        """Compute the value expected at every rank, ``e_v[r] = sum_j E[r, j] v_j``, ``[B, depth]``.

        Scores, values (zero where padded) and mask are ``[B, N]``. The result is finite, as indicators are.
        """
        return (self.indicators(scores, mask, depth) * values[:, None, :]).sum(dim=2)  # autocast casts matmul

    def weighted(
        self, scores: Tensor, values: Tensor, weights: Tensor, mask: Tensor, exponential: bool = False
    ) -> Tensor:
        """Compute ``sum_r w_r f(e_v[r])`` with ``f(x) = x``, or ``2^x - 1`` if exponential: ``[B]``.

        P and nDCG have this form. Weights, ``[B, depth]``, are zero at ranks beyond the length of a list.
        """
        expected = self.expected(scores, values, mask, weights.shape[1])
        return (weights * (expected.exp2() - 1 if exponential else expected)).sum(dim=1)


class SoftRanks(Relaxation):
    """Relaxations that give every document a differentiable rank, 1 for the highest score.

    >>> from rerank.relaxations import Approx
    >>> mask, rows = torch.ones(1, 2, dtype=torch.bool), torch.tensor([[0, 1]])
    >>> Approx().ranks(Batch(torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0, 0.0]]), mask, rows))  # tied: (1 + 2) / 2
    tensor([[1.5000, 1.5000]])

    Attributes:
        exact_ranks: whether ranks have exact values and smooth gradients; measures then compare them without a sigmoid.
        beta: steepness of the sigmoids that compare smooth ranks with the cut-off and with one another.
        cutoff_shift: number added to the cut-off before smooth ranks are compared with it; 1/2 is midway between the
            last rank within the cut-off and the next.
        by_scores: whether scores are compared in place of ranks, with a steepness from their spread.
    """

    exact_ranks: ClassVar[bool] = False
    beta: float = 10.0
    cutoff_shift: float = 0.5
    by_scores: bool = False

    def score_steepness(self, batch: Batch) -> Tensor | None:
        """Compute the steepness of sigmoids that compare scores with the cut-off and with one another, ``[B, 1]``.

        None if ranks are compared, with ``beta``, as the papers do.
        """
        return steepness(batch.spread) if self.by_scores else None

    @abstractmethod
    def ranks(self, batch: Batch) -> Tensor:
        """Compute differentiable ranks of the documents ``batch.rows``: ``[B, R]``, finite."""


class Exact(RankIndicators):
    """Exact indicators: ``E[r, j] = 1`` for the document at rank r, else 0; ties in index order, no gradient.

    >>> scores, mask = torch.tensor([[0.2, 0.9]]), torch.ones(1, 2, dtype=torch.bool)
    >>> Exact().indicators(scores, mask, depth=2)
    tensor([[[0., 1.],
             [1., 0.]]])
    """

    def indicators(self, scores: Tensor, mask: Tensor, depth: int) -> Tensor:
        import torch

        order = order_of(scores, mask)[:, :depth]
        return torch.nn.functional.one_hot(order, scores.shape[1]).to(scores.dtype)

    def expected(self, scores: Tensor, values: Tensor, mask: Tensor, depth: int) -> Tensor:
        return values.gather(1, order_of(scores, mask)[:, :depth])
