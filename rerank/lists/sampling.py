"""What of a list a training step sees, decided by (seed, epoch, query id) alone."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod

import numpy as np

from rerank.lists.ragged import Array


def seed_of(seed: int, epoch: int, query_id: str) -> int:
    """A 63-bit seed for one list in one epoch: the same in every process, batch and Python."""
    data = hashlib.sha256(f"{seed}/{epoch}/{query_id}".encode()).digest()
    return int.from_bytes(data[:8], "little") >> 1


class Sampler(ABC):
    """Chooses candidates of a list, in the first stage's order."""

    @abstractmethod
    def sample(self, labels: Array, seed: int) -> Array:
        """Positions of the chosen candidates.

        Args:
            labels: ``[N]`` the grades of the list, best first by first stage.
            seed: decides every random choice.
        """


class Full(Sampler):
    """The whole list, or its best ``depth`` candidates by the first stage."""

    def __init__(self, depth: int | None = None) -> None:
        """Set the depth.

        Args:
            depth: candidates per list; null takes all that the list has.
        """
        if depth is not None and depth < 1:
            raise ValueError(f"depth must be at least 1, not {depth}")
        self.depth = depth

    def sample(self, labels: Array, seed: int) -> Array:
        """The first ``depth`` positions."""
        return np.arange(len(labels) if self.depth is None else min(self.depth, len(labels)))


class PositivesNegatives(Sampler):
    """Up to ``positives`` relevant candidates and ``negatives`` others, drawn uniformly without replacement."""

    def __init__(self, positives: int = 2, negatives: int = 10, depth: int = 150) -> None:
        """Set the numbers.

        Args:
            positives: relevant candidates (grade above 0) per list at most.
            negatives: other candidates per list at most.
            depth: how deep in the first stage's order the others are looked for; relevant ones may lie deeper.
        """
        if positives < 1 or negatives < 1:
            raise ValueError(f"positives and negatives must be at least 1, not {positives} and {negatives}")
        self.positives, self.negatives, self.depth = positives, negatives, depth

    def sample(self, labels: Array, seed: int) -> Array:
        """Draw relevant candidates, then others."""
        rng, chosen = np.random.default_rng(seed), []
        for pool, count in (
            (np.flatnonzero(labels > 0), self.positives),
            (np.flatnonzero(labels[: self.depth] <= 0), self.negatives),
        ):
            chosen.append(rng.choice(pool, size=min(count, len(pool)), replace=False))
        return np.sort(np.concatenate(chosen)).astype(np.int64)
