"""Normalising feature vectors: per query, or by what was seen in training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal, Self

import numpy as np

from rerank.errors import UserError
from rerank.settings.described import Described
from rerank.settings.ranges import Several
from rerank.storage.arrow import Array, blocks

ROWS = 16_384
"""Rows in float64 at a time."""
LARGEST = float(np.finfo(np.float32).max)
TAIL = 1e-7
"""Share at which quantiles of the normal distribution are cut off."""


class Normaliser(Described, ABC):
    """Maps features to features of the same shape, float32 to float32; finite ones stay finite.

    Without state where nothing is learned from the training lists.
    """

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
        """Settings and what was learned, for JSON."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take over what :meth:`state` gave."""
        if state:
            raise UserError(f"{type(self).__name__}: keeps nothing, but was given {', '.join(state)}")


class QueryZScore(Normaliser):
    """``(x - mean) / sd`` over the documents of each query; a feature that is constant in a query becomes 0.

    >>> import numpy as np
    >>> features = np.array([[1, 5], [3, 5]], dtype=np.float32)
    >>> QueryZScore().fit(features, np.array([0, 2])).apply(features, np.array([0, 2])).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """

    def apply(self, features: Array, offsets: Array) -> Array:
        return _by_query(features, offsets, _zscore)


class QueryMinMax(Normaliser):
    """``(x - min) / (max - min)`` over the documents of each query; a feature constant in a query becomes 0.

    >>> import numpy as np
    >>> features = np.array([[1, 5], [3, 9]], dtype=np.float32)
    >>> QueryMinMax().fit(features, np.array([0, 2])).apply(features, np.array([0, 2])).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """

    def apply(self, features: Array, offsets: Array) -> Array:
        return _by_query(features, offsets, _minmax)


def _by_query(features: Array, offsets: Array, normalise: Callable[[Array, Array, Array], Array]) -> Array:
    """Apply to blocks of whole queries: values float64 ``[n, F]``, and start and length of every query in them."""
    result = np.empty(features.shape, dtype=np.float32)
    for first, last in blocks(offsets, ROWS):
        start, end = int(offsets[first]), int(offsets[last])
        lengths = np.diff(offsets[first : last + 1])
        lengths = lengths[lengths > 0]
        if len(lengths):
            starts = np.cumsum(lengths) - lengths
            result[start:end] = normalise(features[start:end].astype(np.float64), starts, lengths)
    return result


def _zscore(values: Array, starts: Array, lengths: Array) -> Array:
    values -= np.repeat(values[starts], lengths, axis=0)  # then constants are exactly 0, and large means do no harm
    values -= np.repeat(np.add.reduceat(values, starts) / lengths[:, None], lengths, axis=0)
    deviation = np.sqrt(np.add.reduceat(values * values, starts) / lengths[:, None])
    return values * np.repeat(_inverse(deviation), lengths, axis=0)


def _minmax(values: Array, starts: Array, lengths: Array) -> Array:
    smallest = np.minimum.reduceat(values, starts)
    scale = _inverse(np.maximum.reduceat(values, starts) - smallest)
    values -= np.repeat(smallest, lengths, axis=0)
    return values * np.repeat(scale, lengths, axis=0)


def _inverse(scale: Array) -> Array:
    """``1 / scale``, and 0 where that is 0."""
    return np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)


class Standardise(Normaliser):
    """``(x - mean) / sd`` with mean and standard deviation of the training lists; constant features become 0.

    >>> import numpy as np
    >>> features = np.array([[1, 5], [3, 9]], dtype=np.float32)
    >>> Standardise().fit(features, np.array([0, 2])).apply(features, np.array([0, 2])).tolist()
    [[-1.0, -1.0], [1.0, 1.0]]
    """

    def __init__(self) -> None:
        self.mean = np.zeros(0)
        self.deviation = np.zeros(0)

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
        _check_width(self, len(self.mean), features)
        scale = _inverse(self.deviation)
        result = np.empty(features.shape, dtype=np.float32)
        for start in range(0, len(features), ROWS):
            rows = slice(start, start + ROWS)
            result[rows] = np.clip((features[rows] - self.mean) * scale, -LARGEST, LARGEST)
        return result

    def state(self) -> dict[str, Any]:
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.mean, self.deviation = np.array(state["mean"]), np.array(state["deviation"])


