"""What all commands share: options from signatures, one-line errors, exit codes, logging."""

from __future__ import annotations

import copy
import errno
import functools
import inspect
import io
import json
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.described import Described
from rerank.errors import NotFoundError, UserError, one_line
from rerank.named import find_class
from rerank.refused import refused
from rerank.stops import Stopped, listening, name_of

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

log = logging.getLogger("rerank")

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""No space on the disk, none in the quota, a file larger than allowed; Rust libraries say ``(os error N)``."""


def make_parser(name: str, documented: Callable[..., Any]) -> ArgumentParser:
    """An empty parser for ``rerank NAME``, described by the first paragraph of a docstring."""
    from jsonargparse import ArgumentParser, set_parsing_settings

    # Or what has no type would be looked through for classes to call, of any kind.
    set_parsing_settings(instantiate_subclass_spec_in_any=False)
    about = (documented.__doc__ or "").split("\n\n")[0]
    return ArgumentParser(prog=f"rerank {name}", description=about, exit_on_error=False)


def parse(parser: ArgumentParser, asked: Sequence[str] | Mapping[str, Any], classes: Sequence[str] = ()) -> Namespace:
    """Parse options, in the spelling ``--per-query`` or ``--per_query``.

    Args:
        parser: the parser.
        asked: the words of the command line, or nested settings as a YAML file has them.
        classes: names of classes that values may mean, for suggestions.

    Raises:
        UserError: what the parser refuses, in one line with the nearest key or class.
    """
    from jsonargparse import ArgumentError

    try:
        if isinstance(asked, Mapping):
            options = parser.parse_object(copy.deepcopy(dict(asked)))  # it would write its own objects into lists
        else:
            words = [re.sub(r"^--[^=]+", lambda key: "--" + key[0][2:].replace("-", "_"), word) for word in asked]
            options = parser.parse_args(words)
    except ArgumentError as error:
        _raise_again(error.__cause__)
        raise UserError(_one_line(str(error), parser, classes)) from error
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:  # it stumbles over some values
        _raise_again(error)
        raise UserError(
            f"a value of another kind than expected ({one_line(error)}); see {parser.prog} --help"
        ) from error
    try:
        parser.validate(options, skip_unset=False)  # or nothing behind a key (null) would pass, whatever its type
    except TypeError as error:
        raise UserError(_one_line(str(error), parser, classes)) from error
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
    """Refuse what the parser takes in place of a class: functions that say that they return one, objects of one."""
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
        find_class(path, object, key)
    for name, inner in value.items():
        _check_classes(inner, key if name == "init_args" else f"{key}.{name}".lstrip("."))


def call(name: str, function: Callable[..., Any], argv: Sequence[str], work: Callable[..., Any] | None = None) -> Any:
    """Run a command whose options are the parameters of a function.

    Args:
        name: the command.
        function: what it does.
        argv: its words.
        work: the library's function under it, whose parameters are options before its own; where both have one of a
            name, the command's counts.
    """
    parser = make_parser(name, function)
    own = [key for key, p in inspect.signature(function).parameters.items() if p.kind is not p.VAR_KEYWORD]
    if work is not None:
        parser.add_function_arguments(work, skip=set(own), as_group=False)
    parser.add_function_arguments(_without_more(function), as_group=False)
    return function(**vars(parse(parser, shell_like([*([work] if work else []), function], argv))))


def _without_more(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function as its parser shall see it: without ``**asked``, which other options fill."""

    @functools.wraps(function)
    def seen(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    signature = inspect.signature(function)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    seen.__signature__ = signature.replace(parameters=named)  # type: ignore[attr-defined]
    return seen


def shell_like(functions: Sequence[Callable[..., Any]], argv: Sequence[str]) -> list[str]:
    """Let lists be written ``--runs A B`` and switches ``--overwrite``, as elsewhere in the shell."""
    kinds: dict[str, str] = {}
    for function in functions:
        names = inspect.unwrap(function).__globals__
        for key, parameter in inspect.signature(function).parameters.items():
            hint = eval(parameter.annotation, names)  # an annotation of ours, which may be a name such as Runs
            kinds[key] = hint.__name__ if hint is bool else str(hint)
    result: list[str] = []
    lists: dict[str, list[str]] = {}  # one that is given several times has all its values
    position = 0
    while position < len(argv):
        word = argv[position]
        position += 1
        name, equals, value = word.partition("=")
        kind = kinds.get(name.removeprefix("--").replace("-", "_"), "") if word.startswith("--") else ""
        values = list(takewhile(lambda value: not value.startswith("--"), argv[position:]))
        if kind.startswith("list") and not value.startswith("["):
            lists.setdefault(name, []).extend([value, *values] if equals else values)
            position += len(values)
        elif kind == "bool" and not equals and not values:
            result.append(f"{word}=true")
        else:
            result.append(word)
    return result + [f"{name}={json.dumps(values)}" for name, values in lists.items()]


def _one_line(message: str, parser: ArgumentParser, classes: Sequence[str]) -> str:
    known = [option for action in parser._actions for option in action.option_strings]
    return f"{refused(message, known, classes)}; see {parser.prog} --help"


def is_main() -> bool:
    """Whether this is the process that speaks and writes, of those that ``torchrun`` started."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def heard() -> Iterator[None]:
    """Write what is logged to stderr, as a command does, if the program that calls has not configured any logging."""
    if log.hasHandlers() or not is_main():
        yield
        return
    handler, level = logging.StreamHandler(), log.level
    log.addHandler(handler)
    log.setLevel(level or logging.INFO)
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)


@contextmanager
def log_file(folder: Path) -> Iterator[None]:
    """Write what the command says to ``log.txt`` as well, with the time, once the folder is there."""
    handler = logging.FileHandler(folder / "log.txt", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handler.addFilter(lambda _: folder.is_dir())
    log.addHandler(handler)
    level = log.level
    log.setLevel(level or (logging.INFO if is_main() else logging.WARNING))
    try:
        yield
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
        handler.close()


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal what is being done, and for how many seconds, where nothing else would move."""
    from threading import Event, Thread

    from tqdm import tqdm

    done = Event()
    with tqdm(desc=what, bar_format="{desc} ... {elapsed}", disable=None, leave=False) as bar:

        def tick() -> None:
            while not done.wait(0.5):
                bar.refresh()

        ticking = Thread(target=tick, daemon=True)
        if not bar.disable:
            ticking.start()
        try:
            yield
        finally:
            done.set()
            if not bar.disable:
                ticking.join()


def find_own_classes() -> None:
    """Let classes of the working directory be named by their import path, behind all that is installed."""
    try:
        here = os.getcwd()
    except FileNotFoundError as error:
        raise NotFoundError("the working directory was removed; change to one that is there") from error
    if here not in sys.path:
        sys.path.append(here)


def exit_code(command: Callable[[], Any]) -> int:
    """Run a command.

    Returns:
        0 done, 2 for user errors (one line on stderr), 1 for internal errors, 130 and 143 stopped by Ctrl-C or SIGTERM.
    """
    logging.basicConfig(format="%(message)s", stream=sys.stderr, level=logging.WARNING)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal of another encoding shows what it can
    log.setLevel(logging.INFO if is_main() else logging.WARNING)
    try:
        with listening(command=True):
            command()
    except UserError as error:
        print(f"rerank: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except Stopped as stop:
        if is_main():
            said = stop.said or f"stopped by {name_of(stop.number)}; the same command does the rest"
            print(f"rerank: {said}", file=sys.stderr)
        return 128 + stop.number
    except KeyboardInterrupt:
        print("rerank: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if getattr(error, "errno", None) in FULL or any(f"os error {number})" in str(error) for number in FULL):
            print(f"rerank: error: no space left on the disk ({error}); free some and run again", file=sys.stderr)
            return 2
        if isinstance(error, OSError) and error.filename is not None and error.strerror:
            print(f"rerank: error: {error.filename}: {error.strerror}", file=sys.stderr)
            return 2
        raise
    return 0
