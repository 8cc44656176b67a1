"""Training objectives: one loss on the relevance labels, or a weighted sum of losses with targets of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rerank.errors import UserError
from rerank.losses.base import Criterion, Loss
from rerank.settings.arguments import Described, NotNegative, Positive, Share, check_arguments
from rerank.storage.arrow import Array

GRADES = "grades"
"""The target that is not a column: the judged relevance labels."""


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
        """Compute the targets of a list, ``[N]``, from ``[N]`` float; both are NaN if the column has no value."""


class MinMax(Scaling):
    r"""Values scaled linearly, the smallest to 0 and the largest to a given top.

    .. math:: y_i = top \cdot (v_i - \min v) / (\max v - \min v)

    Equal values become 0, so such a list has no gradient.

    >>> MinMax(top=4)(np.array([3.0, 1.0, np.nan, 2.0]))
    array([ 4.,  0., nan,  2.])

    Args:
        top: the target of the largest value; 1, or the highest grade if it is combined with a loss on grades.
    """

    def __init__(self, top: Positive = 1.0) -> None:
        self.top = top

    def __call__(self, values: Array) -> Array:
        known = values[~np.isnan(values)]
        if not len(known):
            return values
        lowest, spread = known.min(), known.max() - known.min()
        return (values - lowest) * (self.top / spread) if spread > 0 else values * 0


class ReciprocalRank(Scaling):
    r"""Gains that fall with the reciprocal of the rank by descending value.

    .. math:: y_i = (k + 1) / (k + r_i)

    For teachers that give an order without scores, such as language models that permute passages. The first document
    has the gain 1. Equal values share their mean rank.

    >>> ReciprocalRank()(np.array([7.0, 9.0, np.nan, 8.0]))
    array([0.33333333, 1.        ,        nan, 0.5       ])

    Args:
        k: constant that flattens the gains; 60 in reciprocal rank fusion, 0 for the plain reciprocal.
    """

    def __init__(self, k: NotNegative = 0.0) -> None:
        self.k = k

    def __call__(self, values: Array) -> Array:
        from pandas import Series

        return (self.k + 1) / (self.k + Series(values).rank(ascending=False).to_numpy())


class Ramp(Described):
    r"""A weight that changes linearly from one value to another, and is constant before and after.

    .. math:: w(t) = a + (b - a) \min\Bigl(1, \max\bigl(0, \tfrac{t - t_0}{t_1 - t_0}\bigr)\Bigr)

    Two of them warm up on one loss before another takes over: ``Ramp(1, 0, until=0.2)`` and ``Ramp(0, 1, until=0.2)``.

    >>> weight = Ramp(1.0, 0.0, since=0.25, until=0.75)
    >>> [weight(share) for share in (0.0, 0.5, 1.0)]
    [1.0, 0.5, 0.0]

    Args:
        start: the weight up to ``since``.
        end: the weight from ``until`` on.
        since: share of all steps after which the weight starts to change.
        until: share of all steps after which it stays at ``end``; the same as ``since`` for a switch.

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


@dataclass(frozen=True)
class Term:
    """A loss with its target and its weight.

    >>> from rerank.losses import MinMax, SmoothINDCG
    >>> term = Term(SmoothINDCG(), target="clicks", weight=0.5, scaling=MinMax())
    >>> term.target, term.weight_at(0.9)
    ('clicks', 0.5)

    Attributes:
        loss: the loss.
        target: ``grades`` for the relevance labels, or the name of a column: a teacher's scores, clicks, any number
            per candidate. Candidates without a value (NaN) are left out of this term.
        weight: weight of the term; a number, or a :class:`Ramp` over the training run.
        scaling: transformation of the column's values, list by list; by default there is none.

    Raises:
        UserError: a negative weight, or a scaling of grades.
    """

    loss: Loss
    target: str = GRADES
    weight: NotNegative | Ramp = 1.0
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        check_arguments(Term, vars(self), "Term")
        if self.scaling is not None and self.target == GRADES:
            raise UserError(f"loss: {type(self.scaling).__name__} scales columns; grades are taken as they are")
        if self.loss.reduction == "none":
            raise UserError("loss.reduction: training needs mean or sum, not none")

    def weight_at(self, share: float) -> float:
        """Return the weight after this share of all steps."""
        return self.weight(share) if isinstance(self.weight, Ramp) else self.weight


class Terms(Criterion):
    r"""A sum of losses.

    .. math:: \ell = \sum_t w_t(\tau) \frac{1}{|L_t|} \sum_{b \in L_t} \ell_t(s_b, y_{tb})

    over terms t with weight :math:`w_t` after the share τ of all steps, target :math:`y_t`, and the lists :math:`L_t`
    of a batch from which this term can learn; a list may have a signal for one term and none for another.

    >>> from rerank.losses import KLDivergence, Ramp, SmoothINDCG
    >>> Terms([Term(KLDivergence(), target="teacher", weight=Ramp(1, 0)), Term(SmoothINDCG())]).columns
    ['teacher']

    Args:
        terms: the terms, at least one.

    Raises:
        UserError: no term.
    """

    def __init__(self, terms: list[Term]) -> None:
        if not terms:
            raise UserError("loss.terms: name one term at least")
        self.terms = list(terms)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(term.target for term in self.terms if term.target != GRADES))


def terms_of(criterion: Criterion) -> Sequence[Term]:
    """List the terms of an objective; a single loss is one term, on the relevance labels."""
    if isinstance(criterion, Terms):
        return criterion.terms
    assert isinstance(criterion, Loss)
    return (Term(criterion),)


def columns_of(criterion: Criterion | None) -> list[str]:
    """List the columns that an objective reads, each once."""
    return criterion.columns if isinstance(criterion, Terms) else []
