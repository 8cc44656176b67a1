"""The built-in demo collection: find the function that a sentence documents. See the README beside this file."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rerank.collections.base import Document, Qrels, Query
from rerank.storage.files import digest

WORDS = range(4, 33)
"""Possible numbers of words in a question's sentence."""


class Entry(NamedTuple):
    """A class, function, method or property of the standard library."""

    name: str
    signature: str
    sentence: str

    @property
    def parent(self) -> str:
        """The module or class that has it; empty for built-in functions and types."""
        return self.name.rpartition(".")[0]


class DemoCollection:
    """Find the function that a sentence documents, in the running Python's standard library.

    Documents are names with signatures, queries the first sentences of docstrings after the name of the module or
    class. A document is relevant if the sentence is its own. Queries are in an order that does not depend on names.
    """

    name = "demo"

    def documents(self) -> Iterator[Document]:
        return (Document(entry.name, f"{split_name(entry.name)} {entry.signature}".strip()) for entry in entries())

    def queries(self) -> Iterator[Query]:
        asked = [names[0] for names in _same_sentence().values()]
        sentences = {entry.name: entry.sentence for entry in entries()}
        for name in sorted(asked, key=digest):
            parent = split_name(name.rpartition(".")[0]) or "builtins"
            yield Query(f"{name}?", f"{parent}: {sentences[name]}")

    def qrels(self) -> Qrels:
        return {f"{names[0]}?": dict.fromkeys(names, 1) for names in _same_sentence().values()}

    def document_count(self) -> int:
        return len(entries())

    def fingerprint(self) -> str:
        return digest(*(part for entry in entries() for part in entry))


@functools.cache
def entries() -> tuple[Entry, ...]:
    """Collect the standard library in a separate interpreter, once a process; takes about a second."""
    # -I and -S keep the user's environment and other packages out, -B leaves the library's folders as they are.
    command = [sys.executable, "-I", "-S", "-B", str(Path(__file__).parent / "documents.py")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise RuntimeError(f"the standard library's docstrings could not be collected:\n{reason}")
    return tuple(Entry(*record) for record in json.loads(done.stdout))


def split_name(name: str) -> str:
    """Split a dotted name into words.

    >>> split_name("unittest.TestCase.assertRaises")
    'unittest Test Case assert Raises'
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|[._]+", " ", name).strip()


def _same_sentence() -> dict[tuple[str, str], list[str]]:
    """Group the names in a module or class that have one sentence, where it is neither too short nor too long."""
    groups: dict[tuple[str, str], list[str]] = {}
    for entry in entries():
        if len(entry.sentence.split()) in WORDS:
            groups.setdefault((entry.parent, entry.sentence.lower().rstrip(".")), []).append(entry.name)
    return groups
