"""The built-in demo collection: search the Python standard library. See the README beside this file.

Docstrings of the running Python, questions and judgments from this folder.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from rerank.collections.base import Document, Qrels, Query
from rerank.collections.queries import read_qrels_file, read_queries_file
from rerank.storage.files import digest

FOLDER = Path(__file__).parent
SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s+[^\sa-z]|\s*$)|\n\s*\n")


class DemoCollection:
    """Search the Python standard library.

    Documents are the docstrings of its public classes, functions, methods and properties, some five thousand, collected
    from the running interpreter: they differ a little between Python's versions, and so does the fingerprint. Queries
    are questions as a programmer would ask them, judged 2 (answers it) or 1 (helps).
    """

    name = "demo"

    def documents(self) -> Iterator[Document]:
        """The documents, sorted by id; collected once a process, in an interpreter of its own, in about a second."""
        return iter(_collected())

    def queries(self) -> Iterator[Query]:
        return read_queries_file(FOLDER / "queries.tsv")

    def qrels(self) -> Qrels:
        """The judgments; every judged document exists on every supported Python."""
        return read_qrels_file(FOLDER / "qrels.tsv")

    def document_count(self) -> int:
        return len(_collected())

    def fingerprint(self) -> str:
        return digest(*(part for document in _collected() for part in document))


@functools.cache
def _collected() -> tuple[Document, ...]:
    # -I and -S keep the user's environment and other packages out, -B leaves the library's folders as they are.
    command = [sys.executable, "-I", "-S", "-B", str(FOLDER / "documents.py")]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise RuntimeError(f"the standard library's docstrings could not be collected:\n{reason}")
    return tuple(Document(*record) for record in json.loads(done.stdout))


def summary(document: Document) -> str:
    """The first sentence of a docstring, on one line; a signature (``S.find(sub) -> int``) is none."""
    docstring = document.text.partition("\n\n")[2]
    name = re.escape(document.id.rpartition(".")[2])
    sentences = re.sub(rf"\A(\S*\b{name} ?\([^\n]*\n\s*)*", "", docstring)
    end = SENTENCE_END.search(sentences)
    return " ".join(sentences[: end.end() if end else None].split())
