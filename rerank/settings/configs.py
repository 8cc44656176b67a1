"""YAML configurations as nested dictionaries: files that extend others, dotted keys, merging."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rerank.errors import NotFoundError, UserError, one_line

Settings = dict[str, Any]

NAMES = ("methods", "published")
"""Keys of an experiment below which dots are part of names (``R4.L``), or of keys that go into trials later."""


def read_config(path: str | Path, extending: Sequence[Path] = ()) -> Settings:
    """Read a YAML file, merged over the file that its key ``extends`` names; dotted keys become nested.

    Paths in ``extends`` are relative to the file. The key ``base`` of an experiment may extend a training file.
    """
    path = Path(path)
    content, files = _parse(path), [*extending, path.resolve()]
    if isinstance(shared := content.get("base"), dict) and "extends" in shared:
        content["base"] = _extended(shared, path, files)
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


def _parse(path: Path) -> Settings:
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
