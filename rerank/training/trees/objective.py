"""Any loss as the objective of gradient-boosted trees."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import Tensor

from rerank.errors import UserError
from rerank.lists.sampling import seed_of
from rerank.storage.arrow import Array
from rerank.training.batches import PaddedLists, padded_lists
from rerank.training.piece import DEAD
from rerank.training.targets import Targets, known


class Objective:
    r"""Gradient and Hessian of a loss, summed over the lists from which something can be learned.

    Of several terms each counts as in a network's training (:class:`rerank.losses.Terms`): by its mean over the lists
    from which it can learn, times the number of all lists.

    The gradient :math:`g_i = \partial \sum_q \ell_q / \partial s_i` is autograd's. A tree's leaf has the value
    :math:`-\eta \sum g_i / (\sum h_i + \lambda)`, so that the Hessian decides how far a step goes. That of a direct
    metric has a diagonal of either sign, and some losses have a gradient that is no derivative, so it is not taken:
    :math:`h_i` is the mean of :math:`|g|` over all documents of these lists. A leaf is then the mean gradient of its
    documents (Friedman's gradient boosting) in units of the typical one: the learning rate means the same for every
    loss and measure. Both are divided by that mean, which changes no leaf and gives :math:`h_i = 1`: what the
    libraries ask of a leaf's Hessian, and add to it, counts documents. Documents of other lists have 0 and 0.

    The mean by list, ``|g|`` itself and the curvature (Hutchinson's estimate) do not do better by more than chance on
    MQ2008 and OHSUMED, for five losses; the curvature would also cost a second gradient per tree.

    Args:
        usable: positions of the lists from which something can be learned.
    """

    def __init__(self, targets: Targets, usable: Array, seed: int, trees: int = 1) -> None:
        lists = targets.lists
        self.targets, self.trees = targets, trees
        self.losses = [copy.copy(term.loss) for term in targets.terms]
        for loss in self.losses:
            loss.reduction = "sum"
        self.padded = padded_lists(lists, usable)
        self.lists = len(usable)
        self.taught = np.zeros(lists.size, dtype=bool)
        for batch in self.padded:
            self.taught[batch.rows[batch.mask].numpy()] = True
        self.factors = [self.lists / self._over(number) for number in range(len(self.losses))]
        self._seeds = np.array([seed_of(seed, 0, query) for query in lists.query_ids], dtype=np.int64)
        self.calls = 0
        self.value = float("nan")
        self.dead = 0

    def _over(self, number: int) -> int:
        """What the sum of a term is divided by: for a mean, the lists from which this term can learn."""
        term, values = self.targets.terms[number], self.targets.flat[number]
        if term.loss.reduction == "sum":
            return 1
        learnable = (term.loss.learnable(*known(_at(values, batch), batch.mask)) for batch in self.padded)
        return max(1, sum(int(some.sum()) for some in learnable))

    def gradient(self, scores: Array, draw: int = 0) -> tuple[Array, float]:
        """The derivative of the sum of the losses by every score, ``[T]`` float32, and the mean loss of a list."""
        flat = torch.from_numpy(np.asarray(scores, dtype=np.float32))
        gradient, total, self.dead = torch.zeros(len(flat)), 0.0, 0
        share = min(1.0, draw / self.trees)
        weights = [term.weight_at(share) * by for term, by in zip(self.targets.terms, self.factors, strict=True)]
        smallest = min((weight for weight in weights if weight), default=1.0) * DEAD
        for batch in self.padded:
            padded = flat[batch.rows].requires_grad_()
            seeds = torch.from_numpy((self._seeds[batch.lists] + draw) & (2**63 - 1))
            loss = (padded * 0.0).sum()  # on the graph, whatever the weights
            for own, weight, values in zip(self.losses, weights, self.targets.flat, strict=True):
                if weight:
                    labels, mask = known(_at(values, batch), batch.mask)
                    loss = loss + weight * own(padded, labels, mask, seeds=seeds)
            loss.backward()
            assert padded.grad is not None
            self.dead += int((padded.grad.abs().amax(dim=1) <= smallest).sum())
            gradient[batch.rows[batch.mask]] = padded.grad[batch.mask]
            total += loss.item()
        return gradient.numpy(), total / max(1, self.lists)

    def __call__(self, scores: Array) -> tuple[Array, Array]:
        """Gradient and Hessian, ``[T]`` each; ``value`` is the mean loss then."""
        gradient, self.value = self.gradient(scores, self.calls)
        self.calls += 1
        hessian = np.where(self.taught, np.abs(gradient[self.taught]).mean(), np.float32(0))
        scale = float(hessian[self.taught].mean()) or 1.0
        if not np.isfinite([self.value, scale]).all():
            what = "gradient" if np.isfinite(self.value) else "loss"
            raise UserError(
                f"the {what} is not finite at tree {self.calls}, scores from {scores.min():g} to {scores.max():g}; "
                "lower model.learning_rate"
            )
        return gradient / scale, hessian / scale


def _at(values: Array, batch: PaddedLists) -> Tensor:
    return torch.from_numpy(values[batch.rows.numpy()]).float()