class SignedLog1p(Normaliser):
    """``sign(x) · log(1 + |x|)``, for counts and other features with long tails.

    >>> import numpy as np
    >>> features = np.array([[0, -1], [0, 1]], dtype=np.float32)
    >>> SignedLog1p().fit(features, np.array([0, 2])).apply(features, np.array([0, 2])).round(3)
    array([[ 0.   , -0.693],
           [ 0.   ,  0.693]], dtype=float32)
    """

    def __init__(self, columns: list[int] | None = None) -> None:
        """Choose the features.

        Args:
            columns: which features, counted from 1 as in the files; None for all.
        """
        if columns is not None and (not columns or min(columns) < 1 or len(set(columns)) < len(columns)):
            raise UserError(f"columns must be distinct numbers from 1, not {columns}")
        self.columns = columns

    def fit(self, features: Array, offsets: Array) -> Self:
        if self.columns and max(self.columns) > features.shape[1]:
            raise UserError(
                f"SignedLog1p.columns: there is no feature {max(self.columns)}; expected 1 to {features.shape[1]}"
            )
        return self

    def apply(self, features: Array, offsets: Array) -> Array:
        self.fit(features, offsets)
        result = np.array(features, dtype=np.float32)
        for start in range(0, len(result), ROWS):
            rows = result[start : start + ROWS]
            if self.columns is None:
                rows[:] = _log(rows)
            else:
                chosen = np.array(self.columns) - 1
                rows[:, chosen] = _log(rows[:, chosen])
        return result

    def state(self) -> dict[str, Any]:
        return {"columns": self.columns}

    def load_state(self, state: dict[str, Any]) -> None:
        self.columns = state["columns"]


class ShiftedLog(Normaliser):
    """``log(x + 0.01)`` of features that are never negative, as NeuralNDCG's authors prepare MSLR-WEB30K.

    Features with a negative value in the training lists stay as they are; below 0 in other lists counts as 0.

    >>> import numpy as np
    >>> features = np.array([[0.99, 0.99], [0.99, 0.99]], dtype=np.float32)
    >>> ShiftedLog().fit(features, np.array([0, 2])).apply(features, np.array([0, 2])).tolist()
    [[0.0, 0.0], [0.0, 0.0]]
    """

    def __init__(self, negated: list[int] | None = None, plain: list[int] | None = None) -> None:
        """Choose the features, counted from 1 as in the files.

        Args:
            negated: features to take the negative of first, whether they become logarithms or not.
            plain: features that stay as they are.
        """
        self.negated, self.plain = negated or [], plain or []
        self.logs: list[int] = []

    def fit(self, features: Array, offsets: Array) -> Self:
        """See :class:`Normaliser`; finds the features that are never negative."""
        width = features.shape[1]
        if wrong := [column for column in [*self.negated, *self.plain] if not 1 <= column <= width]:
            raise UserError(f"ShiftedLog: there is no feature {wrong[0]}; expected 1 to {width}")
        lowest = (features * self._signs(width)).min(axis=0)
        self.logs = [i + 1 for i in range(width) if lowest[i] >= 0 and i + 1 not in self.plain]
        return self

    def apply(self, features: Array, offsets: Array) -> Array:
        result = (features * self._signs(features.shape[1])).astype(np.float32)
        logs = np.array(self.logs, dtype=np.int64) - 1
        for start in range(0, len(result), ROWS):
            rows = result[start : start + ROWS]
            rows[:, logs] = np.log(np.maximum(rows[:, logs], 0) + 0.01)
        return result

    def _signs(self, width: int) -> Array:
        return np.where(np.isin(np.arange(1, width + 1), self.negated), -1, 1).astype(np.float32)

    def state(self) -> dict[str, Any]:
        return {"negated": self.negated, "logs": self.logs}

    def load_state(self, state: dict[str, Any]) -> None:
        self.negated, self.logs = state["negated"], state["logs"]


