"""Options and nested settings to values with jsonargparse; errors in one line that says what to type."""

from __future__ import annotations

import ast
import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rerank.errors import UserError, nearest, one_line
from rerank.settings.described import Described, find_class
from rerank.settings.ranges import annotations_of, check_arguments, check_value

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

TRANSFORMERS = {
    "per_device_train_batch_size": "batch_size",
    "gradient_accumulation_steps": "micro_batch_size",
    "num_train_epochs": "epochs",
    "learning_rate": "optimization.encoder_lr",
    "lr": "optimization.encoder_lr",
    "lr_scheduler_type": "optimization.schedule",
    "eval_steps": "steps_per_epoch",
    "save_steps": "checkpoint_every",
    "metric_for_best_model": "monitor",
    "report_to": "tracker",
    "model_name_or_path": "model.name",
    "bf16": "precision",
    "fp16": "precision",
    "gradient_checkpointing": "gradient",
}
"""Options of ``rerank train`` by their names in transformers, where these are too different to be found."""


def make_parser(name: str, documented: Callable[..., Any]) -> ArgumentParser:
    """Make an empty parser for ``rerank NAME``, described by a docstring up to its arguments."""
    from jsonargparse import ArgumentParser, set_parsing_settings

    # Values without a type would be searched for classes of any kind, which would be called.
    set_parsing_settings(instantiate_subclass_spec_in_any=False)
    about = re.split(r"\n\n(?=Args|Attributes|Returns|Raises|Example|>>>)", inspect.getdoc(documented) or "")[0]
    return ArgumentParser(prog=f"rerank {name}", description=about, exit_on_error=False)


def add_config(parser: ArgumentParser) -> None:
    """Add ``--config``; :func:`rerank.settings.configs.join_configs` merges its files before parsing."""
    from jsonargparse import ActionConfigFile

    about = "YAML file, which may extend another (extends: FILE); later files override its keys, options all files"
    parser.add_argument("--config", action=ActionConfigFile, help=about)


def parse(
    parser: ArgumentParser,
    given: Sequence[str] | Mapping[str, Any],
    classes: Mapping[str, Mapping[str, str]] | None = None,
) -> Namespace:
    """Parse options (``--per-query`` or ``--per_query``) or nested settings.

    Args:
        parser: parser of a command.
        given: words of the command line, or settings as a YAML file has them.
        classes: modules of the classes to suggest, by the last part of the keys that take them and by name.
    """
    from jsonargparse import ArgumentError

    try:
        if isinstance(given, Mapping):
            options = parser.parse_object(copy.deepcopy(dict(given)))  # it would write its own objects into lists
        else:
            words = [re.sub(r"^--[^=]+", lambda key: "--" + key[0][2:].replace("-", "_"), word) for word in given]
            options = parser.parse_args(words)
        parser.validate(options, skip_unset=False)  # or null would pass for any type
    except (ArgumentError, TypeError, KeyError, AttributeError) as error:
        raise UserError(_explain(str(error), parser, classes or {})) from error
    for key in parser.groups or ():
        if options.get(key, key) is None:
            raise UserError(f"{key}: expected keys and their values, not null")
    _check_classes(options, "")
    return options


def _check_classes(value: Any, key: str) -> None:
    """Check the arguments of classes, and that objects do not stand in place of classes."""
    from jsonargparse import Namespace

    if isinstance(value, Described):
        raise UserError(f"{key}: names an object of {type(value).__name__}; name the class")
    if isinstance(value, Namespace):
        value = vars(value)
    elif isinstance(value, dict):  # untyped values stay as they were written
        value.update({name: Namespace(inner=inner).as_dict()["inner"] for name, inner in value.items()})
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_classes(inner, key)
    if not isinstance(value, Mapping):
        return
    if isinstance(path := value.get("class_path"), str) and "." in path:
        kind = find_class(path, object, key)
        if issubclass(kind, Described) and isinstance(given := value.get("init_args"), Namespace):
            check_arguments(kind, vars(given), key)
    for name, inner in value.items():
        _check_classes(inner, key if name == "init_args" else f"{key}.{name}".lstrip("."))


