"""BM25 with Lucene and Anserini: build an index once for each collection, and search it."""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import tempfile
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rerank.collections.base import Collection, Query
from rerank.collections.lucene import MANIFEST, LuceneCollection, anserini_jar, java_class, open_index
from rerank.errors import UserError
from rerank.progress import tqdm
from rerank.retrieval.runs import RunTable
from rerank.settings.arguments import NotNegative, Share, check_arguments
from rerank.storage.arrow import batched
from rerank.storage.files import atomic_folder, cache_folder, digest, exclusive_lock, read_json, warn_once, write_json

ENGLISH = "DefaultEnglishAnalyzer(porter)"
"""Anserini's own, which all its published numbers have: Porter stemming, Lucene's stop words."""

PAIRS = 1 << 17
"""Pairs of a query and a document that are held at a time, about 20 MB of memory."""

FOUND = pa.schema([("document", pa.large_string()), ("score", pa.float32())])
BATCH = 1000
# Java's trim() takes these away, and Anserini refuses a document without anything else.
BLANK = "".join(map(chr, range(0x21)))


def analyzer_name(language: str) -> str:
    """Return the name of a language's analyser, which an index stores."""
    if language == "en":
        return ENGLISH
    known = java_class("io.anserini.analysis.AnalyzerMap").analyzerMap
    if (name := known.get(language)) is None:
        there = ", ".join(sorted(["en", *known.keySet().toArray()]))
        raise UserError(f"--language: Anserini has no analyser for {language!r}; use one of {there}")
    return str(name)


def build_index(collection: Collection, threads: int | None = None, language: str = "en") -> Path:
    """Index the documents of a collection for BM25, unless that has been done already.

    Args:
        collection: the documents. A collection that is a Lucene index has its own.
        threads: number of threads; by default one a core.
        language: language of the texts, which chooses the analyser; ``en`` is Anserini's default (Porter stemming, stop
            words).

    Returns:
        The folder of the index in the cache, named by the hash of documents, fields, analysis and Anserini's version.
        It appears when it is complete, not before.

    Raises:
        UserError: the disk is full, or Lucene does not know the language.
    """
    name = analyzer_name(language)
    if isinstance(collection, LuceneCollection):
        return collection.index
    key = digest(collection.fingerprint(), name, anserini_jar().name)
    folder = cache_folder() / "indexes" / key
    if not folder.exists():  # an existing one may be on a disk that cannot be written
        with exclusive_lock(folder, wait=True):
            if not folder.exists():
                with atomic_folder(folder) as temporary:
                    counts = _index(collection, temporary, threads or os.cpu_count() or 1, language)
                    about = {"collection": collection.name, "analyzer": name, "anserini": anserini_jar().name}
                    write_json(temporary / MANIFEST, about | counts)
    return folder


def _index(collection: Collection, folder: Path, threads: int, language: str) -> dict[str, int]:
    arguments = ["-index", str(folder), "-input", "", "-collection", "JsonCollection", "-threads", str(threads)]
    if language != "en":
        arguments += ["-language", language]
    indexer = java_class("io.anserini.index.SimpleIndexer")(arguments)
    count = added = indexed = 0
    with tqdm(collection.documents(), f"indexing {collection.name}", unit=" documents", disable=None) as bar:
        for batch in batched(bar, BATCH):
            count += len(batch)
            lines = [json.dumps({"id": id, "contents": text}) for id, text in batch if text.strip(BLANK)]
            added += len(lines)
            indexed += indexer.addRawDocuments(lines) if lines else 0
            if indexed != added:
                break
    from jnius import JavaException

    try:
        indexer.close()
        with open_index(folder) as searcher:
            indexed = searcher.get_total_num_docs()
    except (JavaException, UserError):
        indexed = -1
    if indexed != added:
        raise UserError(f"{folder.parent}: Lucene cannot write the index of {collection.name}; is the disk full?")
    if count == 0:
        raise UserError(f"{collection.name}: no documents to index")
    if empty := count - added:
        warn_once(f"{collection.name}: {empty} of {count} documents are empty: kept, but BM25 never finds them")
    return {"documents": count, "empty": empty}


