"""Losses against a teacher's scores, without any judgment."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor
from torch.nn.functional import kl_div

from rerank.losses.analytic import AnalyticLoss, logits
from rerank.losses.base import Loss, Reduction, Target
from rerank.settings.arguments import Positive


class MarginMSE(AnalyticLoss):
    r"""Mean squared error of the margins of all pairs, against the target's margins.

    .. math:: \ell = \frac{1}{N (N - 1)} \sum_{i \ne j} \bigl((s_i - s_j) - (y_i - y_j)\bigr)^2
        = \frac{2}{N - 1} \sum_i (d_i - \bar d)^2, \quad d_i = s_i - y_i

    The sum over pairs is twice the sample variance of the differences, so that it costs O(N). Scores may have another
    offset than the teacher's; with :class:`MSE` they may not. Shapes: scores and labels ``[B, N]``. Targets are any
    values. A list of one document is left out; one without relevant documents counts, like any other.

    Source: Hofstätter et al., "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge
    Distillation", 2020 (of a relevant and another document; here of all pairs).

    >>> MarginMSE()(torch.tensor([[1.0, 0.0]]), torch.tensor([[5.0, 2.0]]))  # (1 - 3)^2
    tensor(4.)

    Args:
        reduction: mean or sum over the lists from which something can be learned, or none.
    """

    target: ClassVar[Target] = "values"

    def learnable(self, labels: Tensor, mask: Tensor) -> Tensor:
        return mask.sum(dim=1) > 1

    def value_and_gradient(
        self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        difference = scores - labels  # 0 where padded
        count = mask.sum(dim=1, keepdim=True)
        centred = (difference - difference.sum(dim=1, keepdim=True) / count.clamp(min=1)).masked_fill_(~mask, 0.0)
        share = 2 / (count - 1).clamp_(min=1).to(scores.dtype)
        return centred.square().sum(dim=1).mul_(share[:, 0]), centred.mul_(2 * share)


class KLDivergence(Loss):
    r"""Kullback-Leibler divergence of the scores' softmax from the target's.

    .. math:: \ell = T^2 \sum_i p_i \ln \frac{p_i}{q_i}, \quad p = \operatorname{softmax}(y / T), \quad
        q = \operatorname{softmax}(s / T)

    The factor T² keeps gradients of one size for every temperature. At T = 1 the gradient is that of
    :class:`ListNet`; the value is 0 if the scores are the target's, up to a shift. Shapes: scores and labels
    ``[B, N]``. Targets are any values. A list of equal targets (including one without relevant documents, if the target
    is grades) is left out.

    Source: Hinton, Vinyals and Dean, "Distilling the Knowledge in a Neural Network", 2015.

    >>> KLDivergence()(torch.tensor([[0.0, 0.0]]), torch.tensor([[50.0, 0.0]]))  # 1 ln(1 / (1 / 2))
    tensor(0.6931)

    Args:
        temperature: divides scores and targets; larger ones also teach the order among documents of small targets.
        reduction: mean or sum over the lists from which something can be learned, or none.

    Raises:
        ValueError: a temperature that is not above 0.
    """

    target: ClassVar[Target] = "values"

    def __init__(self, temperature: Positive = 1.0, reduction: Reduction = "mean") -> None:
        super().__init__(reduction)
        self.temperature = temperature

    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        wanted = logits(labels, mask, self.temperature).log_softmax(dim=1)
        found = logits(scores, mask, self.temperature).log_softmax(dim=1)
        return self.temperature**2 * kl_div(found, wanted, reduction="none", log_target=True).sum(dim=1)
