"""Which numbers settings take: one table, so that files, options and Python refuse the same with the same words."""

from __future__ import annotations

import builtins
import collections.abc
import functools
import inspect
import math
import reprlib
import types
import typing
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, NamedTuple, get_args, get_origin

from rerank.errors import UserError


def is_number(value: object) -> bool:
    """Whether a value is a number, of Python or NumPy, and not a truth."""
    return isinstance(value, Real) and not isinstance(value, bool)


class Range(NamedTuple):
    """Numbers that a setting takes.

    Attributes:
        low: the least.
        high: the largest.
        without_low: whether the least itself is refused.
        without_high: whether the largest itself is refused.
        whole: whether it takes whole numbers alone.
    """

    low: float
    high: float = math.inf
    without_low: bool = False
    without_high: bool = False
    whole: bool = False

    def __contains__(self, value: Any) -> bool:
        if not is_number(value) or (self.whole and not isinstance(value, Integral)):
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
COUNT = Range(1, whole=True)
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
    **dict.fromkeys(("depth", "threads", "budget", "top_k"), COUNT),
    "k1": NOT_NEGATIVE,
    "b": SHARE,
    "FoldsData.seed": Range(0, 2**63 - 1),
    **dict.fromkeys(("SmoothI.alpha", "Approx.alpha", "Approx.beta", "TwinSigmoid.alpha"), POSITIVE),
    **dict.fromkeys(("NeuralSort.tau", "SoftSort.tau", "FastSoftSort.strength", "FastSoftSort.beta"), POSITIVE),
    **dict.fromkeys(("NeuralSort.samples", "NeuralSort.tolerance", "NeuralSort.beta"), NOT_NEGATIVE),
    "SmoothI.delta": RATE,
    "OptimalTransport.epsilon": POSITIVE,
    "OptimalTransport.iterations": COUNT,
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
    """Refuse what is of another type than an argument, and numbers beyond a class's ranges, or not finite.

    Args:
        kind: the class; its ``section`` is the key that it stands under, whose ranges hold for all classes there.
        given: its arguments.

    Raises:
        UserError: names the key, or class and argument.
    """
    hints = hints_of(kind.__init__)
    for name, value in given.items():
        shared = f"{kind.section}.{name}"
        key = shared if shared in RANGES else f"{kind.__name__}.{name}"
        if is_number(value) and value not in (allowed := RANGES.get(key, FINITE)):
            raise _outside(key, allowed, value)
        hint = hints.get(name, Any)
        if value is None and not fits(value, hint):
            raise UserError(f"{key}: expected a value, not nothing")
        check_type(key, value, hint)


def check_types(function: Callable[..., Any], **given: Any) -> None:
    """Refuse arguments of a function that are of another type than it says.

    Raises:
        UserError: names the argument.
    """
    hints = hints_of(function)
    for name, value in given.items():
        check_type(name, value, hints[name])


@functools.cache
def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """The types of a function's parameters; Any for one whose name is known to type checkers alone."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        try:
            found[name] = eval(parameter.annotation, getattr(function, "__globals__", {}))
        except (NameError, TypeError):
            found[name] = Any
    return found


def check_type(key: str, value: Any, hint: Any) -> None:
    """Refuse a value of another type.

    >>> check_type("model.head", "cls", Literal["hf", "cls"] | None)
    >>> check_type("model.head", "mean", Literal["hf", "cls"] | None)
    Traceback (most recent call last):
    ...
    rerank.errors.UserError: model.head: expected 'hf', 'cls' or None, not 'mean'

    Raises:
        UserError: names the key.
    """
    if not fits(value, hint):
        *others, last = in_words(hint)
        expected = f"{', '.join(others)} or {last}" if others else last
        raise UserError(f"{key}: expected {expected}, not {reprlib.repr(value)}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type, or as good as one: a tuple as a list, NumPy's numbers, a path as a text."""
    kinds = get_args(hint)
    match get_origin(hint) or hint:
        case typing.Literal:
            return any(value == one and type(value) is type(one) for one in kinds)
        case typing.Union | types.UnionType:
            return any(fits(value, kind) for kind in kinds)
        case collections.abc.Sequence | builtins.list:
            several = isinstance(value, Sequence) and not isinstance(value, str)
            return several and all(fits(one, kinds[0] if kinds else Any) for one in value)
        case builtins.bool:
            return isinstance(value, bool)
        case builtins.int:
            return is_number(value) and isinstance(value, Integral)
        case builtins.float:
            return is_number(value)
        case builtins.str:  # where a name is taken there may be an object that it names
            return not (value is None or (isinstance(value, Real | Sequence | Mapping) and not isinstance(value, str)))
        case type() as kind if kind is not object:  # what is only parsed yet is as it was parsed
            return isinstance(value, kind | Namespace)
    return True


def in_words(hint: Any) -> list[str]:
    """A type as people call it, alternatives one by one."""
    match get_origin(hint) or hint:
        case typing.Literal:
            return list(map(repr, get_args(hint)))
        case typing.Union | types.UnionType:
            return [word for kind in get_args(hint) for word in in_words(kind)]
    kind = get_origin(hint) or hint
    return [WORDS.get(kind, f"a {getattr(kind, '__name__', kind)}")]


WORDS: dict[Any, str] = {
    **{int: "a whole number", float: "a number", str: "text", bool: "True or False", type(None): "None"},
    **{list: "a list", Sequence: "a list"},
}


def _outside(key: str, allowed: Range, value: Any) -> UserError:
    if not is_number(value) or (allowed.whole and not isinstance(value, Integral)):
        kind = "whole number" if allowed.whole else "number"
        return UserError(f"{key}: must be a {kind}, {allowed}, not {reprlib.repr(value)}")
    try:
        shown = f"{value:g}"
    except OverflowError:
        shown = f"a number of {int(value).bit_length()} bits"
    return UserError(f"{key}: must be {allowed}, not {shown}")


def changed(function: Callable[..., Any], **options: Any) -> list[str]:
    """The names of those options of a function that are not at their defaults.

    >>> def command(depth: int = 150, rm3: bool = False) -> None: ...
    >>> changed(command, depth=150, rm3=True)
    ['rm3']
    """
    parameters = inspect.signature(function).parameters
    return [name for name, value in options.items() if value != parameters[name].default]


def check_unused(why: str, function: Callable[..., Any], **options: Any) -> None:
    """Refuse options of a function that have no use in the way that it is called; those at their defaults pass.

    Raises:
        UserError: names the first one, and why.
    """
    if names := changed(function, **options):
        raise UserError(f"{names[0]}: {why}")


def check_ranges(**settings: Any) -> None:
    """The same for several settings, in their order."""
    for key, value in settings.items():
        check_range(key, value)
