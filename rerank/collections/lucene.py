"""Lucene indexes that Anserini wrote: prebuilt ones by name, and the text that an index stores as a collection."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

from rerank.collections.base import Document, Qrels, Query
from rerank.collections.jvm import java_class, start_jvm
from rerank.collections.lines import ChosenFields, json_text
from rerank.collections.tagged import tag_names, tagged_text
from rerank.errors import UserError, nearest, one_line
from rerank.storage.arrow import batched
from rerank.storage.files import digest

MANIFEST = "rerank.json"
"""In an index of ours: the collection and the settings that it was built from."""

LOOKUPS = 1000
"""Ids looked up at a time."""


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
        reason = f"({type(error).__name__}: {error})"
        raise UserError(f"prebuilt index {name!r} cannot be downloaded {reason}; check network and disk") from error


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

    def __init__(self, path: str, fields: Sequence[str] | None = None):
        self.name = f"lucene:{path}"
        self.fields = fields
        self.index = find_index(path)

    def documents(self) -> Iterator[Document]:
        with open_index(self.index) as searcher:
            yield from self._numbered(searcher, range(searcher.get_total_num_docs()))

    def cheaper_by_id(self, wanted: int) -> bool:
        """Return True for less than half of the documents: finding one costs as much as reading it."""
        return self.fields is None and 2 * wanted < self.document_count()

    def documents_by_id(self, ids: Set[str]) -> Iterator[Document]:
        with open_index(self.index) as searcher:
            inner = java_class("org.apache.lucene.search.IndexSearcher")(searcher.reader)
            numbers: list[int] = []
            for some in batched(sorted(ids), LOOKUPS):
                query = id_query(some)
                numbers += [hit.doc for hit in inner.search(query, max(1, inner.count(query))).scoreDocs]
            yield from self._numbered(searcher, sorted(numbers))

    def _numbered(self, searcher: Any, numbers: Iterable[int]) -> Iterator[Document]:
        chosen = ChosenFields(self.fields)
        for number in numbers:
            stored = searcher.doc(number)
            id = stored.get("id")
            where = f"{self.index}: document {id!r}"
            yield Document(id, stored_text(stored.get("contents"), stored.get("raw"), chosen, where))
        chosen.check(str(self.index))

    def queries(self) -> Iterator[Query]:
        raise UserError(f"{self.name}: an index has no queries; name a file of them or another collection")

    def qrels(self) -> Qrels | None:
        return None

    def document_count(self) -> int:
        with open_index(self.index) as searcher:
            return searcher.get_total_num_docs()

    def fingerprint(self) -> str:
        """Return a digest of the list of segments, which have ids of their own, and the chosen fields."""
        return digest("lucene", "\0".join(self.fields or ()), *sorted(self.index.glob("segments_*")))


def id_query(ids: Iterable[str]) -> Any:
    """Make a Lucene query for the documents with one of these ids."""
    term, query = (java_class(f"org.apache.lucene.{name}") for name in ("index.Term", "search.TermQuery"))
    either = java_class("org.apache.lucene.search.BooleanClause$Occur")
    chosen = java_class("org.apache.lucene.search.BooleanQuery$Builder")()
    for id in ids:
        chosen.add(query(term("id", id)), either.SHOULD)
    return chosen.build()


def stored_text(contents: str | None, raw: str | None, chosen: ChosenFields, where: str) -> str:
    """Return the text of a stored document."""
    if contents is not None and chosen.fields is None:
        return contents
    if raw is None:
        missing = "text" if chosen.fields is None else "raw text, so that its fields cannot be told apart"
        raise UserError(f"{where}: the index stores no {missing}; take one with stored documents")
    if raw.lstrip().startswith("{"):
        record = json.loads(raw)
        chosen.note(record)
        return json_text(record, chosen.fields, where)
    chosen.note(tag_names(raw))
    return tagged_text(raw, chosen.fields)
