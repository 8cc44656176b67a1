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
from rerank.collections.jvm import anserini_jar, java_class
from rerank.collections.lucene import MANIFEST, LuceneCollection, open_index
from rerank.errors import UserError, nearest
from rerank.progress import tqdm
from rerank.retrieval.runs import Run, RunTable, Scored
from rerank.settings.ranges import NotNegative, Share, check_arguments
from rerank.storage.arrow import FlatFile, batched
from rerank.storage.files import atomic_folder, cache_folder, digest, read_json, warn_once, write_json
from rerank.storage.locks import exclusive_lock

ENGLISH = "DefaultEnglishAnalyzer(porter)"
"""Anserini's own, which all its published numbers have: Porter stemming, Lucene's stop words."""

_LANGUAGES = Path(__file__).with_name("languages.tsv").read_text(encoding="utf-8")
ANALYZERS = dict(line.split() for line in _LANGUAGES.splitlines())
"""Analysers by the code of their language (ISO 639). Chinese and Korean are cut into pairs of characters."""

PAIRS = 1 << 17
"""Pairs of a query and a document that are held at a time, about 20 MB of memory."""

DOCUMENTS = pa.schema([("document", pa.large_string())])
SCORES = pa.schema([("score", pa.float32())])
BATCH = 1000
# Java's trim() takes these away, and Anserini refuses a document without anything else.
BLANK = "".join(map(chr, range(0x21)))


def analyzer_name(language: str) -> str:
    """Return the name of a language's analyser, which an index stores.

    >>> analyzer_name("de")
    'org.apache.lucene.analysis.de.GermanAnalyzer'
    """
    if language not in ANALYZERS:
        raise UserError(
            f"language: Lucene has no analyser for {language!r}{nearest(language, ANALYZERS)}; "
            f"there are {', '.join(sorted(ANALYZERS))}"
        )
    return ANALYZERS[language]


def analyzer(language: str) -> Any:
    """Return the analyser of a language other than English, and register it with Anserini's indexer."""
    known = java_class("io.anserini.analysis.AnalyzerMap")
    known.analyzerMap.put(language, analyzer_name(language))  # Anserini's own table lacks Greek, Romanian and others
    return known.getLanguageSpecificAnalyzer(language)


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
    if analyzer_name(language) != ENGLISH:
        analyzer(language)
        arguments += ["-language", language]
    indexer = java_class("io.anserini.index.SimpleIndexer")(arguments)
    count = added = indexed = 0
    documents, total = collection.documents(), collection.document_count()
    with tqdm(documents, f"indexing {collection.name}", total, unit=" documents", disable=None) as bar:
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
        language: whose analyser takes the queries apart: the index's own.
    """

    k1: NotNegative = 0.9
    b: Share = 0.4
    language: str = "en"

    def __post_init__(self) -> None:
        check_arguments(BM25, vars(self))
        analyzer_name(self.language)

    def search(
        self, index: Path, queries: Iterable[Query], depth: int = 150, threads: int | None = None, progress: bool = True
    ) -> Run:
        """Search for all queries.

        Args:
            index: folder of a Lucene index, see `build_index` and `rerank.collections.lucene.prebuilt_index`.
            queries: what to search for.
            depth: how many documents a query gets at the most.
            threads: how many threads search; by default one a core.
            progress: whether to show a progress bar.

        Returns:
            The queries in the order given, each with its documents, best first, ties by document id as strings. Scores
            are rounded to four digits, and tied ones lowered by a millionth each, as Anserini does. Queries that match
            nothing have an empty list.
        """
        queries = list(queries)
        results = self.results(index, queries, depth, threads)
        with tqdm(results, "BM25", len(queries), unit=" queries", disable=None if progress else True) as bar:
            return {query.id: found for query, found in zip(queries, bar, strict=True)}

    def results(
        self, index: Path, queries: Iterable[Query], depth: int = 150, threads: int | None = None
    ) -> Generator[list[Scored]]:
        """Search for one query after the other, as `search` does; memory holds the lists of 32 queries a thread."""
        threads = threads or os.cpu_count() or 1
        java_list = java_class("java.util.ArrayList")
        with open_index(index) as searcher:
            self.configure(searcher, index)
            for batch in batched(queries, 32 * threads):
                texts, ids = java_list(), java_list()
                for query in batch:
                    texts.add(query.text.encode(errors="replace").decode())
                    ids.add(query.id)
                found = searcher.batch_search(texts, ids, depth, threads)
                for query in batch:
                    ranked = [Scored(hit.docid, hit.score) for hit in found.get(query.id)]
                    id, times = Counter(document.id for document in ranked).most_common(1)[0] if ranked else ("", 0)
                    if times > 1:  # as in some indexes that others made
                        raise UserError(f"{index}: has several documents of the id {id!r}; index it again, each once")
                    yield ranked

    def configure(self, searcher: Any, index: Path) -> None:
        """Set the parameters of an open index."""
        searcher.set_bm25(float(self.k1), float(self.b))
        wanted = stored_as = analyzer_name(self.language)
        if (index / MANIFEST).is_file():  # somebody else's index does not say how its texts were analysed
            stored_as = read_json(index / MANIFEST).get("analyzer", wanted)
        if stored_as != wanted:
            raise UserError(f"{index}: was analysed by {stored_as}, not {wanted}; give the --language of the index")
        if wanted != ENGLISH:
            searcher.set_analyzer(analyzer(self.language))


def search_stored(
    model: BM25, index: Path, queries: Sequence[Query], folder: Path, depth: int, threads: int | None = None
) -> RunTable:
    """Search like ``BM25.search``, with results mapped from nameless files: memory holds some queries' lists."""
    lengths = [0]
    with FlatFile(folder, SCORES) as scores, tempfile.TemporaryFile(dir=folder) as file:
        with (
            pa.ipc.new_stream(file, DOCUMENTS) as writer,
            contextlib.closing(model.results(index, queries, depth, threads)) as results,
            tqdm(results, "BM25", len(queries), unit=" queries", disable=None) as ranked,
        ):
            for lists in batched(ranked, max(1, PAIRS // depth)):
                pairs = list(chain.from_iterable(lists))
                lengths.extend(map(len, lists))
                ids = pa.array([document.id for document in pairs], pa.large_string())
                writer.write_batch(pa.record_batch([ids], schema=DOCUMENTS))
                scores.add(score=np.array([document.score for document in pairs], np.float32))
        file.flush()
        mapped = pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        documents = pa.ipc.open_stream(mapped).read_all().column("document")
        return RunTable([query.id for query in queries], np.cumsum(lengths), documents, scores.mapped("score"))
