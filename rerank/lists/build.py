"""Build a lists folder from a collection and runs, streaming: memory holds some lists, and documents' rows."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rerank.collections.base import Collection, Qrels, Query
from rerank.collections.judgments import UNSEEN, check_known
from rerank.errors import UserError
from rerank.lists.store import DOCUMENTS, QUERIES, StoreWriter
from rerank.lists.view import Lists
from rerank.progress import log, tqdm
from rerank.retrieval.bm25 import PAIRS
from rerank.retrieval.fuse import Pool
from rerank.retrieval.runs import Run
from rerank.storage.arrow import Array, batched, write_arrow
from rerank.storage.files import atomic_folder

BATCH = 4096
"""Documents written at a time."""

LACKING = -1
"""The row of a document that the collection has not given."""

ORDER = "bm25"
"""The column that the scores of a single run become, by which lists are ordered."""

WARNINGS = {
    "empty_queries": "queries without text",
    "empty_documents": "empty documents among the candidates (kept)",
    "queries_without_candidates": "queries without candidates (they score 0)",
    "negative_grades": "negative grades (counted as 0)",
    "added_relevant": "relevant documents that the first stage missed were added (for training only)",
}
"""Counts that are warned of."""


def build_lists(
    collection: Collection,
    run: Run | Pool,
    folder: str | Path,
    *,
    queries: list[Query] | None = None,
    depth: int = 150,
    qrels: Qrels | None = None,
    retriever: Mapping[str, Any] | None = None,
    add_relevant: bool = False,
) -> Lists:
    """Store the best candidates of every query of a collection, with texts and labels.

    A document that is the query itself (the same id, and the query's text) is not a candidate for it, as in benchmarks
    whose queries are documents (ArguAna, Quora).

    Args:
        collection: where queries and documents come from.
        run: the first stage: query id -> candidates, best first; or several, of which each is cut at ``depth``. It is
            gone through several times. Queries that the collection lacks are counted and left out.
        folder: the folder to make; it appears whole or not at all.
        queries: the queries; None takes the collection's own.
        depth: candidates kept per query.
        qrels: judgments; None takes the collection's own.
        retriever: what made the run and its parameters, for the manifest.
        add_relevant: add relevant documents that the first stage missed to the lists (for training only).

    Raises:
        UserError: a run names documents that the collection does not have, or hardly any query that it has, or has
            no candidate; judgments are of another collection (see :func:`rerank.collections.judgments.check_known`);
            or the place is taken.
    """
    queries = list(collection.queries()) if queries is None else queries
    known = {query.id for query in queries}
    pool = run if isinstance(run, Pool) else Pool({ORDER: run})
    for name, single in pool.runs.items():
        unknown = [query for query in single if query not in known]
        check_known(collection.name, f"queries of run {name}", single, unknown, len(single))
        if not any(map(len, single.values())):
            raise UserError(f"run {name}: has no candidate for any query of {collection.name}")
    qrels = (collection.qrels() if qrels is None else qrels) or {}
    check_known(collection.name, "judged queries", qrels, qrels.keys() - known, min(len(qrels), len(known)))
    judged = {id for query, grades in qrels.items() if query in known for id in grades}
    relevant = qrels if add_relevant else {}
    counts = Counter(queries=len(queries), empty_queries=sum(not query.text.strip() for query in queries))

    with atomic_folder(folder) as temporary:
        progress = tqdm(queries, desc="candidates", unit=" queries", disable=None)
        rows = {id: LACKING for query in progress for id in pool.candidates(query.id, depth)[0]}
        grades = (relevant.get(query.id, {}) for query in queries)
        rows |= {id: LACKING for given in grades for id, grade in given.items() if grade > 0}
        own = {query for query, judged in qrels.items() if judged.get(query, 0) > 0}  # a document that is to be found
        alike = {query.id: words(query.text) for query in queries if query.id in rows and query.id not in own}
        rows |= {id: LACKING for query in alike for id in pool.candidates(query, depth + 1)[0]}
        reader = _Documents(collection, rows, alike, set(judged))
        counts["documents"] = write_arrow(temporary / "documents.arrow", DOCUMENTS, reader.batches(counts))
        check_known(collection.name, "judged documents", judged, reader.missing, len(judged), UNSEEN)
        if reader.selves:
            pool = dataclasses.replace(pool, selves=frozenset(reader.selves))
            message = "%s: %d queries are documents, which are left out of their lists"
            log.info(message, collection.name, len(reader.selves))
        texts = ({"query_id": [q.id for q in some], "text": [q.text for q in some]} for some in batched(queries, BATCH))
        write_arrow(temporary / "queries.arrow", QUERIES, texts)
        with StoreWriter(temporary, {name: [name] for name in pool.columns}) as writer:
            progress = tqdm(queries, desc="lists", unit=" queries", disable=None)
            for some in batched(progress, max(1, PAIRS // (depth * len(pool.runs)))):
                _add_lists(writer, pool, some, depth, qrels, relevant, rows, counts)
            ranking = ((query.id, pool.ranking(query.id, depth)) for query in queries)
            writer.finish(
                collection={"name": collection.name, "fingerprint": collection.fingerprint()},
                retriever={"depth": depth} | dict(retriever or {}),
                counts=counts,
                made={name: retriever or {} for name in pool.columns},
                order=pool.ordered_by,
                run=ranking,
                qrels={query.id: qrels[query.id] for query in queries if qrels.get(query.id)},
            )
    for key, what in WARNINGS.items():
        if counts[key]:
            log.warning("%s: %d %s", collection.name, counts[key], what)
    return Lists.open(folder)


class _Documents:
    """Reads the documents that lists need: numbers them in ``rows``, and finds queries that are documents."""

    def __init__(
        self, collection: Collection, rows: dict[str, int], alike: Mapping[str, str], judged: set[str]
    ) -> None:
        self.collection, self.rows, self.alike = collection, rows, alike
        self.missing = judged
        self.selves: set[str] = set()

    def batches(self, counts: Counter[str]) -> Iterator[dict[str, list[str]]]:
        """Yield batches of the documents in ``rows``."""
        log.info("%s: reading all documents, of which %d are candidates", self.collection.name, len(self.rows))
        count = 0
        documents = tqdm(self.collection.documents(), "documents", unit=" documents", disable=None)
        for batch in batched(
            (document for document in documents if self._is_needed(document.id, document.text)), BATCH
        ):
            for document in batch:
                if self.rows[document.id] != LACKING:
                    raise UserError(f"document {document.id!r} comes a second time; ids are unique")
                self.rows[document.id] = count
                count += 1
            counts["empty_documents"] += sum(not document.text.strip() for document in batch)
            yield {"doc_id": [document.id for document in batch], "text": [document.text for document in batch]}

    def _is_needed(self, id: str, text: str) -> bool:
        self.missing.discard(id)
        if self.alike.get(id, "").strip() and self.alike[id] in words(text):
            self.selves.add(id)
        return id in self.rows


def words(text: str) -> str:
    """Put a space before, between and after the words."""
    return f" {' '.join(text.split())} "


def _add_lists(
    writer: StoreWriter,
    pool: Pool,
    queries: list[Query],
    depth: int,
    qrels: Qrels,
    relevant: Qrels,
    rows: Mapping[str, int],
    counts: Counter[str],
) -> None:
    """Append the lists of some queries: their candidates, then the relevant documents that were missed."""
    lengths, added, documents, grades, scores = [], [], list[int](), list[int](), list[Array]()
    for query in queries:
        ids, values = pool.candidates(query.id, depth)
        if lost := next((id for id in ids if rows[id] == LACKING), None):
            raise UserError(f"query {query.id}: the run's document {lost!r} is not in the collection")
        there, judged = set(ids), qrels.get(query.id, {})
        missed = [id for id, grade in relevant.get(query.id, {}).items() if grade > 0 and id not in there]
        missed = [id for id in missed if rows[id] != LACKING]
        lengths.append(len(ids) + len(missed))
        added.append(len(missed))
        documents += [rows[id] for id in (*ids, *missed)]
        grades += [max(0, judged.get(id, 0)) for id in (*ids, *missed)]
        scores += [values, np.full((len(missed), len(pool.columns)), np.nan)]
        counts["negative_grades"] += sum(grade < 0 for grade in judged.values())
    columns = dict(zip(pool.columns, np.concatenate(scores).T, strict=True))
    writer.add(np.array(lengths), np.array(added), np.array(documents, np.int32), np.array(grades, np.int16), **columns)
    counts["added_relevant"] += sum(added)
    counts["pairs"] += len(documents)
    counts["queries_without_candidates"] += lengths.count(0)
