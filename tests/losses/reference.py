"""Plain definitions of the surrogates on one list, with loops and autograd; independent of the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

Plain = Callable[[Tensor, Tensor], Tensor]
"""Scores ``[N]`` and labels ``[N]`` of one list -> its loss."""


def ordered_pairs(y: Tensor) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(len(y)) for j in range(len(y)) if y[i] > y[j])


def _mean(values: list[Tensor], s: Tensor) -> Tensor:
    return torch.stack(values).mean() if values else s.sum() * 0


def ranks(s: Tensor) -> Tensor:
    """Exact ranks of distinct scores, 1 for the largest."""
    return 1 + (s[None, :] > s[:, None]).sum(dim=1)


def discount(rank: Tensor | float) -> Tensor:
    return 1 / torch.log2(torch.as_tensor(rank, dtype=torch.float64) + 1)


def list_net(temperature: float = 1.0) -> Plain:
    def loss(s: Tensor, y: Tensor) -> Tensor:
        target, mass = y.exp() / y.exp().sum(), (s / temperature).exp()
        return -(target * (mass / mass.sum()).log()).sum()

    return loss


def softmax_ce(temperature: float = 1.0, negatives: bool = False) -> Plain:
    def loss(s: Tensor, y: Tensor) -> Tensor:
        total, mass = s.sum() * 0, (s / temperature).exp()
        for i in range(len(y)):
            against = [j for j in range(len(y)) if not negatives or j == i or y[j] == 0]
            total = total - y[i] / y.sum() * (mass[i] / mass[against].sum()).log()
        return total

    return loss


def list_mle(s: Tensor, y: Tensor) -> Tensor:
    order = sorted(range(len(y)), key=lambda i: -y[i])
    return -sum(s[i] - s[order[place:]].logsumexp(0) for place, i in enumerate(order))


def list_ap(bins: int = 25, rel: float = 1) -> Plain:
    def loss(s: Tensor, y: Tensor) -> Tensor:
        b = (y >= rel).double()
        if b.sum() == 0 or s.max() == s.min():
            return s.sum() * 0
        x, width = (s - s.min()) / (s.max() - s.min()), 1 / (bins - 1)
        kernels = torch.stack([(1 - (x - (1 - m * width)).abs() / width).clamp(min=0) for m in range(bins)])
        hits, total = kernels @ b, kernels.sum(dim=1)
        terms = [hits[: m + 1].sum() / total[: m + 1].sum() * hits[m] / b.sum() for m in range(bins)]
        return 1 - sum(terms)

    return loss


def wass_rank(
    gain_base: float = 4, gap: float = 100, penalty: float = math.e, lam: float = 0.1, iterations: int = 20
) -> Plain:
    def loss(s: Tensor, y: Tensor) -> Tensor:
        n, gamma = len(y), [gain_base ** float(v) - 1 if v > 0 else -gap for v in y]
        rows = [
            [0.0 if i == j else penalty if y[i] == y[j] else abs(gamma[i] - gamma[j]) for j in range(n)]
            for i in range(n)
        ]
        cost = torch.tensor(rows, dtype=torch.float64)
        have, want, column = s.log_softmax(0), y.log_softmax(0), torch.zeros(n, dtype=torch.float64)
        for _ in range(iterations):
            row = have - (column[None, :] - lam * cost).logsumexp(dim=1)
            column = want - (row[:, None] - lam * cost).logsumexp(dim=0)
        return ((row[:, None] - lam * cost + column[None, :]).exp() * cost).sum()

    return loss


def rank_net(k: int | None = None, sigma: float = 1.0, mean: bool = True) -> Plain:
    def loss(s: Tensor, y: Tensor) -> Tensor:
        r, last = ranks(s), k or len(y)
        pairs = [(i, j) for i, j in ordered_pairs(y) if r[i] <= last and r[j] <= last]
        value = _mean([(1 + (-sigma * (s[i] - s[j])).exp()).log() for i, j in pairs], s)
        return value if mean else value * len(pairs)

    return loss


def pairwise_hinge(margin: float = 1.0) -> Plain:
    return lambda s, y: _mean([(margin - s[i] + s[j]).clamp(min=0) for i, j in ordered_pairs(y)], s)


def pairwise_softmax(s: Tensor, y: Tensor) -> Tensor:
    return _mean([1 - s[i].exp() / (s[i].exp() + s[j].exp()) for i, j in ordered_pairs(y)], s)


def lambda_loss(
    weighting: str,
    gain: Callable[[Tensor], Tensor],
    k: int | None = None,
    sigma: float = 1.0,
    mu: float = 10.0,
    truncation: str = "both",
) -> Plain:
    """LambdaLoss for nDCG@k; truncation: of which pairs both current ranks, either or none have to be at most k."""

    def loss(s: Tensor, y: Tensor) -> Tensor:
        last, r, gains = k or len(y), ranks(s), gain(y)
        ideal = sum(g * discount(rank + 1) for rank, g in enumerate(sorted(gains.tolist(), reverse=True)[:last]))
        total = s.sum() * 0
        for i, j in ordered_pairs(y):
            if {"both": max(r[i], r[j]), "either": min(r[i], r[j]), "all": 0}[truncation] > last:
                continue
            apart = abs(int(r[i] - r[j]))
            difference = abs(gains[i] - gains[j]) / ideal
            ndcg2 = difference * abs(discount(apart) - discount(apart + 1))
            if truncation == "all" and max(r[i], r[j]) > last:
                ndcg2 = ndcg2 / (1 - discount(max(r[i], r[j])))
            here, there = (discount(rank) if rank <= last else 0.0 for rank in (r[i], r[j]))
            lambdarank = difference * abs(here - there)
            weight = {
                "lambdarank": lambdarank,
                "ndcg1": gains[i] / ideal * here,
                "ndcg2": ndcg2,
                "ndcg2++": mu * ndcg2 + lambdarank,
            }[weighting]
            total = total + weight * torch.log2(1 + (-sigma * (s[i] - s[j])).exp())
        return total

    return loss


def lambda_precision(k: int, rel: float = 1, sigma: float = 1.0) -> Plain:
    """LambdaLoss for P@k: pairs that a swap moves across the cut-off."""

    def loss(s: Tensor, y: Tensor) -> Tensor:
        r, b = ranks(s), (y >= rel).double()
        total = s.sum() * 0
        for i, j in ordered_pairs(y):
            weight = abs(b[i] - b[j]) * (int(r[i] <= k) != int(r[j] <= k)) / k
            total = total + weight * torch.log2(1 + (-sigma * (s[i] - s[j])).exp())
        return total

    return loss


def mse(s: Tensor, y: Tensor) -> Tensor:
    return ((s - y) ** 2).mean()


def rmse(levels: float = 5.0) -> Plain:
    return lambda s, y: ((levels / (1 + (-s).exp()) - y) ** 2).mean().sqrt()


def bce(rel: float = 1.0, weight: float = 1.0, prior: float = 0.5) -> Plain:
    def loss(s: Tensor, y: Tensor) -> Tensor:
        p, b = 1 / (1 + (1 - prior) / prior * (-s).exp()), (y >= rel).double()
        return -(weight * b * p.log() + (1 - b) * (1 - p).log()).mean()

    return loss


def margin_mse(s: Tensor, y: Tensor) -> Tensor:
    pairs = [(i, j) for i in range(len(y)) for j in range(len(y)) if i != j]
    return _mean([((s[i] - s[j]) - (y[i] - y[j])) ** 2 for i, j in pairs], s)


def kl_divergence(temperature: float = 1.0) -> Plain:
    def loss(s: Tensor, y: Tensor) -> Tensor:
        p, q = (y / temperature).exp(), (s / temperature).exp()
        p, q = p / p.sum(), q / q.sum()
        return temperature**2 * (p * (p / q).log()).sum()

    return loss
