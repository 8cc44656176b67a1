"""What each term of a training learns from, per candidate: judged grades, or the values of a column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from torch import Tensor

from rerank.errors import UserError
from rerank.lists.sampling import Sampler
from rerank.lists.view import Lists
from rerank.losses.base import Criterion
from rerank.losses.terms import GRADES, Term, terms_of
from rerank.storage.arrow import Array
from rerank.training.batches import pad

AT_ONCE = 1024
"""Lists whose targets are padded together when usable lists are counted."""


class Targets:
    """The targets of training lists, by term.

    Attributes:
        flat: for every term ``[T]`` numbers, one per candidate; NaN where there is none: no value in the column, or, of
            grades, a query that nobody judged.
    """

    def __init__(self, lists: Lists, criterion: Criterion) -> None:
        self.lists = lists
        self.terms = terms_of(criterion)
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
                "scale it (MinMax, Sigmoid, ReciprocalRank), or take a loss of values such as MarginMSE"
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
