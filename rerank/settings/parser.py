"""From options or nested settings to values, with errors of one line: what all commands share."""

from __future__ import annotations

import copy
import inspect
import json
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeAlias

from rerank.errors import UserError, nearest, one_line
from rerank.settings.described import Described, find_class
from rerank.settings.help import EMPTY, Page, help_page, option
from rerank.settings.ranges import annotations_of, check_arguments

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

Classes: TypeAlias = Mapping[str, Sequence[str]]
"""Names of classes by the keys that take them."""


def make_parser(name: str, documented: Callable[..., Any], page: Page = EMPTY) -> ArgumentParser:
    """An empty parser for ``rerank NAME``, described by a docstring as far as its arguments."""
    from jsonargparse import ArgumentParser, set_parsing_settings

    class Parser(ArgumentParser):
        needed: frozenset[str] = frozenset()

        def parse_args(self, *args: Any, **options: Any) -> Any:
            self.needed = required(self)  # while it parses, nothing is
            return super().parse_args(*args, **options)

        def format_help(self, formatter: Any = None) -> str:
            needed = self.needed | required(self)
            return help_page(str(self.prog), self.description or "", self._actions, needed, page)

    def required(parser: ArgumentParser) -> frozenset[str]:
        return frozenset(action.dest for action in parser._actions if action.required)

    # Or what has no type would be looked through for classes to call, of any kind.
    set_parsing_settings(instantiate_subclass_spec_in_any=False)
    about = re.split(r"\n\n(?=Args|Attributes|Returns|Raises|Example|>>>)", inspect.getdoc(documented) or "")[0]
    return Parser(prog=f"rerank {name}", description=about, exit_on_error=False)


def parse(
    parser: ArgumentParser, given: Sequence[str] | Mapping[str, Any], classes: Classes | None = None
) -> Namespace:
    """Parse options, in the spelling ``--per-query`` or ``--per_query``."""
    from jsonargparse import ArgumentError

    try:
        if isinstance(given, Mapping):
            options = parser.parse_object(copy.deepcopy(dict(given)))  # it would write its own objects into lists
        else:
            words = [re.sub(r"^--[^=]+", lambda key: "--" + key[0][2:].replace("-", "_"), word) for word in given]
            options = parser.parse_args(words)
    except ArgumentError as error:
        _raise_again(error.__cause__)
        raise UserError(_one_line(str(error), parser, classes or {})) from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:  # it stumbles over some values
        _raise_again(error)
        raise UserError(
            f"a value of another kind than expected ({one_line(error)}); see {parser.prog} --help"
        ) from error
    try:
        parser.validate(options, skip_unset=False)  # or nothing behind a key (null) would pass, whatever its type
    except TypeError as error:
        raise UserError(_one_line(str(error), parser, classes or {})) from error
    for key in parser.groups or ():
        if options.get(key, key) is None:
            raise UserError(f"{key}: expected keys and their values, not nothing; see {parser.prog} --help")
    _check_classes(options, "")
    return options


def _raise_again(error: BaseException | None) -> None:
    """Raise what code that the parser called has raised: that is no fault of a value."""
    if error is None:
        return
    frames = traceback.walk_tb(error.__traceback__)
    packages = [str(frame.f_globals.get("__name__")).partition(".")[0] for frame, _ in frames]
    called = takewhile(lambda package: package != "jsonargparse", reversed(packages))
    if not set(called) <= {"yaml", *sys.stdlib_module_names}:
        raise error


def _check_classes(value: Any, key: str) -> None:
    """Refuse functions and objects in place of classes, and arguments that their classes do not take."""
    from jsonargparse import Namespace

    if isinstance(value, Described):
        raise UserError(f"{key}: names an object of {type(value).__name__}; name the class")
    if isinstance(value, Namespace):
        value = vars(value)
    elif isinstance(value, dict):  # without types, so that what is in it stays as it was written
        value.update({name: Namespace(inner=inner).as_dict()["inner"] for name, inner in value.items()})
    if isinstance(value, list | tuple):
        for inner in value:
            _check_classes(inner, key)
    if not isinstance(value, Mapping):
        return
    if isinstance(path := value.get("class_path"), str) and "." in path:  # found by the parser, by its short name too
        kind = find_class(path, object, key)
        if issubclass(kind, Described) and isinstance(given := value.get("init_args"), Namespace):
            check_arguments(kind, vars(given), key)
    for name, inner in value.items():
        _check_classes(inner, key if name == "init_args" else f"{key}.{name}".lstrip("."))


@contextmanager
def options_of(function: Callable[..., Any], argv: Sequence[str], page: Page = EMPTY) -> Iterator[dict[str, Any]]:
    """What to call a command's function with; errors of the call name arguments as they are written in a shell.

    Its parameters are the options, and those of what it passes ``**options`` to. A parameter that takes a data class is
    as many options as that has fields.
    """
    parser = make_parser(function.__name__, function, page)
    hints = annotations_of(function)
    groups = {key: kind for key, kind in hints.items() if isinstance(kind, type) and is_dataclass(kind)}
    parser.add_function_arguments(function, as_group=False, skip=set(groups))
    for kind in groups.values():
        parser.add_class_arguments(kind, as_group=False)
    options = vars(parse(parser, shell_like(parser, argv)))
    named = set(options) - set(page.plain)
    try:
        for key, kind in groups.items():
            options[key] = kind(**{field.name: options.pop(field.name) for field in fields(kind)})
        yield options
    except UserError as error:
        key, colon, problem = str(error).partition(": ")
        if colon and key in named:
            raise UserError(f"{option(key)}: {problem}") from error
        raise


