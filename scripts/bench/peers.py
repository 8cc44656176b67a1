"""What the losses are timed against: allRank, sentence-transformers, and the plain autograd formulas."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

Step = Callable[[Tensor, Tensor], Tensor]
"""Scores and labels ``[B, N]`` -> a scalar loss."""


@contextmanager
def _unneeded_modules() -> Iterator[None]:
    """Empty modules in place of torchvision, gcsfs and pkg_resources, which allRank imports for other purposes."""
    unneeded = {"torchvision": ["transforms"], "torchvision.transforms": ["Compose"], "gcsfs": ["GCSFileSystem"]}
    unneeded["pkg_resources"] = ["Requirement", "resource_filename"]
    before = {name: sys.modules.get(name) for name in unneeded}
    for name, members in unneeded.items():
        sys.modules[name] = ModuleType(name)
        vars(sys.modules[name]).update(dict.fromkeys(members))
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def allrank() -> dict[str, Step]:
    """The losses of allRank under our names; empty where it is not installed (``pip install --no-deps allRank``)."""
    try:
        with _unneeded_modules():
            from allrank.models import losses
    except ModuleNotFoundError:
        return {}
    return {
        "NeuralNDCG": losses.neuralNDCG,
        "ApproxNDCG": partial(losses.approxNDCGLoss, alpha=10.0),
        "LambdaLoss": partial(losses.lambdaLoss, weighing_scheme="ndcgLoss2PP_scheme"),
        "LambdaLoss@10": partial(losses.lambdaLoss, weighing_scheme="ndcgLoss2PP_scheme", k=10),
        "RankNet": losses.rankNet,
        "ListNet": losses.listNet,
        "ListMLE": losses.listMLE,
        "RMSE": lambda scores, labels: losses.pointwise_rmse(scores.sigmoid(), labels, 5),
        "BCE": lambda scores, labels: losses.bce(scores.sigmoid(), (labels > 0).float()),
    }


class _GivenScores(torch.nn.Module):
    """In place of a CrossEncoder: its losses ask for texts, and get the scores that are to be timed."""

    num_labels = 1

    def __init__(self) -> None:
        super().__init__()
        self.scores = torch.zeros(0)

    @property
    def device(self) -> torch.device:
        return self.scores.device

    def preprocess(self, pairs: list[Any], **_: Any) -> dict[str, Tensor]:
        return {}

    def forward(self, tokens: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"scores": self.scores.reshape(-1)}


def sentence_transformers() -> dict[str, Step]:
    """The listwise losses of sentence-transformers' cross-encoders; empty where it is not installed."""
    try:
        from sentence_transformers.cross_encoder import losses
    except ModuleNotFoundError:
        return {}
    model = _GivenScores()
    whole = {"mini_batch_size": -1}
    kinds = {
        "LambdaLoss": losses.LambdaLoss(model, weighting_scheme=losses.NDCGLoss2PPScheme(), **whole),
        "RankNet": losses.RankNetLoss(model, **whole),
        "ListNet": losses.ListNetLoss(model, **whole),
        "ListMLE": losses.ListMLELoss(model, **whole),
    }

    def step(loss: torch.nn.Module, scores: Tensor, labels: Tensor) -> Tensor:
        model.scores = scores
        queries, documents = [""] * len(scores), [[""] * scores.shape[1]] * len(scores)
        return loss([queries, documents], list(labels))

    return {name: partial(step, loss) for name, loss in kinds.items()}


def _discounts(size: int, like: Tensor) -> Tensor:
    return 1 / torch.log2(torch.arange(2, size + 2, dtype=like.dtype, device=like.device))


def _ndcg(dcg: Tensor, gains: Tensor) -> Tensor:
    return 1 - (dcg / (gains.sort(dim=1, descending=True).values * _discounts(gains.shape[1], gains)).sum(dim=1)).mean()


def _differences(scores: Tensor) -> Tensor:
    return scores[:, :, None] - scores[:, None, :]


def plain_approx_ndcg(scores: Tensor, labels: Tensor, alpha: float = 10.0) -> Tensor:
    """ApproxNDCG with one [B, N, N] sigmoid."""
    ranks = 0.5 + torch.sigmoid(-alpha * _differences(scores)).sum(dim=2)
    gains = 2**labels - 1
    return _ndcg((gains / torch.log2(ranks + 1)).sum(dim=1), gains)


def plain_smooth_i_ndcg(scores: Tensor, labels: Tensor, alpha: float = 1.0, delta: float = 0.1) -> Tensor:
    """SmoothI-nDCG as its authors write it: a loop over all ranks, autograd through it."""
    shifted = scores - scores.amin(dim=1, keepdim=True)
    factor, grades = torch.ones_like(scores), []
    for _ in range(scores.shape[1]):
        row = (alpha * shifted * factor).softmax(dim=1)
        grades.append((row * labels).sum(dim=1))
        factor = factor * (1 - row.detach() - delta)
    gains = 2 ** torch.stack(grades, dim=1) - 1
    return _ndcg((gains * _discounts(scores.shape[1], scores)).sum(dim=1), 2**labels - 1)


