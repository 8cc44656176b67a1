"""The built-in demo collection: find the function that a sentence documents. See the README beside this file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rerank.collections.files import FilesFolder
from rerank.storage.files import digest


class DemoCollection(FilesFolder):
    """Find the function that a sentence documents, in the standard library of Python 3.11.

    Documents are names with signatures, queries the first sentences of docstrings after the name of the module or
    class. A document is relevant if the sentence is its own. Queries are in an order that does not depend on names.

    Args:
        fields: the fields that make a document's text: ``text`` (the name as words, and the signature) by default,
            ``call`` (the name with the signature) and ``sentence``.
    """

    def __init__(self, fields: Sequence[str] | None = None) -> None:
        super().__init__(str(Path(__file__).parent), fields)
        self.name = "demo"

    def fingerprint(self) -> str:
        return digest("demo", "\0".join(self.fields or ()), self.path)  # dates of files tell when it was installed
