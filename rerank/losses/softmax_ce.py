"""Softmax cross-entropy: what most rerankers are trained with, over a whole list or against its negatives only."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from rerank.losses.base import Loss, Reduction, has_ordered_pair
from rerank.losses.known import logits
from rerank.settings.ranges import Positive


class SoftmaxCE(Loss):
    r"""Cross-entropy between the labels' shares of their sum and the softmax of the scores.

    .. math:: \ell = -\sum_i t_i \ln \frac{e^{s_i / T}}{\sum_{j \in A_i} e^{s_j / T}}, \quad
        t_i = \frac{y_i}{\sum_j y_j}

    :math:`A_i` is the whole list. With ``negatives_only`` it is i and the documents of grade 0, so that relevant
    documents do not compete with each other: InfoNCE, also known as LCE (localised contrastive estimation). With one
    relevant document per list both are the same. Unlike :class:`ListNet`, whose target is the softmax of the labels,
    documents of grade 0 have the target 0: with one relevant document among 150 ListNet wants .018 of the mass for it,
    this loss all of it. Shapes: scores and labels ``[B, N]``. A list of equal labels (so also one without relevant
    documents) is left out; with ``negatives_only``, one without a relevant and a non-relevant document is.

    Source: Gao, Dai and Callan, "Rethink Training of BERT Rerankers in Multi-Stage Retrieval Pipeline", ECIR 2021
    (LCE); Bruch et al., "An Analysis of the Softmax Cross Entropy Loss for Learning-to-Rank with Binary Relevance",
    ICTIR 2019 (the target y / sum y).

    >>> SoftmaxCE()(torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[1, 0, 0]]))  # probability 1/3: ln 3
    tensor(1.0986)
    >>> SoftmaxCE(negatives_only=True)(torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[1, 1, 0]]))  # 1/2 each: ln 2
    tensor(0.6931)

    Args:
        negatives_only: let each relevant document compete with the documents of grade 0 only.
        temperature: divides the scores; InfoNCE over cosines uses small ones, logits 1.
        reduction: mean or sum over the lists from which something can be learned, or none.

    Raises:
        ValueError: a temperature that is not above 0.
    """

    always_masked: ClassVar[bool] = False

    def __init__(
        self,
        negatives_only: bool = False,
        temperature: Positive = 1.0,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__(reduction)
        self.negatives_only = negatives_only
        self.temperature = temperature

    def learnable(self, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """Lists with unequal labels; against negatives only, with a relevant and a non-relevant document."""
        return has_ordered_pair(labels > 0 if self.negatives_only else labels, mask)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None, seeds: Tensor | None) -> Tensor:
        target = labels / labels.sum(dim=1, keepdim=True).clamp_(min=torch.finfo(labels.dtype).tiny)
        found = logits(scores, mask, self.temperature)
        if not self.negatives_only:
            return cross_entropy(found, target, reduction="none")
        others = logits(found, labels <= 0).logsumexp(dim=1, keepdim=True)
        return (target * softplus(others - found)).sum(dim=1)
