"""Which numbers settings take: one table, so that files, options and Python refuse the same with the same words."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from rerank.errors import UserError


class Range(NamedTuple):
    """Numbers that a setting takes.

    Attributes:
        low: the least.
        high: the largest.
        without_low: whether the least itself is refused.
        without_high: whether the largest itself is refused.
    """

    low: float
    high: float = math.inf
    without_low: bool = False
    without_high: bool = False

    def __contains__(self, value: object) -> bool:
        if not isinstance(value, int | float):
            return False
        try:
            if not math.isfinite(value):
                return False
        except OverflowError:  # a whole number beyond floats
            pass
        above = value > self.low if self.without_low else value >= self.low
        return above and (value < self.high if self.without_high else value <= self.high)

    def __str__(self) -> str:
        if self.low == -math.inf:
            return "a finite number"
        if self.high == math.inf:
            return f"{'above' if self.without_low else 'at least'} {self.low:g}"
        return f"in {'[('[self.without_low]}{self.low:g}, {self.high:g}{'])'[self.without_high]}"


FINITE = Range(-math.inf)
POSITIVE = Range(0, without_low=True)
COUNT = Range(1)
NOT_NEGATIVE = Range(0)
SHARE = Range(0, 1)
RATE = Range(0, 1, without_high=True)

RANGES = {
    **dict.fromkeys(("epochs", "steps_per_epoch", "batch_size", "micro_batch_size", "token_budget"), COUNT),
    **dict.fromkeys(("patience", "checkpoint_every"), COUNT),
    "seed": Range(0, 2**63 - 1),
    "optimization.encoder_lr": NOT_NEGATIVE,
    "optimization.head_lr": NOT_NEGATIVE,
    "optimization.weight_decay": NOT_NEGATIVE,
    "optimization.warmup": SHARE,
    "optimization.max_grad_norm": Range(0, without_low=True),
    "data.depth": COUNT,
    "data.validation_share": RATE,
    "model.query_length": COUNT,
    "model.document_length": COUNT,
    "model.dropout": RATE,
    "model.start_depth": COUNT,
    "model.start_weight": Range(0, without_low=True),
    **dict.fromkeys(("depth", "threads"), COUNT),
    "k1": NOT_NEGATIVE,
    "b": SHARE,
    "FoldsData.seed": Range(0, 2**63 - 1),
    **dict.fromkeys(("SmoothI.alpha", "Approx.alpha", "Approx.beta", "TwinSigmoid.alpha"), POSITIVE),
    **dict.fromkeys(("NeuralSort.tau", "SoftSort.tau", "FastSoftSort.strength", "FastSoftSort.beta"), POSITIVE),
    **dict.fromkeys(("NeuralSort.samples", "NeuralSort.tolerance", "NeuralSort.beta"), NOT_NEGATIVE),
    "SmoothI.delta": RATE,
    "OptimalTransport.epsilon": POSITIVE,
    "OptimalTransport.iterations": COUNT,
    "DirectMetric.scale": POSITIVE,
    "DirectMetric.balance": NOT_NEGATIVE,
    **dict.fromkeys((f"{name}.temperature" for name in ("ListNet", "SoftmaxCE", "KLDivergence")), POSITIVE),
    "ListAP.bins": Range(2),
    "ListAP.rel": POSITIVE,
    "RMSE.levels": POSITIVE,
    **dict.fromkeys(("BCE.rel", "BCE.pos_weight"), POSITIVE),
    "BCE.prior": Range(0, 1, without_low=True, without_high=True),
    "RankNet.k": Range(2),
    **dict.fromkeys(("RankNet.sigma", "LambdaLoss.sigma"), POSITIVE),
    **dict.fromkeys(("LambdaLoss.mu", "PairwiseHinge.margin"), NOT_NEGATIVE),
    **dict.fromkeys(("WassRank.gain_base", "WassRank.lam"), POSITIVE),
    **dict.fromkeys(("WassRank.gap", "WassRank.penalty"), NOT_NEGATIVE),
    "WassRank.iterations": COUNT,
    **dict.fromkeys(("MinMax.top", "Sigmoid.scale"), POSITIVE),
    **dict.fromkeys(("ReciprocalRank.k", "Ramp.start", "Ramp.end"), NOT_NEGATIVE),
}
"""What settings take, by their keys, or by class and argument; null is for whoever takes it to say."""

STEPS = frozenset(
    ("epochs", "steps_per_epoch", "batch_size", "micro_batch_size", "token_budget", "checkpoint_every", "seed")
)
"""Settings of a training in steps, which trees have none of."""


def check_range(key: str, value: Any) -> None:
    """Refuse a number that a setting does not take; None passes.

    >>> check_range("optimization.warmup", 0.1)
    >>> check_range("optimization.warmup", 2)
    Traceback (most recent call last):
    ...
    rerank.errors.UserError: optimization.warmup: must be in [0, 1], not 2

    Raises:
        UserError: the number is out of its range.
    """
    if value is not None and value not in RANGES[key]:
        raise _outside(key, RANGES[key], value)


def check_arguments(kind: type[Any], given: Mapping[str, Any]) -> None:
    """Refuse numbers beyond a class's ranges in `RANGES`, or not finite, and None where an argument's type has none.

    Args:
        kind: the class; its ``section`` is the key that it stands under, whose ranges hold for all classes there.
        given: its arguments.

    Raises:
        UserError: names the key, or class and argument.
    """
    parameters = inspect.signature(kind.__init__).parameters
    for name, value in given.items():
        shared = f"{kind.section}.{name}"
        key = shared if shared in RANGES else f"{kind.__name__}.{name}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            if value not in (allowed := RANGES.get(key, FINITE)):
                raise _outside(key, allowed, value)
        elif value is None and name in parameters and not _takes_none(parameters[name].annotation):
            raise UserError(f"{key}: expected a value, not nothing")


def _takes_none(annotation: str) -> bool:
    return annotation in ("Any", "object") or "None" in annotation


def _outside(key: str, allowed: Range, value: float) -> UserError:
    try:
        shown = f"{value:g}"
    except OverflowError:
        shown = f"a number of {int(value).bit_length()} bits"
    return UserError(f"{key}: must be {allowed}, not {shown}")


def check_ranges(**settings: Any) -> None:
    """The same for several settings, in their order."""
    for key, value in settings.items():
        check_range(key, value)
