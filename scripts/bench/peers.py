"""What the losses are timed against: allRank and sentence-transformers."""

from __future__ import annotations

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
