"""Number ranges as annotations (``tau: Positive = 1.0``), checked in Python calls, YAML files and options alike."""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import reprlib
import types
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral, Real
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from rerank.errors import UserError


class Range(NamedTuple):
    """A range of finite numbers, for ``Annotated[float, Range(0, 1)]``."""

    low: float
    high: float = math.inf
    without_low: bool = False
    without_high: bool = False

    def __contains__(self, value: Any) -> bool:
        above = value > self.low if self.without_low else value >= self.low
        return above and (value < self.high if self.without_high or self.high == math.inf else value <= self.high)

    def __str__(self) -> str:
        if self.low == -math.inf:
            return "a finite number"
        if self.high == math.inf:
            return f"{'above' if self.without_low else 'at least'} {self.low:g}"
        before, behind = "(" if self.without_low else "[", ")" if self.without_high else "]"
        return f"in {before}{self.low:g}, {self.high:g}{behind}"


FINITE = Range(-math.inf, without_low=True)
"""The range of a plain ``float``."""

Positive = Annotated[float, Range(0, without_low=True)]
NotNegative = Annotated[float, Range(0)]
Share = Annotated[float, Range(0, 1)]
Rate = Annotated[float, Range(0, 1, without_high=True)]
Portion = Annotated[float, Range(0, 1, without_low=True)]
Count = Annotated[int, Range(1)]
Several = Annotated[int, Range(2)]
CountOrZero = Annotated[int, Range(0)]
Port = Annotated[int, Range(0, 65535)]
Seed = Annotated[int, Range(0, 2**63 - 1)]

WORDS = {int: "a whole number", float: "a number", str: "text", bool: "True or False", types.NoneType: "None"}
WORDS |= {list: "a list", tuple: "a list", Sequence: "a list", dict: "keys and their values"}


def check_arguments(kind: Callable[..., Any], values: Mapping[str, Any], place: str = "") -> None:
    """Check arguments against the types and ranges of their annotations.

    >>> def train(warmup: Share = 0.1, epochs: Count | None = None) -> None: ...
    >>> check_arguments(train, {"warmup": 2}, "optimization")
    Traceback (most recent call last):
    ...
    rerank.errors.UserError: optimization.warmup: must be in [0, 1], not 2
    """
    for name, hint in annotations_of(kind).items():
        if name in values:
            check_value(f"{place}.{name}".lstrip("."), values[name], hint)


@functools.cache
def annotations_of(kind: Any) -> dict[str, Any]:
    """Evaluate the annotations of a class's or function's arguments, except those that only type checkers know."""
    function = getattr(kind, "__init__", None) if isinstance(kind, type) else kind
    names = getattr(function, "__globals__", {})
    annotations: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        hint = parameter.annotation
        if hint is parameter.empty or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        with contextlib.suppress(NameError, TypeError):
            annotations[name] = eval(hint, names) if isinstance(hint, str) else hint
    return annotations


def check_value(key: str, value: Any, hint: Any) -> None:
    """Check a value's type and range.

    >>> check_value("model.head", "cls", Literal["hf", "cls"] | None)
    >>> check_value("model.head", "mean", Literal["hf", "cls"] | None)
    Traceback (most recent call last):
    ...
    rerank.errors.UserError: model.head: expected 'hf', 'cls' or None, not 'mean'
    """
    alternatives = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    kinds = [kind for kind in alternatives if _accepts(kind, value)]
    if not kinds:
        *others, last = dict.fromkeys(word for kind in alternatives for word in _in_words(kind))
        expected = f"{', '.join(others)} or {last}" if others else last
        raise UserError(f"{key}: expected {expected}, not {reprlib.repr(value)}")
    ranges = [_range_of(kind) for kind in kinds]
    if _is_number(value) and None not in ranges and not any(value in allowed for allowed in ranges if allowed):
        shown = f"{value:.15g}" if abs(value) < 1e15 else reprlib.repr(value)
        raise UserError(f"{key}: must be {ranges[0]}, not {shown}")
    if isinstance(value, list | tuple) and (inner := next(iter(get_args(kinds[0])), None)):
        for number, item in enumerate(value):
            check_value(f"{key}[{number}]", item, inner)


def _bare(hint: Any) -> Any:
    """Strip the range and the item type: ``list`` of ``list[Share]``."""
    hint = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return get_origin(hint) or hint


def _range_of(hint: Any) -> Range | None:
    if get_origin(hint) is Annotated:
        return next((item for item in get_args(hint) if isinstance(item, Range)), None)
    return FINITE if hint is float else None


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _accepts(hint: Any, value: Any) -> bool:
    """Accept tuples as lists, NumPy's numbers, and paths and objects in place of text that names them."""
    kind = _bare(hint)
    if kind is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(hint))
    if kind in (list, tuple, Sequence):
        return isinstance(value, Sequence) and not isinstance(value, str)
    if kind in (int, float):
        return _is_number(value) and (kind is float or isinstance(value, Integral))
    if kind is str:
        return isinstance(value, str) or not (value is None or isinstance(value, Real | Sequence | Mapping))
    try:
        return not isinstance(kind, type) or isinstance(value, kind | Namespace)  # a Namespace is not built yet
    except TypeError:  # a protocol
        return True


def _in_words(hint: Any) -> list[str]:
    if get_origin(hint) is Literal:
        return list(map(repr, get_args(hint)))
    kind = _bare(hint)
    name = getattr(kind, "__name__", str(kind))
    return [WORDS.get(kind, f"{'an' if name[0] in 'AEIOU' else 'a'} {name}")]


def check_unused(why: str, function: Callable[..., Any], **options: Any) -> None:
    """Raise an error for options without effect that are not at their defaults."""
    parameters = inspect.signature(function).parameters
    for name, value in options.items():
        if value != parameters[name].default:
            raise UserError(f"{name}: {why}")
