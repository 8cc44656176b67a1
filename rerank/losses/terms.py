"""What training minimises: one loss of the grades, or a sum of losses, each with its target and its weight."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rerank.errors import UserError
from rerank.losses.base import Criterion, Loss
from rerank.losses.schedules import Schedule
from rerank.losses.targets import Scaling
from rerank.settings.ranges import NotNegative, check_arguments

GRADES = "grades"
"""The target that is no column: the judged grades."""


@dataclass(frozen=True)
class Term:
    """A loss with its target and its weight.

    >>> from rerank.losses import MinMax, SmoothINDCG
    >>> term = Term(SmoothINDCG(), target="clicks", weight=0.5, scaling=MinMax())
    >>> term.target, term.weight_at(0.9)
    ('clicks', 0.5)

    Attributes:
        loss: the loss.
        target: ``grades`` for the judgments, else the name of a column: a teacher's scores, clicks, any number per
            candidate. Candidates without one (NaN) are left out of this term.
        weight: how much the term counts; a number, or a schedule over the training.
        scaling: transforms the column's values first, list by list; None takes them as they are.

    Raises:
        UserError: a negative weight, or a scaling of grades.
    """

    loss: Loss
    target: str = GRADES
    weight: NotNegative | Schedule = 1.0
    scaling: Scaling | None = None

    def __post_init__(self) -> None:
        check_arguments(Term, vars(self), "Term")
        if self.scaling is not None and self.target == GRADES:
            raise UserError(f"loss: {type(self.scaling).__name__} scales columns; grades are taken as they are")
        if self.loss.reduction == "none":
            raise UserError("loss.reduction: training needs mean or sum, not none")

    def weight_at(self, share: float) -> float:
        """The weight after this share of the training's steps."""
        return self.weight(share) if isinstance(self.weight, Schedule) else self.weight


class Terms(Criterion):
    r"""A sum of losses.

    .. math:: \ell = \sum_t w_t(\tau) \frac{1}{|L_t|} \sum_{b \in L_t} \ell_t(s_b, y_{tb})

    over terms t with weight :math:`w_t` at the share τ of the training, target :math:`y_t`, and the lists
    :math:`L_t` of a batch from which this term can learn; a list may teach one term and not another.

    >>> from rerank.losses import KLDivergence, Ramp, SmoothINDCG
    >>> Terms([Term(KLDivergence(), target="teacher", weight=Ramp(1, 0)), Term(SmoothINDCG())]).columns
    ['teacher']

    Args:
        terms: the terms, one at least.

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
    """The terms of what is minimised; a loss alone is one term, of the grades."""
    if isinstance(criterion, Terms):
        return criterion.terms
    assert isinstance(criterion, Loss)
    return (Term(criterion),)


def columns_of(criterion: Criterion | None) -> list[str]:
    """The columns that a configuration's loss reads, each once."""
    return criterion.columns if isinstance(criterion, Terms) else []