def _log(values: Array) -> Array:
    return np.copysign(np.log1p(np.abs(values)), values)


class Quantile(Normaliser):
    """The share of training values below, or the normal distribution's quantile of that share.

    Shares are interpolated between ``quantiles`` evenly spaced ones, the mean of the lowest and the highest share of a
    value that fills several; the smallest value has share 0, the largest 1, unseen ones beyond them as well. Features
    that are constant in training become 0. Otherwise the same as scikit-learn's ``QuantileTransformer`` without
    subsampling.

    >>> import numpy as np
    >>> features = np.array([[1, 5], [3, 9]], dtype=np.float32)
    >>> Quantile().fit(features, np.array([0, 2])).apply(features, np.array([0, 2])).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """

    def __init__(self, output: Literal["uniform", "normal"] = "uniform", quantiles: Several = 1000) -> None:
        """Choose the output.

        Args:
            output: ``uniform`` (0 to 1), or ``normal`` (about -5.2 to 5.2).
            quantiles: how many are stored per feature; fewer training documents give as many.
        """
        self.output, self.quantiles = output, quantiles
        self.values = np.zeros((0, 0))

    def fit(self, features: Array, offsets: Array) -> Self:
        """See :class:`Normaliser`; sorts a few features at a time."""
        count = len(features)
        position = np.linspace(0, 1, max(2, min(self.quantiles, count))) * (count - 1)
        below = np.floor(position).astype(np.int64)
        above = np.minimum(below + 1, count - 1)
        weight = position - below
        parts = []
        for start in range(0, features.shape[1], 8):
            ordered = np.sort(features[:, start : start + 8].T, axis=1).astype(np.float64, copy=False)
            parts.append(ordered[:, below] * (1 - weight) + ordered[:, above] * weight)
        self.values = np.maximum.accumulate(np.concatenate(parts), axis=1)  # rounding may have disturbed the order
        return self

    def apply(self, features: Array, offsets: Array) -> Array:
        _check_width(self, len(self.values), features)
        result = np.zeros(features.shape, dtype=np.float32)
        for start in range(0, len(features), ROWS):
            rows = slice(start, start + ROWS)
            for column, known in enumerate(self.values):
                if known[0] < known[-1]:
                    shares = _shares(features[rows, column].astype(np.float64), known)
                    result[rows, column] = shares if self.output == "uniform" else _normal(shares)
        return result

    def state(self) -> dict[str, Any]:
        return {"output": self.output, "quantiles": self.quantiles, "values": self.values.tolist()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.output, self.quantiles = state["output"], state["quantiles"]
        self.values = np.array(state["values"])


def _shares(values: Array, known: Array) -> Array:
    shares = np.linspace(0, 1, len(known))
    highest = np.interp(values, known, shares)
    lowest = -np.interp(-values, -known[::-1], -shares[::-1])
    result = np.clip((highest + lowest) / 2, 0.0, 1.0)  # rounding may have left the interval
    result[values >= known[-1]] = 1.0
    result[values <= known[0]] = 0.0
    return result


def _normal(shares: Array) -> Array:
    from scipy.special import ndtri

    return np.clip(ndtri(shares), ndtri(TAIL), -ndtri(TAIL))


def _check_width(normaliser: Normaliser, width: int, features: Array) -> None:
    if features.shape[1] != width:
        name = type(normaliser).__name__
        raise UserError(f"{name}: was fitted to {width} features, but got {features.shape[1]}")
