"""Pairwise surrogates: a mean over the ordered pairs of a list."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor

from rerank.losses.analytic import AnalyticLoss
from rerank.losses.base import Reduction, Target
from rerank.losses.pair_sums import logistic, ordered_mean, take
from rerank.relaxations.order import order_of
from rerank.settings.arguments import NotNegative, Positive, Several


class _Pairwise(AnalyticLoss):
    """The mean of :meth:`pair` over the pairs (i, j) of a list with ``y_i > y_j``."""

    target: ClassVar[Target] = "values"
    mean: bool = True

    @abstractmethod
    def pair(self, behind: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the loss of pairs, see :data:`rerank.losses.pair_sums.PairLoss`."""

    def value_and_gradient(
        self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        return ordered_mean(scores, labels, mask, self.pair, self.mean)


class RankNet(_Pairwise):
    r"""RankNet: the logistic loss of every ordered pair.

    .. math:: \ell = \frac{1}{|O|} \sum_{(i, j) \in O} \ln(1 + e^{-\sigma (s_i - s_j)}), \quad
        O = \{(i, j): y_i > y_j\}

    Shapes: scores and labels ``[B, N]``. A list without an ordered pair (including one without relevant documents)
    is left out. The mean over pairs makes the step independent of the list's length; with ``pairs="sum"`` a list counts
    by the number of its pairs, as in a loss over all pairs of a batch (Burges et al.; NeuralNDCG's baseline).

    Source: Burges et al., "Learning to Rank using Gradient Descent", ICML 2005, section 3, with target probability 1.

    >>> RankNet()(torch.tensor([[1.0, 1.0]]), torch.tensor([[1, 0]]))  # ln(1 + e^0)
    tensor(0.6931)

    Args:
        k: keep the pairs whose current ranks (ties at random) are both at most ``k``; None keeps all. A list whose
            top ``k`` holds no ordered pair counts with loss 0.
        sigma: steepness of the logistic function.
        pairs: ``sum`` adds up the pairs of a list; None takes their mean.
        reduction: mean or sum over the lists from which something can be learned, or none.
    """

    def __init__(
        self,
        k: Several | None = None,
        sigma: Positive = 1.0,
        pairs: Literal["sum"] | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        self.mean, self.k, self.sigma = pairs is None, k, sigma

    def pair(self, behind: Tensor) -> tuple[Tensor, Tensor]:
        return logistic(behind)

    def value_and_gradient(
        self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        top, every = None, scores
        if self.k is not None and self.k < scores.shape[1]:
            top = order_of(scores, mask, seeds, shuffle=True, depth=self.k)
            scores, labels, mask = take(top, scores, labels, mask)
        value, gradient = super().value_and_gradient(scores * self.sigma, labels, mask, seeds)
        gradient.mul_(self.sigma)
        return value, gradient if top is None else torch.zeros_like(every).scatter_(1, top, gradient)


class PairwiseHinge(_Pairwise):
    r"""Hinge loss of every ordered pair.

    .. math:: \ell = \frac{1}{|O|} \sum_{(i, j) \in O} \max(0, m - (s_i - s_j)), \quad O = \{(i, j): y_i > y_j\}

    Shapes: scores and labels ``[B, N]``. A list without an ordered pair (including one without relevant documents)
    is left out. At the kink the derivative is 0.

    Source: Herbrich et al., "Large Margin Rank Boundaries for Ordinal Regression", 2000; the text baseline of Thonet
    et al., "SmoothI: Smooth Rank Indicators for Differentiable IR Metrics", 2021, section 5.5.

    >>> PairwiseHinge()(torch.tensor([[0.5, 0.25]]), torch.tensor([[1, 0]]))  # 1 - (0.5 - 0.25)
    tensor(0.7500)

    Args:
        margin: the difference of scores beyond which a pair costs nothing.
        reduction: mean or sum over the lists from which something can be learned, or none.
    """

    def __init__(self, margin: NotNegative = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.margin = margin

    def pair(self, behind: Tensor) -> tuple[Tensor, Tensor]:
        value = (behind + self.margin).clamp_(min=0)
        return value, value.sign()


class PairwiseSoftmax(_Pairwise):
    r"""The probability that a pair is in the wrong order, as CEDR trains.

    .. math:: \ell = \frac{1}{|O|} \sum_{(i, j) \in O} 1 - \sigma(s_i - s_j), \quad O = \{(i, j): y_i > y_j\}

    The loss is one minus the better document's share of a softmax over the two scores of a pair (without a
    logarithm, so that a hopeless pair has a vanishing gradient). Shapes: scores and labels ``[B, N]``. A list
    without an ordered pair (including one without relevant documents) is left out.

    Source: MacAvaney et al., "CEDR: Contextualized Embeddings for Document Ranking", SIGIR 2019, released code.

    >>> PairwiseSoftmax()(torch.tensor([[1.0, 1.0]]), torch.tensor([[1, 0]]))
    tensor(0.5000)

    Args:
        reduction: mean or sum over the lists from which something can be learned, or none.
    """

    def pair(self, behind: Tensor) -> tuple[Tensor, Tensor]:
        value = behind.sigmoid()
        return value, value * (1 - value)