def _explain(message: str, parser: ArgumentParser, classes: Mapping[str, Mapping[str, str]]) -> str:
    """Shorten a message of jsonargparse, and suggest what to type.

    It nests messages, one per class and per alternative of a type. The innermost one counts, and the keys leading to
    it.
    """
    text, see = one_line(message), f"; see {parser.prog} --help"
    key = ".".join(re.findall(r'Parser key "([\w.]+)"', text))
    path = (re.findall(r"given class_path '([\w.]+)'", text) or [""])[-1]
    kind = path.rpartition(".")[2]
    inner = re.split(r"(?:Parser key \"[\w.]+\"|given class_path '[\w.]+'|Errors): (?:- )?", text)[-1]
    cause = re.split(r" - | Given value", inner)[0]
    if found := re.search(r"import path string: (\S+)", cause):
        takes = key.rpartition(".")[2]
        known = classes.get(takes) or [name for kinds in classes.values() for name in kinds]
        return f"{key}: unknown {takes} {found[1]!r}{nearest(found[1], known)}{see}"
    if found := re.search(r"(?:Option '|unrecognized arguments: --|Key ')([\w.-]+)", cause):
        name = ".".join(filter(None, (key, found[1])))
        if kind:
            return f"{name}: {kind} has no {found[1]}{_inner_option(found[1], key, path, classes)}{see}"
        options = [option.lstrip("-") for action in parser._actions for option in action.option_strings]
        return f"{'--' * ('nrecog' in cause)}{name}: unknown option{nearest_option(name, options)}{see}"
    if found := re.search(r"arguments are required: (.*)", cause):
        if kind:
            first = found[1].split(",")[0].strip()
            return f"{key}: {kind} needs {found[1].strip()}; give --{key}.{first}{see}"
        listed = ", ".join(f"--{name}".replace("_", "-") for name in found[1].split(", "))
        return f"{listed}: needed{', here or in a --config FILE' * ('--config' in parser._option_string_actions)}{see}"
    if found := re.search(r".*(?:Got value: |Given value: |val=')(.*?)(?:'\)| - | Subclass|$)", inner):
        value: Any = found[1]
        owner: Any = find_class(path, object, key) if path else None
        hints = {action.dest: getattr(action, "_typehint", action.type) for action in parser._actions}
        hint = hints.get(key) if owner is None else annotations_of(owner).get(key.rpartition(".")[2])
        with suppress(ValueError, SyntaxError):
            value = ast.literal_eval(value)
        check_value(key, value, hint)
    return f"{f'{key}: ' * bool(key)}{cause}{see}"


def _inner_option(name: str, key: str, path: str, classes: Mapping[str, Mapping[str, str]]) -> str:
    """Suggest an argument of a class, or of a class that one of its arguments takes."""
    takes = inspect.signature(find_class(path, object, key)).parameters
    for part in takes:
        inner = [find_class(f"{module}.{kind}", object, part) for kind, module in classes.get(part, {}).items()]
        if any(name in inspect.signature(kind).parameters for kind in inner):
            return f" (did you mean '--{key}.{part}.{name}'?)"
    return nearest(name, takes)


def nearest_option(name: str, options: Sequence[str]) -> str:
    """Suggest an option for an unknown one: transformers' name of it, or a similar name.

    >>> nearest_option("encoder_lr", ["sampler", "optimization.encoder_lr"])
    " (did you mean '--optimization.encoder-lr'?)"
    """
    suggestion = nearest(TRANSFORMERS.get(name, name), options) or nearest(name.partition(".")[0], options)
    return suggestion.replace("'", "'--", 1).replace("_", "-")
