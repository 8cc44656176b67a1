"""ListNet: the cross-entropy of top-one probabilities."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from rerank.losses.base import Loss, Reduction, Target


class ListNet(Loss):
    r"""Cross-entropy between the softmax of the labels and the softmax of the scores.

    .. math:: \ell = -\sum_i \frac{e^{y_i}}{\sum_j e^{y_j}} \ln \frac{e^{s_i / T}}{\sum_j e^{s_j / T}}

    Shapes: scores and labels ``[B, N]``. A list of equal labels (so also one without relevant documents) is left
    out.

    Source: Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007 (top-one model).

    >>> ListNet()(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 0]]))  # each has probability 1/2: ln 2
    tensor(0.6931)

    Args:
        temperature: divides the scores; 1 in the paper.
        reduction: mean or sum over the lists from which something can be learned, or none.
        validate: look at the values of scores and labels, and refuse what is not finite.
    """

    target: ClassVar[Target] = "values"

    def __init__(self, temperature: float = 1.0, reduction: Reduction = "mean", validate: bool = False) -> None:
        super().__init__(reduction, validate)
        self.temperature = temperature

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        """The cross-entropy of a list."""
        lowest = torch.finfo(scores.dtype).min  # finite: a list of padding only must not become NaN
        target = labels.masked_fill(~mask, lowest).softmax(dim=1)
        logs = (scores / self.temperature).masked_fill(~mask, lowest).log_softmax(dim=1)
        return -(target * logs.masked_fill(~mask, 0.0)).sum(dim=1)
