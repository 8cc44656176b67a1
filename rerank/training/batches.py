"""The lists of each step, the same in every process and after every interruption."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rerank.lists.sampling import Sampler, seed_of
from rerank.lists.view import Lists
from rerank.storage.arrow import Array


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
