"""ListNet: the cross-entropy of top-one probabilities."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy

from rerank.losses.base import Loss, Reduction, Target
from rerank.losses.known import logits
from rerank.settings.ranges import Positive


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
    """

    target: ClassVar[Target] = "values"
    always_masked: ClassVar[bool] = False

    def __init__(self, temperature: Positive = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.temperature = temperature

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor | None, seeds: Tensor | None) -> Tensor:
        target = logits(labels, mask).softmax(dim=1)
        return cross_entropy(logits(scores, mask, self.temperature), target, reduction="none")
