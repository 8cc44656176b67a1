"""The lists of each step, the same in every process and after every interruption, their targets, and their loss."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rerank.errors import UserError
from rerank.kernels.memory import sent
from rerank.lists.sampling import Sampler, seed_of
from rerank.lists.view import Lists
from rerank.losses.base import Criterion
from rerank.losses.terms import GRADES, Term, terms_of
from rerank.storage.arrow import Array

AT_ONCE = 1024
"""Lists whose targets are padded together when usable lists are counted."""

CPU_ELEMENTS, GPU_ELEMENTS = 2048, 1 << 20
"""Above this number of padded scores, bucket lists by length; below it, another call costs more than the padding."""


@dataclass(frozen=True)
class ListSample:
    """The candidates of one list in a step; ``rows`` are their positions in the lists' flat arrays, ``[n]``."""

    query: int
    rows: Array
    seed: int


class Batches:
    """Effective batches, decided by the seed and the step alone.

    Args:
        usable: positions of the lists from which something can be learned.
        batch_size: lists per step, each standing for ``sampler.queries`` lists.
        steps_per_epoch: steps of an epoch; None passes once over the lists, the last batch being smaller.
    """

    def __init__(
        self, lists: Lists, usable: Array, sampler: Sampler, batch_size: int, steps_per_epoch: int | None, seed: int
    ) -> None:
        self.lists, self.usable, self.sampler, self.seed = lists, usable, sampler, seed
        self.left_out = sampler.left_out(lists)
        self.batch_size = batch_size * sampler.queries
        self.per_epoch = len(usable) if steps_per_epoch is None else steps_per_epoch * self.batch_size
        self.steps_per_epoch = -(-self.per_epoch // self.batch_size)
        self._shuffled: tuple[int, Array] = -1, usable

    def epoch(self, epoch: int, start: int = 0) -> Iterator[list[ListSample]]:
        """Yield the batches of an epoch, from its step ``start`` on."""
        end = (epoch + 1) * self.per_epoch
        for first in range(epoch * self.per_epoch + start * self.batch_size, end, self.batch_size):
            positions = range(first, min(first + self.batch_size, end))
            yield [self._sample(*divmod(position, len(self.usable))) for position in positions]

    def _sample(self, visit: int, position: int) -> ListSample:
        """Sample the list at a position of the ``visit``-th pass over all lists."""
        if self._shuffled[0] != visit:
            rng = np.random.default_rng(seed_of(self.seed, visit, "order"))
            self._shuffled = visit, rng.permutation(self.usable)
        query = int(self._shuffled[1][position])
        start, end = self.lists.offsets[query], self.lists.offsets[query + 1]
        seed = seed_of(self.seed, visit, self.lists.query_ids[query])
        left_out = () if self.left_out is None else (self.left_out[start:end],)  # a user's sampler may take no third
        chosen = self.sampler.sample(self.lists.grades[start:end], seed, *left_out)
        return ListSample(query, start + np.arange(end - start)[chosen], seed)  # or a mask


def pad(values: list[Array]) -> tuple[Tensor, Tensor]:
    """Pad rows to a tensor, ``[B, N]`` float32; return it and its mask, True for real documents."""
    lengths = torch.tensor([len(row) for row in values])
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    flat = torch.from_numpy(np.concatenate(values)).float()
    return torch.zeros(mask.shape).masked_scatter_(mask, flat), mask


class Targets:
    """The targets of training lists, by term."""

    def __init__(self, lists: Lists, criterion: Criterion) -> None:
        self.lists = lists
        self.terms = terms_of(criterion)
        self.sums = [copy.copy(term.loss) for term in self.terms]  # the loss of each, summed over lists
        for loss in self.sums:
            loss.reduction = "sum"
        # a number per candidate, ``[T]``: NaN if the column lacks it, or nobody judged the query
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
        """Pad the targets of a term, ``[B, N]`` float32; return them and the mask of the candidates that have one."""
        labels, mask = pad([self.flat[term][part] for part in rows])
        absent = labels.isnan()
        return labels.masked_fill(absent, 0.0), mask & ~absent

    def learnable(self, term: int, rows: Sequence[Array]) -> Array:
        """Test for each list whether a term can learn from it, ``[B]`` bool."""
        learnable: Array = self.terms[term].loss.learnable(*self.padded(term, rows)).numpy()
        return learnable

    def usable(self, sampler: Sampler | None = None) -> Array:
        """Find the positions of the lists from which a term can learn, if only the sampler's reach counts.

        Raises:
            UserError: there are none.
        """
        useful = np.zeros(len(self.lists), dtype=bool)
        starts, ends = self.lists.offsets[:-1], self.lists.offsets[1:]
        for first in range(0, len(self.lists), AT_ONCE):
            part = slice(first, first + AT_ONCE)
            rows = [np.arange(start, end) for start, end in zip(starts[part], ends[part], strict=True)]
            if sampler is not None:
                rows = [row[sampler.reach(self.lists.grades[row])] for row in rows]
            for term in range(len(self.terms)):
                useful[part] |= self.learnable(term, rows)
        if not useful.any():
            raise UserError(f"{self.lists}: no list has anything to learn from")
        return np.flatnonzero(useful)

    def samples(self, positions: Array, seed: int) -> list[ListSample]:
        """Take lists whole, each with a seed of its own."""
        ends = self.lists.offsets
        ids = self.lists.query_ids
        return [ListSample(i, np.arange(ends[i], ends[i + 1]), seed_of(seed, 0, ids[i])) for i in positions.tolist()]


def check_sampler(lists: Lists, sampler: Sampler) -> None:
    """Raise if a sampler chooses by grades that some queries lack, or by a column that is not there."""
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


class MicroBatchLoss:
    """Compute the loss of some lists from their scores.

    Attributes:
        value: the loss, not finite if a score is not; on the device, so that the host does not wait.
    """

    def __init__(
        self, samples: list[ListSample], terms: Sequence[ActiveTerm], targets: Targets, device: torch.device
    ) -> None:
        self.terms, self._sums, self._device = terms, targets.sums, device
        lengths = np.array([len(sample.rows) for sample in samples])
        self.documents = int(lengths.sum())
        self.value = torch.zeros((), device=device)
        starts, self._groups = np.cumsum(lengths) - lengths, []
        for chosen in bucket_by_length(lengths, CPU_ELEMENTS if device.type == "cpu" else GPU_ELEMENTS):
            real = torch.arange(int(lengths[chosen].max())) < torch.from_numpy(lengths[chosen])[:, None]
            places = torch.from_numpy(starts[chosen])[:, None] + torch.arange(real.shape[1])
            seeds, rows = torch.tensor([samples[i].seed for i in chosen]), [samples[i].rows for i in chosen]
            given = [targets.padded(term.number, rows) for term in terms]
            group = places.masked_fill_(~real, 0), ~real, seeds, *(tensor for both in given for tensor in both)
            self._groups.append([sent(tensor, device) for tensor in group])

    def __call__(self, flat: Tensor, draw: int = 0) -> Tensor:
        """Compute the loss of scores ``[N]``, list after list; random choices depend on the number of the draw."""
        totals = [torch.zeros((), device=self._device) for _ in self.terms]
        for places, padding, seeds, *given in self._groups:
            scores = flat[places.flatten()].view_as(places).masked_fill(padding, 0.0)
            drawn = (seeds + draw) & (2**63 - 1) if draw else seeds
            for i, term in enumerate(self.terms):
                labels, mask = given[2 * i : 2 * i + 2]
                totals[i] = totals[i] + self._sums[term.number](scores, labels, mask, seeds=drawn)
        weighted = [total / term.over * term.weight for total, term in zip(totals, self.terms, strict=True)]
        loss = torch.stack(weighted).sum()
        self.value = loss.detach() + 0.0 * flat.detach().sum()
        return loss


def bucket_by_length(lengths: Array, elements: int) -> list[Array]:
    """Group lists of similar length, as positions; padding is at most about two fifths of a group."""
    order = np.argsort(-lengths, kind="stable")
    parts, start = [], 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = max(start + -(-elements // longest), start + int((lengths[order[start:]] > 0.6 * longest).sum()))
        parts.append(order[start:stop])
        start = stop
    return parts
