"""YAML configurations as nested dictionaries: files that extend others, dotted keys, merging."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rerank.errors import NotFoundError, UserError, one_line

Settings = dict[str, Any]

NAMES = ("methods", "published")
"""Keys of an experiment below which dots are part of names (``R4.L``), or of keys that go into cells later."""


def read_config(path: str | Path, extending: Sequence[Path] = ()) -> Settings:
    """Read a YAML file, merged over the file that its key ``extends`` names; dotted keys become nested.

    Paths in ``extends`` are relative to the file. The key ``base`` of an experiment may extend a training file.
    """
    path = Path(path)
    content = _parse(path, _read(path))
    shared = content.get("base")
    if isinstance(shared, dict) and "extends" in shared:
        base = read_config(_extended(path, shared.pop("extends"), extending), [*extending, path.resolve()])
        content["base"] = _merge_file(base, shared, path)
    if "extends" not in content:
        return _merge_file({}, content, path)
    other = _extended(path, content.pop("extends"), extending)
    return _merge_file(read_config(other, [*extending, path.resolve()]), content, path)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such file") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error


def _extended(path: Path, name: Any, extending: Sequence[Path]) -> Path:
    if not isinstance(name, str) or not name:
        raise UserError(f"{path}: extends: expected the path of one file, not {name!r}")
    other = path.parent / name
    try:
        found = other.exists()
    except (OSError, ValueError):  # names that no file can have
        found = False
    if not found:
        raise UserError(f"{path}: extends: no such file {other}; paths are relative to the file that has them")
    if other.resolve() in [*extending, path.resolve()]:
        raise UserError(f"{path}: extends: {other} extends this file in turn; remove one of the two")
    return other


def join_configs(argv: Sequence[str], command: str) -> list[str]:
    """Replace all ``--config FILE`` with one: later files override earlier ones, a new class with its arguments.

    The parser's own merging would keep arguments of a class that a later file replaces.
    """
    import yaml

    words: list[str] = []
    settings: Settings = {}
    remaining = iter(argv)
    for word in remaining:
        option, equals, value = word.partition("=")
        if option != "--config":
            words.append(word)
            continue
        path = value if equals else next(remaining, "")
        if not path:
            raise UserError("--config: needs a file; give --config FILE.yaml")
        settings = _merge_file(settings, read_config(path), path)
        if command == "train" and "methods" in settings:
            raise UserError(f"{path}: is an experiment; run it with rerank experiment --config {path}")
        if command == "experiment" and "model" in settings and "methods" not in settings:
            raise UserError(f"{path}: is a training run; run it with rerank train --config {path}")
    if not settings:
        return words
    # Quoted, because the parser would read the text 1e-3 as a number.
    return ["--config", yaml.safe_dump(settings, sort_keys=False, default_style='"'), *words]


def assign(settings: Settings, key: str, value: Any) -> None:
    """Set a dotted key in place, such as ``loss.relaxation.alpha``.

    ``init_args`` may be left out below a class. A class given as a name becomes a mapping; missing mappings are made.
    """
    _put(settings, key.split("."), value)


def merged(base: Settings, over: Mapping[str, Any], names: Sequence[str] = ()) -> Settings:
    """Return a copy of ``base`` updated key by key; a mapping with ``class_path`` replaces the whole value."""
    result: Settings = _copy(base)
    leaves = [*_leaves(over, names)]
    # Twice: keys stay in their order, and a class does not undo its arguments above it.
    for way, value in [*leaves, *sorted(leaves, key=lambda leaf: len(leaf[0]))]:
        _put(result, way, value)
    return result


def _merge_file(base: Settings, content: Settings, path: str | Path) -> Settings:
    try:
        return merged(base, content, NAMES)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _put(settings: Settings, way: Sequence[str], value: Any) -> None:
    node = settings
    for part in way[:-1]:
        node = _inside(node, part)
        child = node.get(part)
        if child is None:
            child = {}
        elif isinstance(child, str):
            child = {"class_path": child}
        elif not isinstance(child, dict):
            raise UserError(f"{'.'.join(map(str, way))}: {part} is {child!r}, which holds no keys")
        node[part] = child
        node = child
    _inside(node, way[-1])[way[-1]] = _copy(value)


def _inside(node: Settings, part: str) -> Settings:
    """Return the mapping that a key belongs to: of a class, its ``init_args``."""
    if "class_path" in node and part not in ("class_path", "init_args"):
        if not isinstance(node.get("init_args"), dict):
            node["init_args"] = {}
        return node["init_args"]
    return node


def _copy(value: Any) -> Any:
    """Copy deeply, without branches that YAML's aliases share."""
    if isinstance(value, Mapping):
        return {key: _copy(item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _leaves(
    over: Mapping[str, Any], names: Sequence[str] = (), above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in over.items():
        whole = (above and above[0] in names) or not isinstance(key, str)
        way = (*above, key) if whole else (*above, *key.split("."))
        if isinstance(value, Mapping) and value and "class_path" not in value:
            yield from _leaves(value, names, way)
        else:
            yield way, value


def _parse(path: Path, content: bytes) -> Settings:
    import yaml
    from jsonargparse import get_loader

    try:
        text = content.decode()
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        settings = get_loader("yaml")(text)  # as the parser reads options: 1e-3 is a number
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or one_line(error)
        raise UserError(f"{path}{f':{mark.line + 1}' if mark else ''}: not YAML: {problem}") from error
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise UserError(f"{path}: not YAML: {one_line(error)[:200]}") from error
    if not isinstance(settings, dict):
        raise UserError(f"{path}: a configuration is a mapping of keys to values")
    _check_keys_once(path, node, set())
    return settings


def _check_keys_once(path: Path, node: Any, done: set[int]) -> None:
    """Raise an error for a repeated key, of which YAML would silently take the last."""
    if not isinstance(node.value, list) or id(node) in done:  # aliases lead to the same node
        return
    done.add(id(node))
    keys = set[str]()
    for item in node.value:
        if isinstance(item, tuple):
            key, item = item
            if isinstance(key.value, str) and key.value in keys and key.value != "<<":
                raise UserError(f"{path}:{key.start_mark.line + 1}: {key.value} is there twice; keep one")
            if isinstance(key.value, str):
                keys.add(key.value)
        _check_keys_once(path, item, done)
