"""Plain definitions of relaxations and measures on one list, for autograd."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.losses.reference import Plain, ranks

Indicators = Callable[[Tensor], Tensor]
"""Scores ``[N]`` -> ``[N, N]``, the weight of document j at rank r."""

SoftRank = Callable[[Tensor, Tensor], Tensor]
"""Scores and grades ``[N]`` -> ``[N]`` ranks."""


@dataclass(frozen=True)
class Spec:
    """A measure: its ir-measures name in parts."""

    name: str
    k: int | None = None
    rel: int = 1
    exponential: bool = False
    max_rel: int | None = None

    def __str__(self) -> str:
        inside = [f"rel={self.rel}"] if self.rel > 1 else []
        inside += ["dcg='exp-log2'"] if self.exponential else []
        inside += [f"max_rel={self.max_rel}"] if self.max_rel else []
        return self.name + (f"({','.join(inside)})" if inside else "") + (f"@{self.k}" if self.k else "")

    def gain(self, y: Tensor) -> Tensor:
        return 2**y - 1 if self.exponential else y

    def binary(self, y: Tensor) -> Tensor:
        return (y >= self.rel).double()

    def stops(self, y: Tensor) -> Tensor:
        top = y.max() if self.max_rel is None else torch.tensor(float(self.max_rel))
        return (2 ** y.clamp(max=float(top)) - 1) / 2**top

    def depth(self, y: Tensor) -> int:
        return min(self.k or len(y), len(y))


def _dcg(gains: Tensor) -> Tensor:
    return sum(g / math.log2(r + 1) for r, g in enumerate(gains, start=1))


def _err(stops: Tensor) -> Tensor:
    total, reach = torch.zeros(()), torch.ones((), dtype=torch.float64)
    for rank, stop in enumerate(stops, start=1):
        total, reach = total + reach * stop / rank, reach * (1 - stop)
    return total


def _best(y: Tensor, depth: int) -> Tensor:
    return y.sort(descending=True).values[:depth]


def from_indicators(spec: Spec, matrix: Tensor, y: Tensor, gain_of: str = "documents") -> Tensor:
    """A measure from rank indicators."""
    depth, rows = spec.depth(y), matrix[: spec.depth(y)]
    b = spec.binary(y)
    hits = rows @ b
    if spec.name == "P":
        return hits.sum() / (spec.k or len(b))
    if spec.name == "AP":
        return sum(hits[r] * hits[: r + 1].sum() / (r + 1) for r in range(depth)) / b.sum()
    if spec.name == "nDCG":
        gains = rows @ spec.gain(y) if gain_of == "documents" else spec.gain(rows @ y)
        return _dcg(gains) / _dcg(_best(spec.gain(y), depth))
    if spec.name == "nERR":
        return _err(rows @ spec.stops(y)) / _err(_best(spec.stops(y), depth))
    assert spec.name == "RR"
    return _err(hits)


def steepness(s: Tensor) -> Tensor:
    """3 over the spread of the scores, which is at least .001 and counts as 1 from there on; constant."""
    return 3 / s.detach().std(correction=0).clamp(min=1e-3, max=1)


def in_scores(spec: Spec, s: Tensor) -> Tensor:
    """Distance of documents above the middle between the k-th score and the next."""
    if spec.k >= len(s):
        return torch.ones_like(s)
    ordered = s.detach().sort(descending=True).values
    middle = (ordered[spec.k - 1] + ordered[spec.k]) / 2
    chance = torch.sigmoid(steepness(s) * (s.detach() - middle))
    near = chance * (1 - chance)
    threshold = middle + (near * (s - s.detach())).sum() / near.sum()
    return torch.sigmoid(steepness(s) * (s - threshold))


def from_ranks(
    spec: Spec, r: Tensor, s: Tensor, y: Tensor, beta: float | None, scores: bool = False, shift: float = 0.5
) -> Tensor:
    """A measure from soft ranks; beta None: ranks of exact value, truncated by that.

    scores: documents are compared by scores rather than by ranks; where ranks are exact, in the gradient only.
    shift: what is added to the cut-off before ranks are compared with it; 0 in Qin, Liu and Li 2010.
    """
    depth, exact, b = spec.depth(y), ranks(s), spec.binary(y)
    order, documents = s.argsort(descending=True), range(len(y))
    if spec.k is None:
        inside = torch.ones_like(s)
    elif scores:
        inside = in_scores(spec, s)
        if beta is None:
            inside = (exact <= spec.k).double() + inside - inside.detach()
    else:
        inside = (exact <= spec.k).double() if beta is None else torch.sigmoid(beta * (spec.k + shift - r))

    def behind(i: int, j: int) -> Tensor:
        return torch.sigmoid(steepness(s) * (s[j] - s[i]) if scores else beta * (r[i] - r[j]))

    if spec.name == "nDCG":
        return (spec.gain(y) * inside / torch.log2(r + 1)).sum() / _dcg(_best(spec.gain(y), depth))
    if spec.name == "P":
        return (b * inside * (exact / r if beta is None else 1)).sum() / (spec.k or len(b))
    if spec.name == "nERR":
        stops, reach, total = spec.stops(y), 1.0, torch.zeros(())
        for i in order if scores else order[:depth]:
            total = total + reach * stops[i] / r[i] * (inside[i] if scores else 1)
            reach = reach * (1 - stops[i])
        return total / _err(_best(stops, depth))
    if spec.name == "AP" and beta is None:
        hits = [b[i] * inside[i] / (place + 1) for place, i in enumerate(order)]
        share = [sum(hits[int(exact[i]) - 1 :]) for i in documents]
        return sum(b[i] * exact[i] / r[i] * share[i] for i in documents) / b.sum()
    if spec.name == "AP":
        ahead = [1 + sum(b[j] * behind(i, j) for j in documents if j != i) for i in documents]
        return sum(b[i] * inside[i] / r[i] * ahead[i] for i in documents) / b.sum()
    assert spec.name == "RR"
    if beta is None:
        first = next(i for i in order if b[i])
        return inside[first] / r[first]
    total = torch.zeros(())
    for i in documents:
        others = math.prod(1 - b[j] * behind(i, j) for j in documents if j != i)
        total = total + b[i] * inside[i] / r[i] * others
    return total


def smooth_i(alpha: float = 1.0, delta: float = 0.1, stop_gradient: bool = True) -> Indicators:
    def indicators(s: Tensor) -> Tensor:
        shifted, rows = s - s.min(), []
        for rank in range(len(s)):
            factor = torch.ones_like(s)
            for row in rows[:rank]:
                factor = factor * (1 - (row.detach() if stop_gradient else row) - delta)
            rows.append((alpha * shifted * factor).softmax(0))
        return torch.stack(rows)

    return indicators


def neural_sort(tau: float = 1.0, sinkhorn: int = 30, tolerance: float = 1e-6) -> Indicators:
    def indicators(s: Tensor) -> Tensor:
        n, apart = len(s), (s[:, None] - s[None, :]).abs().sum(dim=1)
        p = torch.stack([(((n + 1 - 2 * r) * s - apart) / tau).softmax(0) for r in range(1, n + 1)])
        return _balanced(p, sinkhorn, tolerance)

    return indicators


def _balanced(p: Tensor, sinkhorn: int = 30, tolerance: float = 1e-6) -> Tensor:
    for done in range(sinkhorn):
        if done and float((p.detach().sum(dim=0) - 1).abs().max()) <= tolerance:
            break
        p = p / p.sum(dim=0, keepdim=True)
        p = p / p.sum(dim=1, keepdim=True)
    return p


def neural_sort_transposed(spec: Spec) -> Plain:
    """NeuralNDCG's Eq 6: the transposed matrix is balanced, and a document has an expected discount."""

    def loss(s: Tensor, y: Tensor) -> Tensor:
        p = _balanced(neural_sort(sinkhorn=0)(s).T)
        discounts = torch.tensor([1 / math.log2(r + 2) if r < spec.depth(y) else 0.0 for r in range(len(y))])
        return 1 - (spec.gain(y) * (p @ discounts.double())).sum() / _dcg(_best(spec.gain(y), spec.depth(y)))

    return loss