@dataclass(frozen=True)
class BM25:
    """BM25 as Lucene computes it.

    Args:
        k1: saturation of the term frequency, 0 or more.
        b: normalisation by document length, 0 to 1.
        language: the language of the index, which chooses the analyser of the queries.
    """

    k1: NotNegative = 0.9
    b: Share = 0.4
    language: str = "en"

    def __post_init__(self) -> None:
        check_arguments(BM25, vars(self))

    def search(
        self,
        index: Path,
        queries: Iterable[Query],
        depth: int = 150,
        threads: int | None = None,
        folder: Path | None = None,
    ) -> RunTable:
        """Search for all queries.

        Args:
            index: folder of a Lucene index, see `build_index` and `rerank.collections.lucene.prebuilt_index`.
            queries: the queries.
            depth: documents per query at most.
            threads: number of threads; by default one a core.
            folder: folder of the nameless file that holds the documents; by default the system's temporary folder.

        Returns:
            The queries in the order given, each with its documents, best first, ties by document id as strings. Scores
            are rounded to four digits, and tied ones lowered by a millionth each, as Anserini does. Queries that match
            nothing have an empty list.
        """
        queries, lengths = list(queries), [0]
        with tempfile.TemporaryFile(dir=folder) as file:
            with (
                pa.ipc.new_stream(file, FOUND) as writer,
                contextlib.closing(self._results(index, queries, depth, threads or os.cpu_count() or 1)) as results,
                tqdm(results, "BM25", len(queries), unit=" queries", disable=None) as ranked,
            ):
                for lists in batched(ranked, max(1, PAIRS // depth)):
                    hits = list(chain.from_iterable(lists))
                    lengths.extend(map(len, lists))
                    columns = [hit.docid for hit in hits], np.array([hit.score for hit in hits], np.float32)
                    writer.write_batch(pa.record_batch(list(map(pa.array, columns, FOUND.types)), schema=FOUND))
            file.flush()
            found = pa.ipc.open_stream(pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))).read_all()
        return RunTable(
            [query.id for query in queries], np.cumsum(lengths), found["document"], found["score"].to_numpy()
        )

    def _results(self, index: Path, queries: Sequence[Query], depth: int, threads: int) -> Generator[list[Any]]:
        """Yield Anserini's hits of one query after the other; memory holds those of 32 queries a thread."""
        java_list = java_class("java.util.ArrayList")
        with open_index(index) as searcher:
            self.configure(searcher, index)
            for batch in batched(queries, 32 * threads):
                texts, ids = java_list(), java_list()
                for query in batch:
                    texts.add(java_text(query))
                    ids.add(query.id)
                found = searcher.batch_search(texts, ids, depth, threads)
                for query in batch:
                    hits = list(found.get(query.id))
                    id, times = Counter(hit.docid for hit in hits).most_common(1)[0] if hits else ("", 0)
                    if times > 1:  # as in some indexes that others made
                        raise UserError(f"{index}: has several documents of the id {id!r}; index it again, each once")
                    yield hits

    def configure(self, searcher: Any, index: Path) -> None:
        """Set the parameters of an open index."""
        searcher.set_bm25(float(self.k1), float(self.b))
        wanted = stored_as = analyzer_name(self.language)
        if (index / MANIFEST).is_file():  # somebody else's index does not say how its texts were analysed
            stored_as = read_json(index / MANIFEST).get("analyzer", wanted)
        if stored_as != wanted:
            raise UserError(f"{index}: was analysed by {stored_as}, not {wanted}; give the --language of the index")
        if wanted != ENGLISH:
            searcher.set_language(self.language)


def java_text(query: Query) -> str:
    """Return a query's text without halves of surrogate pairs, which Java's strings cannot take."""
    return query.text.encode(errors="replace").decode()
