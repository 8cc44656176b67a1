"""Ranking whose scores are probabilities: a pointwise and a listwise cross-entropy of one minimiser."""

from __future__ import annotations

from typing import Annotated

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, logsigmoid

from rerank.losses.base import Reduction
from rerank.losses.known import logits
from rerank.losses.pointwise import EachDocument
from rerank.settings.ranges import Positive, Range


class RegressionCompatible(EachDocument):
    r"""Binary cross-entropy, and a listwise one over the same probabilities in place of their exponentials.

    .. math:: \ell = \frac{1}{N} \sum_i (1 - \alpha) \left( -b_i \ln p_i - (1 - b_i) \ln (1 - p_i) \right)
        - \alpha \, b_i \ln \frac{p_i}{\sum_j p_j}, \quad p_i = \sigma(s_i), \quad b_i = [y_i \ge rel]

    The softmax of :class:`SoftmaxCE` wants :math:`e^{s_i}` in proportion to the probability that document i is
    relevant, BCE wants :math:`\sigma(s_i)` to be it: in a sum of the two each spoils the other. Here both want
    :math:`p_i` to be that probability; BCE alone says so of its size, the other pulls the documents of a list apart.
    Both are over N, so that this holds whatever number of documents is relevant. Shapes: scores and labels ``[B, N]``.
    A list without relevant documents has the target 0 everywhere and counts.

    Source: after Bai et al., "Regression Compatible Listwise Objectives for Calibrated Ranking with Binary Relevance",
    CIKM 2023 (arXiv 2211.01494): its idea. The formula was not compared with the paper's equations; that both parts are
    over N is ours.

    >>> RegressionCompatible()(torch.tensor([[0.0, 0.0]]), torch.tensor([[1, 0]]))  # (2 ln 2) / 4 + (ln 2) / 4
    tensor(0.5199)

    Args:
        alpha: the share of the listwise part; with 0 this is BCE, with 1 scores have no scale.
        rel: the smallest grade that counts as relevant.
        reduction: mean or sum over the lists that hold a document, or none.
    """

    def __init__(
        self, alpha: Annotated[float, Range(0, 1)] = 0.5, rel: Positive = 1.0, reduction: Reduction = "mean"
    ) -> None:
        super().__init__(reduction)
        self.alpha = alpha
        self.rel = rel

    def each_document(self, scores: Tensor, labels: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        target, own, off = (labels >= self.rel).to(scores.dtype), logsigmoid(scores), (-scores).sigmoid()
        known = logits(own, mask)
        among = known.logsumexp(dim=1, keepdim=True) - own
        values = (1 - self.alpha) * binary_cross_entropy_with_logits(scores, target, reduction="none")
        slopes = (1 - self.alpha) * (scores.sigmoid() - target)
        wanted = target.sum(dim=1, keepdim=True) * known.softmax(dim=1) - target
        return values + self.alpha * target * among, slopes + self.alpha * off * wanted
