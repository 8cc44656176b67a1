"""Pointwise surrogates: a mean over the documents of a list."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from rerank.losses.base import Loss, Reduction


class _Pointwise(Loss):
    def learnable(self, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """Lists with a document: relevant or not, each has a target."""
        return torch.ones_like(labels[:, 0], dtype=torch.bool) if mask is None else mask.any(dim=1)


def _mean(values: Tensor, mask: Tensor) -> Tensor:
    return values.masked_fill(~mask, 0.0).sum(dim=1) / mask.sum(dim=1).clamp(min=1)


class MSE(_Pointwise):
    r"""Mean squared error of scores against grades.

    .. math:: \ell = \frac{1}{N} \sum_i (s_i - y_i)^2

    Shapes: scores and labels ``[B, N]``. A list without relevant documents has the target 0 everywhere and counts.

    Source: Cossock and Zhang, "Subset Ranking Using Regression", COLT 2006.

    >>> MSE()(torch.tensor([[1.0, 0.0]]), torch.tensor([[2, 0]]))  # ((1 - 2)^2 + 0) / 2
    tensor(0.5000)

    Args:
        reduction: mean or sum over the lists that hold a document, or none.
        validate: look at the values of scores and labels, and refuse what is not finite or negative.
    """

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        """The mean over documents."""
        return _mean((scores - labels).square(), mask)


class RMSE(_Pointwise):
    r"""Root mean squared error of squashed scores against grades.

    .. math:: \ell = \sqrt{\frac{1}{N} \sum_i (L \, \sigma(s_i) - y_i)^2}

    Shapes: scores and labels ``[B, N]``. A list without relevant documents has the target 0 everywhere and counts.
    Where the error is exactly 0 the gradient is 0. ``L`` is the number of relevance levels, 5 for grades 0 to 4.

    Source: Pobrotyn and Białobrzęski, "NeuralNDCG: Direct Optimisation of a Ranking Metric via Differentiable
    Relaxation of Sorting", 2021, section 5.4 (pointwise baseline).

    >>> RMSE()(torch.tensor([[0.0, 0.0]]), torch.tensor([[2, 3]]))  # 5 / 2 is half a grade off both
    tensor(0.5000)

    Args:
        levels: the factor ``L`` of the sigmoid.
        reduction: mean or sum over the lists that hold a document, or none.
        validate: look at the values of scores and labels, and refuse what is not finite or negative.
    """

    def __init__(self, levels: float = 5.0, reduction: Reduction = "mean", validate: bool = False) -> None:
        super().__init__(reduction, validate)
        self.levels = levels

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        """The root of the mean over documents."""
        mean = _mean((self.levels * torch.sigmoid(scores) - labels).square(), mask)
        return mean.clamp(min=torch.finfo(mean.dtype).tiny).sqrt()  # the root has no derivative at 0


class BCE(_Pointwise):
    r"""Binary cross-entropy of scores, taken as logits, against binarised grades.

    .. math:: \ell = -\frac{1}{N} \sum_i b_i \ln \sigma(s_i) + (1 - b_i) \ln \sigma(-s_i), \quad b_i = [y_i \ge rel]

    Shapes: scores and labels ``[B, N]``. A list without relevant documents has the target 0 everywhere and counts.

    Source: Nogueira and Cho, "Passage Re-ranking with BERT", 2019, Eq 1.

    >>> BCE()(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 0]]))  # each has probability 1/2: ln 2
    tensor(0.6931)

    Args:
        rel: the smallest grade that counts as relevant.
        reduction: mean or sum over the lists that hold a document, or none.
        validate: look at the values of scores and labels, and refuse what is not finite or negative.
    """

    def __init__(self, rel: float = 1.0, reduction: Reduction = "mean", validate: bool = False) -> None:
        super().__init__(reduction, validate)
        self.rel = rel

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        """The mean over documents."""
        target = (labels >= self.rel).to(scores.dtype)
        return _mean(binary_cross_entropy_with_logits(scores, target, reduction="none"), mask)