def plain_neural_ndcg(scores: Tensor, labels: Tensor, tau: float = 1.0, rounds: int = 50) -> Tensor:
    """NeuralNDCG with Sinkhorn on the whole matrix."""
    n = scores.shape[1]
    scaling = n + 1 - 2 * torch.arange(1, n + 1, dtype=scores.dtype, device=scores.device)
    logits = scaling[:, None] * scores[:, None, :] - _differences(scores).abs().sum(dim=2)[:, None, :]
    matrix = (logits / tau).softmax(dim=2)
    for _ in range(rounds):
        matrix = matrix / matrix.sum(dim=1, keepdim=True)
        matrix = matrix / matrix.sum(dim=2, keepdim=True)
    gains = 2**labels - 1
    return _ndcg(((matrix @ gains[:, :, None]).squeeze(2) * _discounts(n, scores)).sum(dim=1), gains)


def plain_soft_sort_ndcg(scores: Tensor, labels: Tensor, tau: float = 1.0) -> Tensor:
    """SoftSort with all N rows."""
    ordered = scores.sort(dim=1, descending=True).values
    matrix = (-(ordered[:, :, None] - scores[:, None, :]).abs() / tau).softmax(dim=2)
    gains = 2**labels - 1
    return _ndcg(((matrix @ gains[:, :, None]).squeeze(2) * _discounts(scores.shape[1], scores)).sum(dim=1), gains)


def plain_twin_sigmoid_ndcg(scores: Tensor, labels: Tensor, alpha: float = 1.0) -> Tensor:
    """Twin-sigmoid (gradient 3) as Yu's equations read: N × N comparisons, the stated weights as a zero sum."""
    apart = _differences(scores)
    z, better = torch.sigmoid(alpha * apart.detach()), _differences(labels)
    weights = 2 * alpha * torch.where(better > 0, 1 - z, torch.where(better < 0, -z, 0.0))
    ranks = 1 + (apart.detach() < 0).sum(dim=2) - (weights * (apart - apart.detach())).sum(dim=2)
    gains = 2**labels - 1
    return _ndcg((gains / torch.log2(ranks + 1)).sum(dim=1), gains)


def plain_transport_ndcg(scores: Tensor, labels: Tensor, epsilon: float = 0.1, rounds: int = 50) -> Tensor:
    """Optimal transport to the ranks: log-domain Sinkhorn on the whole matrix."""
    n = scores.shape[1]
    squashed = torch.sigmoid(
        (scores - scores.mean(dim=1, keepdim=True)) / scores.std(dim=1, keepdim=True, correction=0)
    )
    anchors = torch.linspace(1, 0, n, dtype=scores.dtype, device=scores.device)
    plan = -((anchors[:, None] - squashed[:, None, :]) ** 2) / epsilon
    for _ in range(rounds):
        plan = plan - plan.logsumexp(dim=1, keepdim=True) - math.log(n)
        plan = plan - plan.logsumexp(dim=2, keepdim=True) - math.log(n)
    gains = 2**labels - 1
    sorted_gains = (n * plan.exp() @ gains[:, :, None]).squeeze(2)
    return _ndcg((sorted_gains * _discounts(n, scores)).sum(dim=1), gains)


def _pair_mean(loss: Callable[[Tensor], Tensor], scores: Tensor, labels: Tensor) -> Tensor:
    ordered = _differences(labels) > 0
    values = torch.where(ordered, loss(_differences(scores)), 0.0)
    return (values.sum(dim=(1, 2)) / ordered.sum(dim=(1, 2))).mean()


def plain_softmax_ce(scores: Tensor, labels: Tensor) -> Tensor:
    """Torch's cross-entropy with the labels' shares as probabilities."""
    return torch.nn.functional.cross_entropy(scores, labels / labels.sum(dim=1, keepdim=True))


def plain_kl(scores: Tensor, labels: Tensor) -> Tensor:
    """Torch's own."""
    return torch.nn.functional.kl_div(scores.log_softmax(1), labels.softmax(1), reduction="batchmean")


def plain_margin_mse(scores: Tensor, labels: Tensor) -> Tensor:
    """All pairs of a list, in a matrix."""
    n = scores.shape[1]
    return (_differences(scores - labels) ** 2).sum(dim=(1, 2)).mean() / (n * (n - 1))


def plain() -> dict[str, Step]:
    """The formulas under our names."""
    return {
        "ApproxNDCG": plain_approx_ndcg,
        "SmoothINDCG": plain_smooth_i_ndcg,
        "NeuralNDCG": plain_neural_ndcg,
        "SoftSortNDCG": plain_soft_sort_ndcg,
        "TwinSigmoidNDCG": plain_twin_sigmoid_ndcg,
        "OptimalTransportNDCG": plain_transport_ndcg,
        "SoftmaxCE": plain_softmax_ce,
        "KLDivergence": plain_kl,
        "MarginMSE": plain_margin_mse,
        "RankNet": partial(_pair_mean, lambda d: torch.nn.functional.softplus(-d)),
        "PairwiseHinge": partial(_pair_mean, lambda d: (1 - d).clamp(min=0)),
        "PairwiseSoftmax": partial(_pair_mean, lambda d: torch.sigmoid(-d)),
    }
