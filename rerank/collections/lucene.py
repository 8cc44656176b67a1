"""Lucene indexes that Anserini wrote: prebuilt ones by name, and the text that an index stores as a collection."""

from __future__ import annotations

import contextlib
import html
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rerank.collections.base import Document, Qrels, Query
from rerank.collections.files import document_text
from rerank.collections.jvm import java_class, start_jvm
from rerank.errors import UserError, nearest, one_line
from rerank.storage.files import digest

MANIFEST = "rerank.json"
"""In an index of ours: the collection and the settings that it was built from."""

TAG = re.compile(r"<!--.*?-->|</?[a-zA-Z][^<>]*>", re.DOTALL)
# Ids, the header lines that a web crawl put before the page, programs and styles are not text; CDATA is.
NOT_TEXT = re.compile(r"<(DOCNO|DOCID|DOCHDR)>.*?</\1>|<(script|style)\b[^<>]*>.*?</\2\s*>", re.DOTALL | re.IGNORECASE)
CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)


def prebuilt_index(name: str) -> Path:
    """Return the folder of a prebuilt index of Pyserini's, such as ``robust04`` or ``msmarco-v1-passage``.

    It is downloaded once, into Pyserini's cache (``$PYSERINI_CACHE`` or ``~/.cache/pyserini``).

    Raises:
        UserError: no such index (with the nearest name), or it cannot be downloaded.
    """
    start_jvm()  # before pyserini starts it in its own way
    from pyserini.prebuilt_index_info import TF_INDEX_INFO
    from pyserini.util import download_prebuilt_index

    if name not in TF_INDEX_INFO:
        hint = f"{nearest(name, TF_INDEX_INFO)}; expected a folder or a name of Pyserini's"
        raise UserError(f"unknown Lucene index {name!r}{hint}")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return Path(download_prebuilt_index(name, verbose=False))
    except (OSError, ValueError, AssertionError) as error:
        raise UserError(
            f"prebuilt index {name!r}: cannot be downloaded ({one_line(error):.100}); see where it goes with "
            "rerank retrieve --check"
        ) from error


def find_index(name: str) -> Path:
    """Find a Lucene index by its folder or by Pyserini's name."""
    folder = Path(name).expanduser()
    return folder if folder.is_dir() else prebuilt_index(name)


@contextlib.contextmanager
def open_index(folder: Path) -> Iterator[Any]:
    """Open an index with Anserini's ``SimpleSearcher``."""
    searcher_class = java_class("io.anserini.search.SimpleSearcher")
    # A query of more than 1024 distinct terms is a long one, not a mistake.
    java_class("org.apache.lucene.search.IndexSearcher").setMaxClauseCount(1 << 20)
    from jnius import JavaException

    try:
        searcher = searcher_class(str(folder))
    except JavaException as error:
        raise UserError(f"{folder}: not a Lucene index that can be read ({error.innermessage})") from error
    try:
        yield searcher
    except JavaException as error:
        raise UserError(f"{folder}: Lucene cannot read the index ({one_line(error)}); is it damaged?") from error
    finally:
        searcher.close()


class LuceneCollection:
    """``lucene:NAME`` or ``lucene:DIR``: the documents whose text a Lucene index stores, without markup.

    An index has no queries and judgments of its own: name a file of them, or another collection.
    """

    def __init__(self, name: str) -> None:
        self.name, self.index = name, find_index(name.partition(":")[2])

    def documents(self) -> Iterator[Document]:
        with open_index(self.index) as searcher:
            for number in range(searcher.get_total_num_docs()):
                stored = searcher.doc(number)
                id = stored.get("id")
                where = f"{self.index}: document {id!r}"
                yield Document(id, stored_text(stored.get("contents"), stored.get("raw"), where))

    def queries(self) -> Iterator[Query]:
        raise UserError(f"{self.name}: an index has no queries; name a file of them or another collection")

    def qrels(self) -> Qrels | None:
        return None

    def fingerprint(self) -> str:
        """Return a digest of the list of segments, which have ids of their own."""
        return digest("lucene", *sorted(self.index.glob("segments_*")))


def stored_text(contents: str | None, raw: str | None, where: str) -> str:
    """Return the text of a stored document without markup."""
    if contents is not None:
        return contents
    if raw is None:
        raise UserError(f"{where}: the index stores no text; take one with stored documents")
    return document_text(json.loads(raw), where) if raw.lstrip().startswith("{") else tagged_text(raw)


def tagged_text(markup: str) -> str:
    """Return the text of a document of TREC's without tags and blank lines, entities resolved."""
    text = CDATA.sub(lambda found: html.escape(found[1]), NOT_TEXT.sub(" ", markup))
    return "\n".join(line for line in map(str.strip, html.unescape(TAG.sub(" ", text)).splitlines()) if line)
