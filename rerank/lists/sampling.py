"""Samplers: choose candidates for a training step, from (seed, epoch, query id) alone."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from rerank.errors import UserError
from rerank.lists.view import Lists
from rerank.settings.arguments import Count, Described, NotNegative, Portion
from rerank.storage.arrow import Array

LARGEST = np.finfo(np.float32).max


def seed_of(seed: int, epoch: int, query_id: str) -> int:
    """Return a 63-bit seed for one list in one epoch: the same in every process, batch and Python."""
    data = hashlib.sha256(f"{seed}/{epoch}/{query_id}".encode()).digest()
    return int.from_bytes(data[:8], "little") >> 1


class Sampler(Described, ABC):
    """Chooses candidates of a list.

    Attributes:
        queries: lists of different queries that one list of ``batch_size`` stands for.
        by_grades: whether grades decide what is chosen, so that queries without judgments cannot be sampled.
    """

    queries: int = 1
    by_grades: bool = False

    columns: Sequence[str] = ()
    """Columns of the lists that decide what is chosen."""

    @abstractmethod
    def sample(self, labels: Array, seed: int, left_out: Array | None = None) -> Array:
        """Return the positions of the chosen candidates, ascending.

        Args:
            labels: ``[N]`` the grades of the list, best first.
            seed: decides every random choice.
            left_out: ``[N]`` bool, this list's part of the mask of :meth:`left_out`; None without a mask.
        """

    def left_out(self, lists: Lists) -> Array | None:
        """Return a mask of the candidates that are never chosen, ``[T]`` bool; None for none."""
        return None

    def reach(self, labels: Array) -> Array:
        """Return the positions that the sampler may choose, ascending; a list without a signal there is dropped."""
        return np.arange(len(labels))


class Full(Sampler):
    """The whole list, or its best ``depth`` candidates by the first stage.

    >>> import numpy as np
    >>> Full(depth=2).sample(np.array([0, 2, 0, 1]), seed=1).tolist()  # places in the list
    [0, 1]
    """

    def __init__(self, depth: Count | None = None) -> None:
        """Set the depth.

        Args:
            depth: candidates per list; None takes all that the list has.
        """
        self.depth = depth

    def sample(self, labels: Array, seed: int, left_out: Array | None = None) -> Array:
        return self.reach(labels)

    def reach(self, labels: Array) -> Array:
        return np.arange(len(labels) if self.depth is None else min(self.depth, len(labels)))


class Random(Sampler):
    """Candidates drawn uniformly without replacement, others in every epoch (NeuralNDCG's lists of 240 documents).

    A list of at most that length is taken whole. As its authors do it, candidates are drawn again while none of them is
    relevant and the list has one that is; nothing else looks at grades.

    >>> import numpy as np
    >>> len(Random(depth=3).sample(np.array([0, 2, 0, 1, 0]), seed=1))
    3
    """

    def __init__(self, depth: Count = 240) -> None:
        """Set the number.

        Args:
            depth: candidates per list.
        """
        self.depth = depth

    def sample(self, labels: Array, seed: int, left_out: Array | None = None) -> Array:
        if len(labels) <= self.depth:
            return np.arange(len(labels))
        rng, relevant = np.random.default_rng(seed), labels > 0
        while True:
            chosen = rng.choice(len(labels), size=self.depth, replace=False)
            if relevant[chosen].any() or not relevant.any():
                return np.sort(chosen)


class PositivesNegatives(Sampler):
    """Up to ``positives`` relevant candidates and ``negatives`` others, drawn uniformly without replacement.

    >>> import numpy as np
    >>> labels = np.array([0, 2, 0, 1, 0])
    >>> sorted(labels[PositivesNegatives(positives=1, negatives=2).sample(labels, seed=1)].tolist())
    [0, 0, 2]
    """

    by_grades = True

    def __init__(
        self,
        positives: Count = 2,
        negatives: Count = 10,
        depth: Count = 150,
        column: str | None = None,
        margin: NotNegative | None = None,
        ratio: Portion | None = None,
    ) -> None:
        """Set the numbers.

        Args:
            positives: relevant candidates (grade above 0) per list at most.
            negatives: other candidates per list at most.
            depth: how deep in the ranking the others are looked for; relevant ones may lie deeper.
            column: column of scores that show which others are as good as a relevant one, and may be relevant, too
                (Moreira et al., "NV-Retriever", 2024).
            margin: leave out others whose number is above the best relevant candidate's minus this.
            ratio: leave out others whose number is above this share of the best relevant candidate's, such as 0.95.
        """
        if (column is None) != (margin is None and ratio is None) or (margin is not None and ratio is not None):
            raise UserError("sampler: column and either margin or ratio belong together; give both or neither")
        self.positives, self.negatives, self.depth = positives, negatives, depth
        self.margin, self.ratio = margin, ratio
        self.columns = [] if column is None else [column]

    def left_out(self, lists: Lists) -> Array | None:
        """Return a mask of the candidates that may be relevant although they are not judged so."""
        if not self.columns:
            return None
        values, filled = lists.column(self.columns[0]), lists.lengths > 0
        of_relevant = np.where((lists.grades > 0) & ~np.isnan(values), values, -np.inf)
        best = np.full(len(lists), -np.inf)
        best[filled] = np.maximum.reduceat(of_relevant, lists.offsets[:-1][filled])
        best[np.isneginf(best)] = np.inf  # nothing to compare with
        below = self.margin or 0.0 if self.ratio is None else (1 - self.ratio) * np.minimum(np.abs(best), LARGEST)
        return (values > np.repeat(best - below, lists.lengths)) & (lists.grades <= 0)

    def sample(self, labels: Array, seed: int, left_out: Array | None = None) -> Array:
        others = labels <= 0 if left_out is None else (labels <= 0) & ~left_out
        pools = np.flatnonzero(labels > 0), np.flatnonzero(others[: self.depth])
        rng, counts = np.random.default_rng(seed), (self.positives, self.negatives)
        chosen = [rng.choice(pool, min(n, len(pool)), replace=False) for pool, n in zip(pools, counts, strict=True)]
        return np.sort(np.concatenate(chosen)).astype(np.int64)


class Pairs(Sampler):
    """Pairs of a relevant and another candidate of a query.

    With ``same_query``, ``n`` pairs of one query form its list: 2 n documents, on which a listwise loss is computed
    (Thonet et al. 2021, section 5.5, with n = 2). Without, a list is one pair, and ``n`` of them, of ``n`` different
    queries, take the place of every list of ``batch_size`` (MacAvaney et al. 2019, CEDR): a step sees as many
    documents, of more queries. Documents of different queries are never ranked against each other, so a listwise loss
    then sees two documents at a time. Pairs are drawn independently, so a candidate may be in several, scored for each;
    `PositivesNegatives` draws without replacement.

    >>> import numpy as np
    >>> labels = np.array([0, 1, 0, 1, 0])
    >>> sorted(labels[Pairs(n=2).sample(labels, seed=1)].tolist())
    [0, 0, 1, 1]
    """

    by_grades = True

    def __init__(self, n: Count = 2, same_query: bool = True) -> None:
        """Set the number of pairs.

        Args:
            n: pairs.
            same_query: whether they are of one query.
        """
        self.pairs = n if same_query else 1
        self.queries = 1 if same_query else n

    def sample(self, labels: Array, seed: int, left_out: Array | None = None) -> Array:
        """Draw relevant candidates, then as many others; a kind that the list lacks is left out."""
        rng, chosen = np.random.default_rng(seed), []
        for pool in (np.flatnonzero(labels > 0), np.flatnonzero(labels <= 0)):
            chosen.append(rng.choice(pool, size=self.pairs) if len(pool) else pool)
        return np.sort(np.concatenate(chosen)).astype(np.int64)
