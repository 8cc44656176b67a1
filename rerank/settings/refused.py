"""What the parser of options refuses, said in one line: the key, what is wrong, what would be right."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from importlib import import_module

from rerank.errors import nearest
from rerank.settings.help import option

WORDS = {"int": "a whole number", "float": "a number", "str": "text", "bool": "true or false", "list": "a list"}
WORDS |= {"dict": "keys and their values"}
"""Types as people call them; ``[a, b]`` is a list."""


def refused(message: str, options: Sequence[str], classes: Sequence[str]) -> str:
    """A parser's message in one line.

    jsonargparse nests messages, one per class and one per alternative of a type; what counts is the innermost one, and
    the keys on the way to it.
    """
    text = " ".join(line.strip() for line in message.splitlines() if line.strip())
    key = ".".join(re.findall(r'Parser key "([\w.]+)"', text))
    kind = (re.findall(r"given class_path '([\w.]+)'", text) or [""])[-1]
    if found := re.search(r"import path string: (\S+)", text):
        return f"{key}: there is no {found[1]}{nearest(found[1], classes)}"
    if found := re.search(r"Option '([\w.]+)' is not accepted", text):
        if not kind:
            return f"{key and key + '.'}{found[1]}: there is no such key{nearest('--' + found[1], options)}"
        return f"{key}.{found[1]}: {_short(kind)} has no {found[1]}{nearest(found[1], _parameters(kind))}"
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
            text += nearest("--" + found[1].split("=")[0].lstrip("-"), options)
    return text


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


def _parameters(kind: str) -> list[str]:
    """What a class takes, by its import path."""
    module, _, name = kind.rpartition(".")
    return list(inspect.signature(getattr(import_module(module), name)).parameters)
