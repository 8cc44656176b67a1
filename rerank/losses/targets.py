"""Scalings of a column's values, before a loss takes them as its target."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from rerank.settings.described import Described
from rerank.settings.ranges import NotNegative, Positive
from rerank.storage.arrow import Array


class Scaling(Described, ABC):
    """Turns the values of one list into targets; NaN (no value) stays NaN.

    >>> class Clicked(Scaling):
    ...     def __call__(self, values: Array) -> Array:
    ...         return np.minimum(values, 1)
    >>> Clicked()(np.array([3.0, 0.0, np.nan]))
    array([ 1.,  0., nan])
    """

    @abstractmethod
    def __call__(self, values: Array) -> Array:
        """The targets of a list, ``[N]``, from ``[N]`` float, both NaN where the column has no value."""


class MinMax(Scaling):
    r"""Values scaled linearly, the smallest to 0 and the largest to a given top.

    .. math:: y_i = top \cdot (v_i - \min v) / (\max v - \min v)

    Equal values become 0, so that nothing is learned from such a list.

    >>> MinMax(top=4)(np.array([3.0, 1.0, np.nan, 2.0]))
    array([ 4.,  0., nan,  2.])

    Args:
        top: the target of the largest value; 1, or the highest grade to stand beside grades.
    """

    def __init__(self, top: Positive = 1.0) -> None:
        self.top = top

    def __call__(self, values: Array) -> Array:
        known = values[~np.isnan(values)]
        if not len(known):
            return values
        lowest, spread = known.min(), known.max() - known.min()
        return (values - lowest) * (self.top / spread) if spread > 0 else values * 0


class Sigmoid(Scaling):
    r"""Probabilities from logits.

    .. math:: y_i = \sigma((v_i - centre) / scale)

    >>> Sigmoid()(np.array([0.0, np.log(3)]))
    array([0.5 , 0.75])

    Args:
        centre: the value that becomes 1/2.
        scale: divides the distance from it.
    """

    def __init__(self, centre: float = 0.0, scale: Positive = 1.0) -> None:
        self.centre, self.scale = centre, scale

    def __call__(self, values: Array) -> Array:
        return 0.5 + 0.5 * np.tanh((values - self.centre) / (2 * self.scale))  # a sigmoid that cannot overflow


class ReciprocalRank(Scaling):
    r"""Gains that fall with the reciprocal of the rank by descending value.

    .. math:: y_i = (k + 1) / (k + r_i)

    For teachers that give an order and no scores, such as language models that permute passages. The first document
    has 1. Equal values share their mean rank.

    >>> ReciprocalRank()(np.array([7.0, 9.0, np.nan, 8.0]))
    array([0.33333333, 1.        ,        nan, 0.5       ])

    Args:
        k: flattens the gains; 60 in reciprocal rank fusion, 0 for the plain reciprocal.
    """

    def __init__(self, k: NotNegative = 0.0) -> None:
        self.k = k

    def __call__(self, values: Array) -> Array:
        from pandas import Series

        return (self.k + 1) / (self.k + Series(values).rank(ascending=False).to_numpy())
