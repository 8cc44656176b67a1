"""Weights that change during training, as functions of the share of its steps that is done."""

from __future__ import annotations

from abc import ABC, abstractmethod

from rerank.errors import UserError
from rerank.settings.described import Described
from rerank.settings.ranges import NotNegative, Share


class Schedule(Described, ABC):
    """The weight of a term over a training.

    >>> class Late(Schedule):
    ...     def __call__(self, share: float) -> float:
    ...         return share**2
    >>> Late()(0.5)
    0.25
    """

    @abstractmethod
    def __call__(self, share: float) -> float:
        """The weight, at least 0, after a share of all steps (from 0, below 1); at 0 the term is not computed."""


class Ramp(Schedule):
    r"""A weight that changes linearly from one value to another, and is constant before and after.

    .. math:: w(t) = a + (b - a) \min\Bigl(1, \max\bigl(0, \tfrac{t - t_0}{t_1 - t_0}\bigr)\Bigr)

    Two of them warm up on one loss before another takes over: ``Ramp(1, 0, until=0.2)`` and ``Ramp(0, 1, until=0.2)``.

    >>> weight = Ramp(1.0, 0.0, since=0.25, until=0.75)
    >>> [weight(share) for share in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]

    Args:
        start: the weight up to ``since``.
        end: the weight from ``until`` on.
        since: share of all steps after which it starts to change.
        until: the share of all steps at which it has changed; the same as ``since`` for a switch.

    Raises:
        ValueError: a negative weight, or shares out of order.
    """

    def __init__(
        self, start: NotNegative = 0.0, end: NotNegative = 1.0, since: Share = 0.0, until: Share = 1.0
    ) -> None:
        if not 0 <= since <= until <= 1:
            raise UserError(f"since and until must be shares of training in this order, not {since:g} and {until:g}")
        self.start, self.end, self.since, self.until = start, end, since, until

    def __call__(self, share: float) -> float:
        if share >= self.until:
            return self.end
        if share <= self.since:
            return self.start
        return self.start + (self.end - self.start) * (share - self.since) / (self.until - self.since)
