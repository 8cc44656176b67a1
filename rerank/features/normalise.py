"""Normalise feature vectors within each query, or with statistics of the training lists."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from rerank.errors import UserError
from rerank.settings.arguments import Described
from rerank.storage.arrow import Array, blocks

ROWS = 16_384
"""Rows in float64 at a time."""

LARGEST = float(np.finfo(np.float32).max)


class Normaliser(Described, ABC):
    """Maps features to features of the same shape, float32 to float32; finite ones stay finite.

    Attributes:
        learned: names of the attributes that :meth:`fit` sets, numbers or arrays, which are saved with a model.
    """

    learned: ClassVar[Sequence[str]] = ()

    def fit(self, features: Array, offsets: Array) -> Self:
        """Learn from the training lists.

        Args:
            features: ``[n, F]`` float32.
            offsets: ``[Q + 1]`` where each list starts, and the last one ends.

        Raises:
            UserError: the settings do not suit these features.
        """
        return self

    @abstractmethod
    def apply(self, features: Array, offsets: Array) -> Array:
        """Normalise.

        Args:
            features: ``[n, F]`` float32, not changed.
            offsets: ``[Q + 1]`` where each list starts, and the last one ends.

        Returns:
            ``[n, F]`` float32, a new array.
        """

    def state(self) -> dict[str, Any]:
        """Return the learned values for JSON."""
        return {name: np.asarray(getattr(self, name)).tolist() for name in self.learned}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore the values of :meth:`state`."""
        for name in self.learned:
            setattr(self, name, np.array(state[name]))


class QueryZScore(Normaliser):
    """``(x - mean) / sd`` over the documents of each query; a feature that is constant in a query becomes 0.

    >>> import numpy as np
    >>> features = np.array([[1, 5], [3, 5]], dtype=np.float32)
    >>> QueryZScore().fit(features, np.array([0, 2])).apply(features, np.array([0, 2])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    def apply(self, features: Array, offsets: Array) -> Array:
        return _by_blocks(_zscore, features, offsets)


def _by_blocks(of: Callable[[Array, Array], Array], features: Array, offsets: Array) -> Array:
    """Apply a function to some lists at a time, given their lengths, ``[n, F]`` float32."""
    result = np.empty(features.shape, dtype=np.float32)
    for first, last in blocks(offsets, ROWS):
        rows = slice(int(offsets[first]), int(offsets[last]))
        result[rows] = of(features[rows], np.diff(offsets[first : last + 1]))
    return result


def _zscore(features: Array, lengths: Array) -> Array:
    lengths = lengths[lengths > 0]
    if not len(lengths):
        return features
    starts, values = np.cumsum(lengths) - lengths, features.astype(np.float64)
    values -= np.repeat(values[starts], lengths, axis=0)  # then constants are exactly 0, and large means do no harm
    values -= np.repeat(np.add.reduceat(values, starts) / lengths[:, None], lengths, axis=0)
    deviation = np.sqrt(np.add.reduceat(values * values, starts) / lengths[:, None])
    return values * np.repeat(_inverse(deviation), lengths, axis=0)


def _inverse(scale: Array) -> Array:
    """``1 / scale``, and 0 where that is 0."""
    return np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)


class Standardise(Normaliser):
    """``(x - mean) / sd`` with the mean and standard deviation of the training lists; constant features become 0.

    >>> import numpy as np
    >>> features = np.array([[1, 5], [3, 9]], dtype=np.float32)
    >>> Standardise().fit(features, np.array([0, 2])).apply(features, np.array([0, 2])).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    learned = ("mean", "deviation")

    def __init__(self) -> None:
        self.mean = self.deviation = np.zeros(0)

    def fit(self, features: Array, offsets: Array) -> Self:
        origin = features[0].astype(np.float64)  # constants are exactly 0 from here

        def mean(of: Callable[[Array], Array]) -> Array:
            parts = (of(features[i : i + ROWS] - origin).sum(axis=0) for i in range(0, len(features), ROWS))
            return sum(parts, np.zeros(features.shape[1])) / len(features)

        shift = mean(lambda values: values)
        self.deviation = np.sqrt(mean(lambda values: (values - shift) ** 2))
        self.mean = origin + shift
        return self

    def apply(self, features: Array, offsets: Array) -> Array:
        """See :class:`Normaliser`; values beyond float32 are clipped."""
        if features.shape[1] != len(self.mean):
            raise UserError(f"Standardise: was fitted to {len(self.mean)} features, but got {features.shape[1]}")
        scale = _inverse(self.deviation)
        return _by_blocks(lambda x, _: np.clip((x - self.mean) * scale, -LARGEST, LARGEST), features, offsets)


