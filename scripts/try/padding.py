"""What a loss still learns when the padding of a batch takes part in the ranking, as in the code of Thonet et al.

    python scripts/try/padding.py --data DIR/MQ2008

All training lists of a fold that have a relevant document, padded to the longest, scores drawn from a normal
distribution and 0, their mean, for the padding. Prints the cosine between the gradients on a list's real documents with
the padding masked and with it as documents of grade 0, a mean over lists, by the temperatures of the paper's search.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor

from rerank.features.letor import LetorData
from rerank.lists.view import Lists
from rerank.losses import DirectMetric, LambdaLoss, ListMLE, ListNet
from rerank.losses.base import Loss
from rerank.relaxations import Approx, FastSoftSort, NeuralSort, SmoothI, SoftSort
from rerank.training.batches import pad

MEASURE = "nDCG(dcg='exp-log2')"
SLOPES, TEMPERATURES, STRENGTHS = (0.1, 1.0, 10.0, 100.0), (0.1, 1.0, 10.0, 100.0), (0.01, 0.1, 1.0, 10.0)
LOSSES: dict[str, list[Loss]] = {
    "NeuralSort": [DirectMetric(MEASURE, NeuralSort(tau=tau, sinkhorn=0)) for tau in TEMPERATURES],
    "SoftSort": [DirectMetric(MEASURE, SoftSort(tau=tau)) for tau in TEMPERATURES],
    "FastSort": [DirectMetric(MEASURE, FastSoftSort(strength=strength)) for strength in STRENGTHS],
    "SmoothI": [DirectMetric(MEASURE, SmoothI(alpha=alpha)) for alpha in SLOPES],
    "Approx": [DirectMetric(MEASURE, Approx(alpha=alpha)) for alpha in SLOPES],
    "LambdaLoss": [LambdaLoss(measure=MEASURE)],
    "ListNet": [ListNet()],
    "ListMLE": [ListMLE()],
}


def padded(lists: Lists, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, grades and mask ``[B, N]`` of the lists with a relevant document."""
    rng = np.random.default_rng(seed)
    rows = [lists.grades[start:end] for start, end in zip(lists.offsets[:-1], lists.offsets[1:], strict=True)]
    rows = [grades for grades in rows if grades.max(initial=0) > 0]
    scores, mask = pad([rng.standard_normal(len(grades)) for grades in rows], torch.float32)
    return scores, pad(rows, torch.float32)[0], mask


def cosine(loss: Loss, scores: Tensor, labels: Tensor, mask: Tensor) -> float:
    """Between the gradients on a list's real documents, the padding masked and not; the mean over lists."""

    def gradient(seen: Tensor) -> Tensor:
        given = scores.clone().requires_grad_()
        loss(given, labels, seen, seeds=torch.arange(len(scores))).backward()
        assert given.grad is not None
        return given.grad.masked_fill(~mask, 0.0)

    masked, competing = gradient(mask), gradient(torch.ones_like(mask))
    return float(torch.nn.functional.cosine_similarity(masked, competing, dim=1, eps=1e-20).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", required=True, help="a folder of folds, such as MQ2008's")
    parser.add_argument("--fold", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0, help="of the scores")
    options = parser.parse_args()
    scores, labels, mask = padded(LetorData(options.data, fold=options.fold).splits(0).train, options.seed)
    lengths = mask.sum(dim=1)
    print(f"{len(mask)} lists of {lengths.float().mean():.1f} documents, padded to {lengths.max()}\n")
    print("| loss | cosine, by temperature |\n|---|---|")
    for name, losses in LOSSES.items():
        print(f"| {name} | {', '.join(f'{cosine(loss, scores, labels, mask):.2f}' for loss in losses)} |")


if __name__ == "__main__":
    main()
