"""Arguments of constructors: checked, remembered, written as settings, and hashed; classes by import path.

Number ranges are annotations (``tau: Positive = 1.0``), checked in Python calls, YAML files and options alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import inspect
import json
import math
import reprlib
import sys
import types
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self, Union, get_args, get_origin

from rerank.errors import UserError, one_line


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
WORDS |= dict.fromkeys((list, tuple, Sequence), "a list") | dict.fromkeys((dict, Mapping), "keys and their values")


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
    inner = get_args(kinds[0])
    if inner and isinstance(value, list | tuple):
        for number, item in enumerate(value):
            check_value(f"{key}[{number}]", item, inner[0])
    if inner and isinstance(value, Mapping):
        for name, item in value.items():
            check_value(f"{key}: key", name, inner[0])
            check_value(f"{key}.{name}", item, inner[-1])


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


class Described:
    """A base class that remembers the arguments of the constructor, defaults included.

    >>> class Sampler(Described):
    ...     def __init__(self, depth: int = 150, seed: int = 0) -> None:
    ...         self.limit = depth
    >>> Sampler(seed=3).arguments()
    {'depth': 150, 'seed': 3}
    >>> Sampler(150, 3)
    Sampler(seed=3)
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember the arguments; subclasses need not call anything."""
        made = super().__new__(cls)
        made.__dict__["_given"] = args, kwargs  # past nn.Module's own __setattr__, which is not ready yet
        with contextlib.suppress(TypeError):  # arguments that do not fit, of which the constructor tells
            check_arguments(cls, Described.arguments(made), cls.__name__)
        return made

    def arguments(self) -> dict[str, Any]:
        """Return the constructor's arguments by name, defaults included, ``**settings`` among the others."""
        signature = inspect.signature(type(self).__init__)
        args, kwargs = self.__dict__["_given"]
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        found = dict(list(bound.arguments.items())[1:])
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_KEYWORD:
                found |= found.pop(name)
            elif parameter.kind is parameter.VAR_POSITIONAL and not found[name]:
                del found[name]  # object's own constructor, where a class has none
        return found

    def __repr__(self) -> str:
        """Write a call that makes this object again, without arguments at their defaults."""
        parameters = inspect.signature(type(self).__init__).parameters
        words = []
        for name, value in self.arguments().items():
            parameter = parameters.get(name)  # None: one of ``**settings``
            if parameter and parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
                words.append(repr(value))
            elif not parameter or value != parameter.default:
                words.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(words)})"


def class_path(kind: type) -> str:
    """Return the import path of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"


def named_class(value: Described) -> dict[str, Any]:
    """Convert an object to its class and arguments, as in a configuration."""
    arguments = described(value.arguments())
    return {"class_path": class_path(type(value))} | ({"init_args": arguments} if arguments else {})


def described(value: Any, of_object: Callable[[Described], dict[str, Any]] = named_class) -> Any:
    """Convert a value to mappings, lists, strings and numbers, as in a configuration; other objects become text.

    >>> described({"depths": (10, 20), "file": Path("a")})
    {'depths': [10, 20], 'file': 'a'}
    """
    if isinstance(value, Described):
        return of_object(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: described(getattr(value, field.name), of_object) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): described(inner, of_object) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [described(inner, of_object) for inner in value]
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, Real):  # NumPy's become Python's
        return int(value) if isinstance(value, Integral) else float(value)
    return value.as_posix() if isinstance(value, Path) else str(value)


def find_class(path: str, base: type, where: str) -> type[Any]:
    """Import the class of an import path, without calling it.

    Importing runs the module, so it must be code that the user trusts. Only classes of the right kind pass, never a
    function or an object that happens to take the same arguments.

    >>> find_class("collections.OrderedDict", dict, "key")
    <class 'collections.OrderedDict'>
    """
    module, _, name = path.rpartition(".")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:  # ValueError: there is no module in the path
        raise UserError(f"{where}: {path!r} cannot be imported ({one_line(error)})") from error
    if not isinstance(found, type):
        raise UserError(f"{where}: {path} is a {type(found).__name__}; name a class")
    if not issubclass(found, base):
        raise UserError(f"{where}: {path} is not a {base.__module__}.{base.__qualname__}")
    return found


def find_own_classes() -> None:
    """Make classes of the working directory importable, after everything that is installed."""
    if "" not in sys.path:
        sys.path.append("")


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of settings as canonical JSON, in hex.

    >>> fingerprint({"epochs": 1, "lr": 1.0}) == fingerprint({"lr": 1, "epochs": 1})
    True
    """
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: Any) -> Any:
    """Write settings as mappings, lists, strings and numbers, with every default; 1.0 and 1 are the same.

    An object becomes its class with its arguments. A user's class counts with the source of its module, or with its own
    source in a script.
    """
    plain = described(value, lambda inner: _class_of(type(inner)) | canonical(inner.arguments()))
    return json.loads(json.dumps(plain), parse_float=_shortest)


def _shortest(digits: str) -> float:
    value = float(digits)
    return int(value) if value.is_integer() else value


def first_difference(old: Any, new: Any, key: str = "") -> tuple[str, Any, Any] | None:
    """Find the first key, dotted, in which resolved settings differ, and its two values; None if they are equal.

    >>> first_difference({"loss": {"alpha": 10}}, {"loss": {"alpha": 1}})
    ('loss.alpha', 10, 1)
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        if old.get("class") != new.get("class"):
            return key, old.get("class"), new.get("class")
        inner = f"{key}." if key else ""
        pairs = ((f"{inner}{name}", old.get(name), new.get(name)) for name in {**new, **old})
        return next(filter(None, (first_difference(one, other, name) for name, one, other in pairs)), None)
    return (key, old, new) if fingerprint(old) != fingerprint(new) else None


def class_name(kind: type) -> str:
    """Return the short name of a class of this library, the import path of any other."""
    return kind.__name__ if kind.__module__.partition(".")[0] == __name__.partition(".")[0] else class_path(kind)


def _class_of(kind: type) -> dict[str, Any]:
    if (name := class_name(kind)) == kind.__name__:
        return {"class": name}
    try:
        source = inspect.getsource(kind if kind.__module__ == "__main__" else sys.modules[kind.__module__])
    except (OSError, TypeError):  # typed into an interpreter
        functions = [inspect.unwrap(value) for value in vars(kind).values() if inspect.isfunction(value)]
        source = "".join(function.__code__.co_code.hex() for function in functions)
    return {"class": name, "source": hashlib.sha256(source.encode()).hexdigest()}
