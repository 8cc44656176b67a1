"""Turn YAML files, options and nested settings into values, with errors of one line that say what to type."""

from __future__ import annotations

import ast
import copy
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.errors import NotFoundError, UserError, nearest, one_line
from rerank.settings.arguments import Described, annotations_of, check_arguments, check_value, find_class

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace

Settings = dict[str, Any]

NAMES = ("methods", "published")
"""Keys of an experiment below which dots are part of names (``R4.L``), or of keys that go into trials later."""

OURS = ("output", "seed", "test")
"""Keys of a training that an experiment sets."""


def read_config(path: str | Path, extending: Sequence[Path] = ()) -> Settings:
    """Read a YAML file, merged over the file that its key ``extends`` names; dotted keys become nested.

    Paths in ``extends`` are relative to the file. The key ``base`` of an experiment may extend a training file, whose
    output, seed and test it leaves out.
    """
    path = Path(path)
    content, files = _read_yaml(path), [*extending, path.resolve()]
    if isinstance(shared := content.get("base"), dict) and "extends" in shared:
        own = {*shared}
        settings = _extended(shared, path, files)
        content["base"] = {key: value for key, value in settings.items() if key in own or key not in OURS}
    return _extended(content, path, files)


def _extended(content: Settings, path: Path, files: Sequence[Path]) -> Settings:
    """Merge settings over the file that their key ``extends`` names, if any."""
    base: Settings = {}
    if "extends" in content:
        name = content.pop("extends")
        if not isinstance(name, str):
            raise UserError(f"{path}: extends: expected the path of one file, not {name!r}")
        other = path.parent / expand_home(name)
        if other.resolve() in files:
            raise UserError(f"{path}: extends: {other} extends this file in turn; remove one of the two")
        if not other.is_file():
            raise UserError(f"{path}: extends: no such file {other}; paths are relative to the file that has them")
        base = read_config(other, files)
    settings: Settings = merged(base, content, f"{path}: ")
    return settings


def join_configs(argv: Sequence[str], command: str) -> list[str]:
    """Replace all ``--config FILE`` with one: later files override earlier ones, a new class with its arguments.

    The parser's own merging would keep arguments of a class that a later file replaces. Options that reach into an
    experiment's runs (``--base.data.path DIR``) override its files.
    """
    import yaml

    words: list[str] = []
    settings: Settings = {}
    inside: Settings = {}
    remaining = iter(argv)
    for word in remaining:
        option, equals, value = word.partition("=")
        in_base = command == "experiment" and option.startswith("--base.")
        if not (in_base or option == "--config"):
            words.append(f"{option}={expand_home(value)}" if equals else word)
            continue
        value = value if equals else next(remaining, "")
        if not value:
            raise UserError(f"{option}: needs a value; give {option} {'VALUE' if in_base else 'FILE.yaml'}")
        if in_base:
            try:
                inside[option.removeprefix("--").replace("-", "_")] = yaml.safe_load(value)
            except yaml.YAMLError as error:
                raise UserError(f"{option}: {value!r} is not YAML") from error
            continue
        settings = merged(settings, read_config(value), f"{value}: ")
        if command == "train" and "methods" in settings:
            raise UserError(f"{value}: is an experiment; run it with rerank experiment --config {value}")
        if command == "experiment" and "model" in settings and "methods" not in settings:
            raise UserError(f"{value}: is a training run; run it with rerank train --config {value}")
    settings = merged(settings, inside)
    if not settings:
        return words
    # Quoted, because the parser would read the text 1e-3 as a number.
    return ["--config", yaml.safe_dump(settings, sort_keys=False, default_style='"'), *words]