class SignedLog1p(Normaliser):
    """``sign(x) · log(1 + |x|)``, for counts and other features with long tails.

    >>> import numpy as np
    >>> features = np.array([[0, -1], [0, 1]], dtype=np.float32)
    >>> SignedLog1p().fit(features, np.array([0, 2])).apply(features, np.array([0, 2])).round(3)
    array([[ 0.   , -0.693],
           [ 0.   ,  0.693]], dtype=float32)
    """

    def apply(self, features: Array, offsets: Array) -> Array:
        return _by_blocks(lambda x, _: np.copysign(np.log1p(np.abs(x)), x), features, offsets)


class ShiftedLog(Normaliser):
    """``log(x + 0.01)`` of features that are never negative, as NeuralNDCG's authors prepare MSLR-WEB30K.

    Features with a negative value in the training lists stay as they are; below 0 in other lists counts as 0.

    >>> import numpy as np
    >>> features = np.array([[0.99, 0.99], [0.99, 0.99]], dtype=np.float32)
    >>> ShiftedLog().fit(features, np.array([0, 2])).apply(features, np.array([0, 2])).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """

    learned = ("logs",)

    def __init__(self, negated: list[int] | None = None, plain: list[int] | None = None) -> None:
        """Choose the features, counted from 1 as in the files.

        Args:
            negated: features to take the negative of first, whether they become logarithms or not.
            plain: features that stay as they are.
        """
        self.negated, self.plain = negated or [], plain or []
        self.logs = np.zeros(0, np.int64)

    def fit(self, features: Array, offsets: Array) -> Self:
        """See :class:`Normaliser`; finds the features that are never negative."""
        width = features.shape[1]
        if wrong := [column for column in [*self.negated, *self.plain] if not 1 <= column <= width]:
            raise UserError(f"ShiftedLog: there is no feature {wrong[0]}; expected 1 to {width}")
        lowest = (features * self._signs(width)).min(axis=0)
        self.logs = np.setdiff1d(np.flatnonzero(lowest >= 0), np.array(self.plain, dtype=np.int64) - 1)
        return self

    def apply(self, features: Array, offsets: Array) -> Array:
        signs, logs = self._signs(features.shape[1]), self.logs.astype(np.int64)  # read from JSON, none are floats

        def shifted(x: Array, _: Array) -> Array:
            x = x * signs
            x[:, logs] = np.log(np.maximum(x[:, logs], 0) + 0.01)
            return x

        return _by_blocks(shifted, features, offsets)

    def _signs(self, width: int) -> Array:
        return np.where(np.isin(np.arange(1, width + 1), self.negated), -1, 1).astype(np.float32)


NORMALISERS = dict.fromkeys(("QueryZScore", "Standardise", "SignedLog1p", "ShiftedLog"), __name__)
"""The module of each normaliser, by its name."""


def find_normaliser(path: str) -> type[Normaliser]:
    """Find the class of a saved normaliser: one of ours, or a user's that is imported already."""
    module, _, name = path.rpartition(".")
    found = globals()[path] if path in NORMALISERS else vars(sys.modules.get(module, sys)).get(name)
    if not (isinstance(found, type) and issubclass(found, Normaliser)):
        raise UserError(f"normalise: {path} is not one of ours, nor one that you have imported")
    return found
