"""The first sentence of a docstring: a weak query whose relevant document is known."""

from __future__ import annotations

import re

from rerank.collections.base import Document

SENTENCE_END = re.compile(r"(?<!\be\.g)(?<!\bi\.e)[.!?](?=\s+[^\sa-z]|\s*$)|\n\s*\n")


def summary(document: Document) -> tuple[str, str]:
    """Split a document of the demo collection into the first sentence of its docstring and all the rest.

    What says the signature again at the start of a docstring (``S.find(sub) -> int``) is no sentence and stays with the
    rest, as does the line with name and signature that begins every document.

    Returns:
        The sentence on one line, and the text without it, which holds at least the name.
    """
    heading, _, docstring = document.text.partition("\n\n")
    name = re.escape(document.id.rpartition(".")[2])
    signatures = re.match(rf"(\S*\b{name} ?\([^\n]*\n\s*)*", docstring)
    start = signatures.end() if signatures else 0
    end = SENTENCE_END.search(docstring, start)
    stop = end.end() if end else len(docstring)
    rest = f"{docstring[:start].rstrip()}\n{docstring[stop:].lstrip()}".strip()
    return " ".join(docstring[start:stop].split()), f"{heading}\n\n{rest}".strip()