def transport(epsilon: float = 0.1, iterations: int = 50) -> Indicators:
    def indicators(s: Tensor) -> Tensor:
        n = len(s)
        if n == 1:
            return torch.ones(1, 1, dtype=s.dtype)
        z = torch.sigmoid((s - s.mean()) / s.std(correction=0))
        anchors = torch.tensor([(n - r) / (n - 1) for r in range(1, n + 1)], dtype=s.dtype)
        logs = -((z[None, :] - anchors[:, None]) ** 2) / epsilon
        for _ in range(iterations):
            logs = logs - logs.logsumexp(dim=0, keepdim=True)
            logs = logs - logs.logsumexp(dim=1, keepdim=True)
        return logs.exp()

    return indicators


def soft_sort(tau: float | None = 1.0) -> Indicators:
    def indicators(s: Tensor) -> Tensor:
        apart = (s.sort(descending=True).values[:, None] - s[None, :]).abs()
        return (-apart * (1 / tau if tau else steepness(s))).softmax(dim=1)

    return indicators


def approx(alpha: float | None = 10.0) -> SoftRank:
    return lambda s, y: 0.5 + torch.sigmoid((alpha or steepness(s)) * (s[None, :] - s[:, None])).sum(dim=1)


def fast_soft_sort(strength: float | None = 1.0) -> SoftRank:
    """The projection by the max-min formula of isotonic regression: block values, not a pooling algorithm."""

    def soft(s: Tensor, y: Tensor) -> Tensor:
        n, order = len(s), s.argsort()
        z, rho = -s[order] / (strength or 12 / (steepness(s) * max(1, n - 1))), torch.arange(n, 0, -1, dtype=s.dtype)

        def block(j: int, k: int) -> Tensor:
            return (z[j : k + 1] - rho[j : k + 1]).mean()

        fit = [max(min(block(j, k) for j in range(i + 1)) for k in range(i, n)) for i in range(n)]
        return torch.zeros_like(s).scatter(0, order, z - torch.stack(fit))

    return soft


def twin_sigmoid(gradient: int = 3, given: float | None = 1.0) -> SoftRank:
    """Exact ranks; the stated gradient enters as a sum that is 0 and has these derivatives."""

    def soft(s: Tensor, y: Tensor) -> Tensor:
        apart = s[:, None] - s[None, :]
        alpha = given or steepness(s)
        z, u = torch.sigmoid(alpha * apart.detach()), (y[:, None] - y[None, :]).sign()
        w = {
            1: alpha * z * (1 - z),
            2: u * alpha * z * (1 - z),
            3: (u > 0) * 2 * alpha * (1 - z) - (u < 0) * 2 * alpha * z,
        }[gradient]
        return ranks(s) - (w * (apart - apart.detach())).fill_diagonal_(0).sum(dim=1)

    return soft


def one_minus(spec: Spec, indicators: Indicators | None = None, soft: SoftRank | None = None, **settings: Any) -> Plain:
    """Return the loss of a measure with a relaxation."""

    def loss(s: Tensor, y: Tensor) -> Tensor:
        if indicators is not None:
            return 1 - from_indicators(spec, indicators(s), y, **settings)
        return 1 - from_ranks(spec, soft(s, y), s, y, **settings)

    return loss
