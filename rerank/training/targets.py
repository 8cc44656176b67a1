"""What each term of a training learns from, per candidate, and the loss of a micro-batch by it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rerank.errors import UserError
from rerank.kernels.memory import sent
from rerank.lists.sampling import Sampler
from rerank.lists.view import Lists
from rerank.losses.base import Criterion
from rerank.losses.terms import GRADES, Term, terms_of
from rerank.storage.arrow import Array
from rerank.training.batches import ListSample, pad
from rerank.training.gradient import Chunked

AT_ONCE = 1024
"""Lists whose targets are padded together when usable lists are counted."""

ELEMENTS, ON_A_GPU = 2048, 1 << 20
"""Above this many padded scores, bucket lists by length for the loss; below it, a further call costs more than padding.
A GPU waits for calls, not for scores, so it takes a micro-batch at once."""

DEAD = 1e-7
"""A list is dead to its loss, at the scores as they are, where no score's derivative is larger: float32's rounding unit
for losses of about 1."""


class Targets:
    """The targets of training lists, by term."""

    def __init__(self, lists: Lists, criterion: Criterion) -> None:
        self.lists = lists
        self.terms = terms_of(criterion)
        self.sums = [copy.copy(term.loss) for term in self.terms]  # the loss of each, summed over lists
        for loss in self.sums:
            loss.reduction = "sum"
        # A number for each candidate, ``[T]``; NaN where the column has none, or, of grades, nobody judged the query.
        self.flat = [self._of(term) for term in self.terms]

    def _of(self, term: Term) -> Array:
        if term.target == GRADES:
            grades, judged = self.lists.grades, self.lists.judged
            return grades if judged.all() else np.where(np.repeat(judged, self.lists.lengths), grades, np.nan)
        values = self.lists.column(term.target)
        if term.scaling is not None:
            given, values = values, np.empty(len(values), dtype=np.float32)
            for start, end in zip(self.lists.offsets[:-1].tolist(), self.lists.offsets[1:].tolist(), strict=True):
                values[start:end] = term.scaling(given[start:end].astype(np.float64))
        if term.loss.target == "grades" and (low := np.fmin.reduce(values, initial=0.0)) < 0:
            raise UserError(
                f"loss: {term.loss!r} takes grades, and column {term.target!r} goes down to {low:g}; "
                "scale it (MinMax, ReciprocalRank), or take a loss of values such as MarginMSE"
            )
        return values

    def padded(self, term: int, rows: Sequence[Array]) -> tuple[Tensor, Tensor]:
        """Targets of a term, ``[B, N]`` float32, and the mask of the candidates that have one."""
        return known(*pad([self.flat[term][part] for part in rows]))

    def learnable(self, term: int, rows: Sequence[Array]) -> Array:
        """Which lists can teach a term, ``[B]`` bool."""
        learnable: Array = self.terms[term].loss.learnable(*self.padded(term, rows)).numpy()
        return learnable

    def usable(self, sampler: Sampler | None = None) -> Array:
        """Positions of the lists from which a term can learn, of what the sampler may show of them."""
        useful = np.zeros(len(self.lists), dtype=bool)
        starts, ends = self.lists.offsets[:-1], self.lists.offsets[1:]
        for first in range(0, len(self.lists), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            rows = [np.arange(start, end) for start, end in zip(starts[part], ends[part], strict=True)]
            if sampler is not None:
                rows = [row[sampler.reach(self.lists.grades[row])] for row in rows]
            for term in range(len(self.terms)):
                useful[part] |= self.learnable(term, rows)
        return np.flatnonzero(useful)


def known(labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Labels with 0 in place of NaN, and the mask without these."""
    absent = labels.isnan()
    return labels.masked_fill(absent, 0.0), mask & ~absent


def check_sampler(lists: Lists, sampler: Sampler) -> None:
    """Refuse a sampler that chooses by grades where queries have none, or by a column that is not there."""
    if sampler.by_grades and (missing := len(lists) - int(lists.judged.sum())):
        raise UserError(
            f"sampler: {type(sampler).__name__} chooses by grades, which {missing} of {len(lists)} training queries "
            "do not have; take Full"
        )
    for name in sampler.columns:
        lists.column(name)


@dataclass(frozen=True)
class ActiveTerm:
    """A term as it counts in one step, its sum divided by ``over``: for a mean, the whole batch's learnable lists."""

    number: int
    weight: float
    over: int


class PieceLoss:
    """The loss of some lists by their scores; what is noted stays on the device, so that no host waits for it."""

    chunked: Chunked

    def __init__(
        self,
        groups: list[ListSample],
        tokens: int,
        terms: Sequence[ActiveTerm],
        targets: Targets,
        device: torch.device,
        scale: float | None = None,
    ) -> None:
        self.groups, self.tokens = groups, tokens
        self._terms, self._targets, self._device, self._scale = terms, targets, device, scale
        self._lengths = np.array([len(group.rows) for group in groups])
        self.starts = np.cumsum(self._lengths) - self._lengths
        smallest_weight = min(term.weight / term.over for term in terms)
        self._negligible = smallest_weight * DEAD * (1.0 if scale is None else scale)
        self.dead = torch.zeros((), device=device)  # after the backward pass: lists without a gradient (DEAD)

    def __call__(self, flat: Tensor) -> Tensor:
        """The loss of scores ``[N]``, list after list."""
        totals = [torch.zeros((), device=self._device) for _ in self._terms]
        for chosen in alike(self._lengths, ELEMENTS if self._device.type == "cpu" else ON_A_GPU):
            scores = self._padded(flat, chosen)
            scores.register_hook(self._count_dead)
            seeds = sent(torch.tensor([self.groups[i].seed for i in chosen]), self._device)
            rows = [self.groups[i].rows for i in chosen]
            for i, term in enumerate(self._terms):
                labels, mask = (sent(value, self._device) for value in self._targets.padded(term.number, rows))
                totals[i] = totals[i] + self._targets.sums[term.number](scores, labels, mask, seeds=seeds)
        weighted = [total / term.over * term.weight for total, term in zip(totals, self._terms, strict=True)]
        loss = torch.stack(weighted).sum()
        self.numbers = torch.stack([loss.detach(), *flat.detach().aminmax()])  # with the lowest and highest score
        return loss if self._scale is None else loss * self._scale

    def _padded(self, flat: Tensor, chosen: Array) -> Tensor:
        """The scores of some of the lists, ``[B, N]``, zero where padded."""
        lengths = torch.from_numpy(self._lengths[chosen])[:, None]
        real = torch.arange(int(lengths.max())) < lengths
        positions = torch.from_numpy(self.starts[chosen])[:, None] + torch.arange(real.shape[1])
        places = sent(positions.masked_fill_(~real, 0), self._device)
        return flat[places.flatten()].view_as(places).masked_fill(sent(~real, self._device), 0.0)

    def _count_dead(self, gradient: Tensor) -> None:
        self.dead += (gradient.abs().amax(dim=1) <= self._negligible).sum()


def alike(lengths: Array, elements: int) -> list[Array]:
    """Parts of similar length, as positions; about two fifths of one, or of ``elements``, are padding at most."""
    order = np.argsort(-lengths, kind="stable")
    parts, start = [], 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = max(start + -(-elements // longest), start + int((lengths[order[start:]] > 0.6 * longest).sum()))
        parts.append(order[start:stop])
        start = stop
    return parts
