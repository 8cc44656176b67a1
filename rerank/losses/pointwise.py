"""Pointwise surrogates: a mean over the documents of a list."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from rerank.losses.analytic import AnalyticLoss
from rerank.losses.base import Reduction, Target
from rerank.settings.arguments import Positive, Range


class EachDocument(AnalyticLoss):
    """The mean of :meth:`each_document` over the documents of a list.

    >>> class Push(EachDocument):
    ...     def each_document(self, scores, labels, mask):
    ...         return -labels * scores, -labels
    >>> Push()(torch.tensor([[1.0, 2.0]]), torch.tensor([[0, 3]]))  # -(0 + 6) / 2
    tensor(-3.)
    """

    @abstractmethod
    def each_document(self, scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the loss of every document and its derivative, ``[B, N]`` each, to be overwritten."""

    def learnable(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Find lists with a document: relevant or not, each has a target."""
        return mask.any(dim=1)

    def value_and_gradient(
        self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        values, slopes = self.each_document(scores, labels, mask)
        pads, count = ~mask, mask.sum(dim=1, keepdim=True).clamp_(min=1)
        return values.masked_fill_(pads, 0.0).sum(dim=1).div_(count[:, 0]), slopes.masked_fill_(pads, 0.0).div_(count)


class MSE(EachDocument):
    r"""Mean squared error of scores against grades, or any target.

    .. math:: \ell = \frac{1}{N} \sum_i (s_i - y_i)^2

    Shapes: scores and labels ``[B, N]``. A list without relevant documents has the target 0 everywhere and counts.

    Source: Cossock and Zhang, "Subset Ranking Using Regression", COLT 2006.

    >>> MSE()(torch.tensor([[1.0, 0.0]]), torch.tensor([[2, 0]]))  # ((1 - 2)^2 + 0) / 2
    tensor(0.5000)

    Args:
        reduction: mean or sum over the lists that hold a document, or none.
    """

    target: ClassVar[Target] = "values"

    def each_document(self, scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        error = scores - labels
        return error.square(), error.mul_(2)


class RMSE(EachDocument):
    r"""Root mean squared error of squashed scores against grades.

    .. math:: \ell = \sqrt{\frac{1}{N} \sum_i (L \, \sigma(s_i) - y_i)^2}

    Shapes: scores and labels ``[B, N]``. A list without relevant documents has the target 0 everywhere and counts.
    If the error is exactly 0, so is the gradient. ``L`` is the number of relevance levels, 5 for grades 0 to 4.

    Source: Pobrotyn and Białobrzęski, "NeuralNDCG: Direct Optimisation of a Ranking Metric via Differentiable
    Relaxation of Sorting", 2021, section 5.4 (pointwise baseline).

    >>> RMSE()(torch.tensor([[0.0, 0.0]]), torch.tensor([[2, 3]]))  # 5 / 2 is half a grade off both
    tensor(0.5000)

    Args:
        levels: the factor ``L`` of the sigmoid.
        reduction: mean or sum over the lists that hold a document, or none.
    """

    def __init__(self, levels: Positive = 5.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.levels = levels

    def each_document(self, scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        chance = scores.sigmoid()
        error = (chance * self.levels).sub_(labels)
        return error.square(), chance.addcmul_(chance, chance, value=-1).mul_(error).mul_(2 * self.levels)

    def value_and_gradient(
        self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        mean, gradient = super().value_and_gradient(scores, labels, mask, seeds)
        root = mean.clamp_(min=torch.finfo(mean.dtype).tiny).sqrt_()  # the root has no derivative at 0
        return root, gradient.div_(2 * root[:, None])


class BCE(EachDocument):
    r"""Binary cross-entropy of scores, taken as logits, against binarised grades.

    .. math:: \ell = -\frac{1}{N} \sum_i w \, b_i \ln \sigma(z_i) + (1 - b_i) \ln \sigma(-z_i), \quad
        b_i = [y_i \ge rel], \quad z_i = s_i + \ln \frac{\pi}{1 - \pi}

    with the weight w of a relevant document (``pos_weight``) and the share π of relevant documents that is expected
    before training (``prior``); without them w = 1 and z = s. With 150 candidates and a few relevant ones, plain BCE
    first spends its steps on scores that are low for all. Either cures that: the weight makes both kinds count alike,
    the prior starts from the loss of a calibrated guess and is the same as a bias of that size in the model's last
    layer. Shapes: scores and labels ``[B, N]``. A list without relevant documents has the target 0 everywhere and
    counts.

    Source: Nogueira and Cho, "Passage Re-ranking with BERT", 2019, Eq 1; Lin et al., "Focal Loss for Dense Object
    Detection", ICCV 2017, section 3.3 (prior); sentence-transformers' BinaryCrossEntropyLoss (pos_weight, for which it
    recommends the number of negatives per positive).

    >>> BCE()(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 0]]))  # each has probability 1/2: ln 2
    tensor(0.6931)
    >>> BCE(pos_weight=3.0)(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 0]]))  # (3 + 1) / 2 ln 2
    tensor(1.3863)
    >>> BCE(prior=0.01)(torch.tensor([[0.0, 0.0]]), torch.tensor([[0, 0]]))  # each has probability .01: -ln .99
    tensor(0.0101)

    Args:
        rel: the smallest grade that counts as relevant.
        pos_weight: how many times a relevant document counts; None: once.
        prior: the probability that a document of score 0 is relevant; None: 1/2, no offset.
        reduction: mean or sum over the lists that hold a document, or none.

    Raises:
        ValueError: a weight that is not above 0, or a prior that is not between 0 and 1.
    """

    def __init__(
        self,
        rel: Positive = 1.0,
        pos_weight: Positive | None = None,
        prior: Annotated[float, Range(0, 1, without_low=True, without_high=True)] | None = None,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        self.rel, self.pos_weight, self.prior = rel, pos_weight, prior

    def each_document(self, scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        target = (labels >= self.rel).to(scores.dtype)
        logits = scores if self.prior is None else scores + math.log(self.prior / (1 - self.prior))
        values = binary_cross_entropy_with_logits(logits, target, reduction="none")
        slopes = logits.sigmoid().sub_(target)
        if self.pos_weight is not None:
            weights = 1 + (self.pos_weight - 1) * target
            values, slopes = values * weights, slopes * weights
        return values, slopes
