"""Listwise surrogates: cross-entropies of softmaxes, the likelihood of the ideal order, average precision by bins."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softplus

from rerank.losses.analytic import logits
from rerank.losses.base import Loss, Reduction, Target, has_ordered_pair
from rerank.relaxations.order import first, order_of
from rerank.settings.arguments import Positive, Several

LEAST = 1e-30
"""Range of a list's scores up to which they count as tied: the gradient is in units of 1 over it."""


class ListNet(Loss):
    r"""Cross-entropy between the softmax of the labels and the softmax of the scores.

    .. math:: \ell = -\sum_i \frac{e^{y_i}}{\sum_j e^{y_j}} \ln \frac{e^{s_i / T}}{\sum_j e^{s_j / T}}

    Shapes: scores and labels ``[B, N]``. A list of equal labels (including one without relevant documents) is left
    out.

    Source: Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007 (top-one model).

    >>> ListNet()(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 0]]))  # each has probability 1/2: ln 2
    tensor(0.6931)

    Args:
        temperature: divides the scores; 1 in the paper.
        reduction: mean or sum over the lists from which something can be learned, or none.
    """

    target: ClassVar[Target] = "values"

    def __init__(self, temperature: Positive = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.temperature = temperature

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        target = logits(labels, mask).softmax(dim=1)
        return cross_entropy(logits(scores, mask, self.temperature), target, reduction="none")


class SoftmaxCE(Loss):
    r"""Cross-entropy between the labels' shares of their sum and the softmax of the scores.

    .. math:: \ell = -\sum_i t_i \ln \frac{e^{s_i / T}}{\sum_{j \in A_i} e^{s_j / T}}, \quad
        t_i = \frac{y_i}{\sum_j y_j}

    :math:`A_i` is the whole list. With ``negatives_only`` it is i and the documents of grade 0, so that relevant
    documents do not compete with each other: InfoNCE, also known as LCE (localised contrastive estimation). With one
    relevant document per list both are the same. Unlike :class:`ListNet`, whose target is the softmax of the labels,
    documents of grade 0 have the target 0: with one relevant document among 150 ListNet wants .018 of the mass for it,
    this loss all of it. Shapes: scores and labels ``[B, N]``. A list of equal labels (including one without relevant
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

    def __init__(
        self, negatives_only: bool = False, temperature: Positive = 1.0, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction)
        self.negatives_only, self.temperature = negatives_only, temperature

    def learnable(self, labels: Tensor, mask: Tensor) -> Tensor:
        return has_ordered_pair(labels > 0 if self.negatives_only else labels, mask)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        target = labels / labels.sum(dim=1, keepdim=True).clamp_(min=torch.finfo(labels.dtype).tiny)
        found = logits(scores, mask, self.temperature)
        if not self.negatives_only:
            return cross_entropy(found, target, reduction="none")
        others = logits(found, labels <= 0).logsumexp(dim=1, keepdim=True)
        return (target * softplus(others - found)).sum(dim=1)


class ListMLE(Loss):
    r"""Minus the Plackett-Luce log-likelihood of the order by descending label.

    .. math:: \ell = -\sum_i \Bigl[ s_{(i)} - \ln \sum_{l \ge i} e^{s_{(l)}} \Bigr]

    where (i) is the document at rank i by label; documents of one label are put in random order, per list and from
    its seed. Shapes: scores and labels ``[B, N]``. A list of equal labels (including one without relevant documents)
    is left out.

    Source: Xia et al., "Listwise Approach to Learning to Rank: Theory and Algorithm", ICML 2008 (likelihood loss).

    >>> ListMLE()(torch.tensor([[0.0, 0.0, 0.0]]), torch.tensor([[2, 1, 0]]))  # one of six orders: ln 6
    tensor(1.7918)

    Args:
        reduction: mean or sum over the lists from which something can be learned, or none.
    """

    target: ClassVar[Target] = "values"

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        order, pads = order_of(labels, mask, seeds, shuffle=True), ~first(mask)  # pads last
        scores = scores.gather(1, order)
        scores = scores - scores.detach()[:, :1]  # of a common offset nothing is left but rounding
        nothing = scores.detach().amin(dim=1, keepdim=True) - 1000  # below every score, yet finite: no NaN from -inf
        after = scores.where(~pads, nothing).flip(1).logcumsumexp(dim=1).flip(1)
        return (after - scores).masked_fill(pads, 0.0).sum(dim=1)


class ListAP(Loss):
    r"""One minus the quantised average precision.

    Scores are min-max scaled per list to ``x`` in [0, 1] and shared out to ``M`` bins of centres
    :math:`c_m = 1 - (m - 1)\Delta`, :math:`\Delta = 1/(M - 1)`, by triangular kernels
    :math:`\delta_m(x) = \max(0, 1 - |x - c_m|/\Delta)`:

    .. math:: \ell = 1 - \sum_m \hat P_m \, \Delta \hat r_m, \quad
        \hat P_m = \frac{\sum_{l \le m} \sum_i \delta_l(x_i) b_i}{\sum_{l \le m} \sum_i \delta_l(x_i)}, \quad
        \Delta \hat r_m = \frac{\sum_i \delta_m(x_i) b_i}{\sum_i b_i}, \quad b_i = [y_i \ge rel]

    Shapes: scores and labels ``[B, N]``. A list without relevant documents, or without others, is left out. A document
    touches two bins, so time and memory are O(N + M). The paper's scores are similarities with known bounds; here the
    scaling supplies these, so the loss ignores shift and scale of the scores.

    Source: Revaud et al., "Learning with Average Precision: Training Image Retrieval with a Listwise Loss", ICCV
    2019, section 3 (quantised AP).

    >>> ListAP()(torch.tensor([[2.0, 1.0]]), torch.tensor([[0, 1]]))  # the relevant document is second: 1 - 1/2
    tensor(0.5000)

    Args:
        bins: the number of bins ``M``, at least 2.
        rel: the smallest grade that counts as relevant.
        reduction: mean or sum over the lists from which something can be learned, or none.
    """

    def __init__(self, bins: Several = 25, rel: Positive = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.bins, self.rel = bins, rel

    def learnable(self, labels: Tensor, mask: Tensor) -> Tensor:
        return has_ordered_pair(labels >= self.rel, mask)

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        real, relevant = mask.to(scores.dtype), ((labels >= self.rel) & mask).to(scores.dtype)
        highest = scores.masked_fill(~mask, -torch.inf).amax(dim=1, keepdim=True)
        lowest = scores.masked_fill(~mask, torch.inf).amin(dim=1, keepdim=True)
        spread = highest - lowest
        apart = spread > LEAST
        scaled = (highest - scores) / torch.where(apart, spread, 1.0)
        place = torch.where(mask & apart, scaled, 0.0) * (self.bins - 1)  # 0 is the bin of the best score
        bin_ = place.detach().long().clamp(0, self.bins - 2)
        right = place - bin_

        def histogram(weights: Tensor) -> Tensor:
            empty = scores.new_zeros(len(scores), self.bins)
            return empty.scatter_add(1, bin_, weights * (1 - right)).scatter_add(1, bin_ + 1, weights * right)

        hits, total = histogram(relevant), histogram(real)
        seen = total.cumsum(dim=1)
        precision = hits.cumsum(dim=1) / torch.where(seen > 0, seen, 1.0)
        return 1 - (precision * hits).sum(dim=1) / relevant.sum(dim=1).clamp(min=1)