def shell_like(parser: ArgumentParser, argv: Sequence[str]) -> list[str]:
    """Let lists be written ``--runs A B`` and switches ``--overwrite``, as elsewhere in the shell."""
    types = {action.dest: getattr(action, "_typehint", action.type) for action in parser._actions}
    result: list[str] = []
    lists: dict[str, list[str]] = {}  # one that is given several times has all its values
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        name, equals, value = word.partition("=")
        hint = types.get(name.removeprefix("--").replace("-", "_")) if word.startswith("--") else None
        values = list(takewhile(lambda value: not value.startswith("--"), argv[position:]))
        if str(hint).startswith(("list", "typing.Optional[list", "typing.List")) and not value.startswith("["):
            lists.setdefault(name, []).extend([value, *values] if equals else values)
            position += len(values)
        elif hint is bool and not equals and not values:
            result.append(f"{word}=true")
        else:
            result.append(word)
    return result + [f"{name}={json.dumps(values)}" for name, values in lists.items()]


def _one_line(message: str, parser: ArgumentParser, classes: Classes) -> str:
    known = [option for action in parser._actions for option in action.option_strings]
    return f"{refused(message, known, classes)}; see {parser.prog} --help"


WORDS = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "list": "a list"}
WORDS |= {"dict": "keys and their values"}
"""Types as people call them; ``[a, b]`` is a list."""


def refused(message: str, options: Sequence[str], classes: Classes) -> str:
    """A parser's message in one line.

    jsonargparse nests messages, one per class and one per alternative of a type; what counts is the innermost one, and
    the keys on the way to it.
    """
    text = " ".join(line.strip() for line in message.splitlines() if line.strip())
    key = ".".join(re.findall(r'Parser key "([\w.]+)"', text))
    kind = (re.findall(r"given class_path '([\w.]+)'", text) or [""])[-1]
    if found := re.search(r"import path string: (\S+)", text):
        own = classes.get(key.rpartition(".")[2]) or [name for names in classes.values() for name in names]
        return f"{key}: there is no {found[1]}{nearest(found[1], own)}"
    if found := re.search(r"Option '([^']+)' is not accepted", text):
        if not kind:
            first = found[1].partition(".")[0]
            known = {option.lstrip("-").partition(".")[0] for option in options}
            name = found[1] if key or first in known else first
            return f"{key and key + '.'}{name}: there is no such key{nearest_option(name, options)}"
        takes = inspect.signature(find_class(kind, object, key)).parameters
        return f"{key}.{found[1]}: {_short(kind)} has no {found[1]}{nearest(found[1], takes)}"
    if kind and (found := re.search(r"arguments are required: (.*)", text)):
        needed = re.sub(r" - Expected.*", "", found[1])
        return f"{key}: {_short(kind)} needs {needed}; give --{key}.{needed.split(',')[0]}"
    if found := re.search(r"but ([\w.]+) is abstract", text):
        return f"{key}: choose a {_short(found[1]).lower()} first, such as --{key} NAME; --{key}.help lists them"
    if found := re.search(r"Not a valid subclass of (\w+)\. Got value: None", text):
        return f"{key}: expected a {found[1]}, not nothing"
    if found := re.search(r"Import path ([\w.]* ?)does not correspond to a subclass of (\w+)", text):
        path = found[1].strip() or text.rpartition("Given value: ")[2]
        return f"{key}: {path} is no {found[2]}"
    if found := re.search(r"given class_path '([\w.]+)': ((?:No module|module) .+?)(?: - |$)", text):
        return f"{key}: {found[1]} cannot be imported ({found[2]})"
    if expected := _expected(text):
        return f"{key}: {expected}"
    if found := re.search(r"arguments are required: (.*)", text):
        keys = found[1].split(", ")  # where there are files, a key need not be an option
        return f"{', '.join(keys if '--config' in options else map(option, keys))}: needed"
    for pattern in (r"[Uu]nrecognized arguments: (\S+)", r"Key '?([\w.]+)'? is not expected"):
        if found := re.search(pattern, text):
            text += nearest_option(found[1].split("=")[0].lstrip("-"), options)
    return text


def nearest_option(name: str, options: Sequence[str]) -> str:
    """A suggestion for an unknown option, which may be the last word of one.

    >>> nearest_option("lr", ["--sampler", "--optimization.encoder_lr"])
    " (did you mean '--optimization.encoder_lr'?)"
    """
    words = [option.lstrip("-") for option in options if option.startswith("--")]
    for word in words:
        if word.endswith(("." + name, "_" + name)):
            return f" (did you mean '--{word}'?)"
    return nearest(name, words).replace("'", "'--", 1)


def _expected(text: str) -> str:
    """What kind of value there should be, and what there is."""
    own = re.split(r" - Expected a <class 'NoneType'> Given value type: <class 'jsonargparse", text)[0]  # of this key
    types = re.findall(r"Expected an? (<class '\w+'>|typing\.Literal\[[^\]]*\])", own)
    given = re.findall(r"(?:Got value: |val='|Given value: )([^\s')]*\S*?)(?:'\)|$| - )", text)
    if not types or not given:
        return ""
    *others, last = dict.fromkeys(word for name in types for word in _in_words(name))
    there = "nothing" if given[0] == "None" else given[0]
    return f"expected {', '.join(others)}{' or ' * bool(others)}{last}, not {there}"


def _in_words(name: str) -> list[str]:
    if name.startswith("typing.Literal"):
        return name[len("typing.Literal[") : -1].replace("'", "").split(", ")
    kind = re.sub(r"<class '(\w+)'>", r"\1", name)
    return ["null" if kind == "NoneType" else WORDS.get(kind, kind)]


def _short(kind: str) -> str:
    return kind.rpartition(".")[2]
