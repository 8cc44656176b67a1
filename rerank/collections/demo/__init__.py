"""The built-in demo collection: find the function that a sentence documents. See the README beside this file."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from rerank.collections.files import FilesFolder
from rerank.storage.files import digest, read_lines


class DemoCollection(FilesFolder):
    """Find the function that a sentence documents, in the standard library of Python 3.11.

    Documents are names with signatures, queries the first sentences of docstrings after the name of the module or
    class. A document is relevant if the sentence is its own. Queries are in an order that does not depend on names.
    """

    def __init__(self, name: str = "demo") -> None:
        super().__init__(f"files:{Path(__file__).parent}")
        self.name = name

    def entries(self) -> Iterator[dict[str, str]]:
        """Yield ``id``, ``text``, ``call`` (the name with the signature) and ``sentence`` of each function."""
        return (json.loads(line) for _, line in read_lines(self.path))

    def fingerprint(self) -> str:
        return digest("demo", self.path)  # dates of files tell when it was installed