def merged(base: Any, over: Any, where: str = "", dotted: bool = True) -> Any:
    """Return ``base`` updated key by key; a mapping with ``class_path`` replaces the whole value.

    Keys may be dotted, such as ``loss.relaxation.alpha``, and ``init_args`` may be left out below a class. A class that
    is given as a name becomes a mapping; missing mappings are made. Neither side is changed.

    >>> merged({"loss": "ListNet"}, {"loss.temperature": 2})
    {'loss': {'class_path': 'ListNet', 'init_args': {'temperature': 2}}}

    Args:
        base: nested settings.
        over: other settings, or a value.
        where: beginning of errors: the file, and the keys above.
        dotted: False if dots belong to names.
    """
    is_class = isinstance(over, str) or (isinstance(over, Mapping) and "class_path" in over)
    if is_class and isinstance(base, Mapping) and base and "class_path" not in base:  # its arguments came first
        found: Settings = _expanded({"class_path": over} if isinstance(over, str) else over)
        return found | {"init_args": {**base.get("init_args", base), **found.get("init_args", {})}}
    if is_class or not isinstance(over, Mapping):
        return _expanded(over)
    base = {"class_path": base} if isinstance(base, str) else {} if base is None else base
    if not isinstance(base, Mapping):
        raise UserError(f"{where.removesuffix('.')}: is {base!r}, which holds no keys")
    result = dict(base)
    # A class comes before its arguments, and does not undo them.
    for key in sorted(over, key=lambda key: str(key).count(".")) if dotted else over:
        name, dot, rest = key.partition(".") if dotted and isinstance(key, str) else (key, "", "")
        node = result
        if "class_path" in result and name not in ("class_path", "init_args"):
            node = result["init_args"] = dict(result.get("init_args") or {})
        value = {rest: over[key]} if dot else over[key]
        node[name] = merged(node.get(name), value, f"{where}{name}.", dotted and name not in NAMES)
    return result


def _expanded(value: Any) -> Any:
    """Copy a value, with paths from the home folder expanded."""
    if isinstance(value, Mapping):
        return {key: _expanded(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_expanded, value))
    return expand_home(value) if isinstance(value, str) else value


def expand_home(text: str) -> str:
    """Expand ``~/`` at the start of a path, also behind a prefix (``beir:~/scifact``)."""
    return re.sub(r"^((?:\w+:)?)~(?=/)", lambda match: match[1] + str(Path.home()), text)


def _read_yaml(path: Path) -> Settings:
    import yaml
    from jsonargparse import get_loader

    class Unique(yaml.SafeLoader):
        """Refuses a repeated key, of which YAML would silently take the last."""

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            keys = [(key.tag, str(key.value)) for key, _ in node.value]
            if repeated := next((i for i, key in enumerate(keys) if key in keys[:i] and key[1] != "<<"), None):
                mark = node.value[repeated][0].start_mark
                raise yaml.constructor.ConstructorError(
                    problem=f"{keys[repeated][1]} is there twice", problem_mark=mark
                )
            return super().construct_mapping(node, deep)

    if not path.exists():
        raise NotFoundError(f"{path}: no such file")
    try:
        text = path.read_text(encoding="utf-8")
        yaml.load(text, Unique)
        settings = get_loader("yaml")(text)  # as the parser reads options: 1e-3 is a number
    except (yaml.YAMLError, LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None)
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(f"{path}{line}: not YAML: {problem or one_line(error)[:200]}") from error
    if not isinstance(settings, dict):
        raise UserError(f"{path}: a configuration is a mapping of keys to values")
    return settings


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


def make_parser(name: str, documented: Callable[..., Any], config: bool = False) -> ArgumentParser:
    """Make a parser for ``rerank NAME``, described by a docstring up to its arguments.

    With ``config`` it has ``--config``, whose files :func:`join_configs` merges before parsing, else no option yet.
    """
    from jsonargparse import ActionConfigFile, ArgumentParser, set_parsing_settings

    # Values without a type would be searched for classes of any kind, which would be called.
    set_parsing_settings(instantiate_subclass_spec_in_any=False)
    about = re.split(r"\n\n(?=Args|Attributes|Returns|Raises|Example|>>>)", inspect.getdoc(documented) or "")[0]
    parser = ArgumentParser(prog=f"rerank {name}", description=about, exit_on_error=False)
    if config:
        use = "YAML file, which may extend another (extends: FILE); later files override its keys, options all files"
        parser.add_argument("--config", action=ActionConfigFile, help=use)
        shows = next(action for action in parser._actions if action.dest == "print_config")
        shows.help = "print the resulting configuration, and do nothing else"
    return parser


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
    ours = TRANSFORMERS.get(name.rpartition(".")[2], name)
    suggestion = nearest(ours, options) or nearest(name.partition(".")[0], options)
    return suggestion.replace("'", "'--", 1).replace("_", "-")
