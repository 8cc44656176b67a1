"""Configurations as nested mappings: files that extend others, dotted keys, merging."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.errors import NotFoundError, UserError, one_line

if TYPE_CHECKING:
    import yaml
    from jsonargparse import ArgumentParser

Settings = dict[str, Any]

DEEPEST = 64
"""Levels of nesting that a configuration may have; reading more takes PyYAML time quadratic in their number."""

NAMES = ("methods", "ensembles", "figures", "published", "refit")
"""Keys of an experiment below which keys stay as written: they are names (``R4.L``), or go into cells later."""


def add_config(parser: ArgumentParser) -> None:
    """Let a parser read ``--config FILE``: files may extend others, later files override earlier ones."""
    from jsonargparse import ActionConfigFile

    class ConfigFiles(ActionConfigFile):
        told: Settings | None = None
        before: Any = None

        def __call__(self, parser: Any, cfg: Any, values: Any, option_string: str | None = None) -> None:
            import yaml

            # The parser's own merging would keep arguments of a class that a later file replaces.
            self.before = self.before or cfg.clone()
            cfg.__dict__.update(self.before.clone().__dict__)
            self.told = _over(self.told or {}, read_config(values), values)
            _check_kind(values, self.told, {action.dest for action in parser._actions})
            # Quoted, because the parser reads a bare 1e-3 as a number.
            quoted = yaml.safe_dump(self.told, sort_keys=False, default_style='"')
            self.apply_config(parser, cfg, self.dest, quoted)

    about = "YAML file, which may extend another (extends: FILE); later files override its keys, options all files"
    parser.add_argument("--config", action=ConfigFiles, help=about)


def read_config(path: str | Path, extending: Sequence[Path] = ()) -> Settings:
    """A YAML file merged over the one that its key ``extends`` names, and so on; dotted keys become nested.

    It may also be YAML of several lines itself (``Training.config``). ``extends`` starts at the folder of its file. The
    key ``base`` of an experiment may extend a training file in the same way.
    """
    text = path if isinstance(path, str) and "\n" in path else None
    path = Path("YAML" if text else path)
    node, content = _parse(path, text)
    shared = content.get("base")
    if isinstance(shared, dict) and "extends" in shared and not text:  # an experiment's cells extend a training file
        name = path.parent / str(shared.pop("extends"))
        content["base"] = _over(read_config(name, [*extending, path.resolve()]), shared, path)
    if "extends" not in content or text:
        return _over({}, content, path)
    lines = (key.start_mark.line for key, _ in node.value if key.value == "extends")
    where = f"{path}:{next(lines, node.start_mark.line) + 1}: extends"  # it may come by a merge key
    other, chain = content.pop("extends"), [*extending, path.resolve()]
    if not isinstance(other, str) or not other:
        raise UserError(f"{where}: takes the path of one file, not {other!r}")
    base = path.parent / other
    if not os.path.exists(base):  # unlike Path.exists, it takes any name
        raise UserError(f"{where}: there is no {base}; paths start at the folder of the file that has them")
    if base.resolve() in chain:
        raise UserError(f"{where}: {base} extends this file in turn; one of them must not")
    return _over(read_config(base, chain), content, path)


def _check_kind(path: Any, told: Settings, known: Collection[str]) -> None:
    """Raise an error that names the right command for a file of the other kind."""
    if "methods" in told and "methods" not in known:
        raise UserError(f"{path}: is an experiment; run it with rerank experiment --config {path}")
    if "methods" in known and "methods" not in told and "model" in told:
        raise UserError(f"{path}: is a training run; run it with rerank train --config {path}")


def assign(settings: Settings, key: str, value: Any) -> None:
    """Set a dotted key in place: ``loss.relaxation.alpha``.

    ``init_args`` may be left out below a class; a class given by its name alone becomes a mapping. What is missing on
    the way is made.
    """
    _put(settings, key.split("."), value)


def merged(base: Settings, over: Mapping[str, Any], names: Sequence[str] = ()) -> Settings:
    """A copy of ``base`` with other values: mappings key by key, but one with ``class_path`` as a whole."""
    result: Settings = _copy(base)
    leaves = [*_leaves(over, names)]
    # Twice: keys stay in their order, and a class does not undo its arguments above it.
    for way, value in [*leaves, *sorted(leaves, key=lambda leaf: len(leaf[0]))]:
        _put(result, way, value)
    return result


def _over(base: Settings, content: Settings, path: str | Path) -> Settings:
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
    """Where a key belongs: in ``init_args`` of a class."""
    if "class_path" in node and part not in ("class_path", "init_args"):
        if not isinstance(node.get("init_args"), dict):
            node["init_args"] = {}
        return node["init_args"]
    return node


def _copy(value: Any) -> Any:
    """A deep copy without shared branches, so that what aliases of YAML brought to two places can differ afterwards."""
    if isinstance(value, Mapping):
        return {key: _copy(_short(item) if key == "class_path" else item) for key, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _short(path: Any) -> Any:
    """Our classes by their short names, so that they may move; a user's by the import path."""
    return path.rpartition(".")[2] if isinstance(path, str) and path.startswith("rerank.") else path


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


def _check_keys_once(path: Path, root: yaml.Node | None) -> None:
    """Refuse a mapping with a key twice, of which YAML takes the last without a word."""
    waiting, done = [root] if root is not None else [], set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in done or not isinstance(node.value, list):
            continue
        done.add(id(node))  # aliases make one node of several places
        seen = set[str]()
        for one in node.value:
            waiting += one if isinstance(one, tuple) else [one]
            if isinstance(one, tuple) and isinstance(key := one[0].value, str) and key != "<<":
                if key in seen:
                    raise UserError(f"{path}:{one[0].start_mark.line + 1}: {key} is there twice; keep one")
                seen.add(key)


def _check_depth(path: Path, events: Iterator[yaml.Event]) -> None:
    """Refuse a file that is nested too deeply, whatever the interpreter's recursion limit is."""
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise UserError(f"{path}: nested more than {DEEPEST} levels deep; flatten it")


def _parse(path: Path, given: str | None = None) -> tuple[yaml.Node, Settings]:
    """The YAML of a file, or what is given in its place, as a tree with line numbers, and what it means."""
    import yaml
    from jsonargparse import get_loader

    try:
        text = path.read_text(encoding="utf-8") if given is None else given
        _check_depth(path, yaml.parse(text, Loader=yaml.SafeLoader))
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = get_loader("yaml")(text)  # as the parser reads options: 1e-3 is a number
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: {error.strerror}") from error
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 text") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None) or str(error).split("\n")[0]
        raise UserError(f"{path}{f':{mark.line + 1}' if mark else ''}: not YAML: {problem}") from error
    except (AttributeError, LookupError, TypeError, ValueError) as error:  # of a value that is none of its tag
        raise UserError(f"{path}: not YAML: {type(error).__name__}: {one_line(error)[:200]}") from error
    _check_keys_once(path, node)
    if node is None or not isinstance(content, dict):
        line = f":{node.start_mark.line + 1}" if node is not None else ""
        raise UserError(f"{path}{line}: a configuration is a mapping of keys to values")
    return node, content
