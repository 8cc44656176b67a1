"""Build a lists folder from a collection and runs, streaming: memory holds some lists, and documents' rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import compress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rerank.collections import Collection, Document, Qrels, Query
from rerank.errors import UserError, nearest
from rerank.lists.judged import check_documents, check_queries, judged_documents
from rerank.lists.layout import DOCUMENTS, QUERIES
from rerank.lists.view import Lists
from rerank.lists.writer import StoreWriter, new_lists, write_qrels
from rerank.progress import log, tqdm
from rerank.retrieval.bm25 import PAIRS, ScoreDocuments
from rerank.retrieval.fuse import Pool
from rerank.retrieval.runs import Run, write_run
from rerank.storage.arrow import Array, batched, write_arrow

BATCH = 4096
"""Documents written at a time."""

LACKING = -1
"""The row of a document that the collection has not given."""

ORDER = "bm25"
"""The column that the scores of a single run become, by which lists are ordered."""

COUNTS = (
    *("queries", "documents", "added_relevant", "empty_documents"),
    *("pairs", "queries_without_candidates", "negative_grades"),
)


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
    score_added: ScoreDocuments | None = None,
    keep_self: bool = False,
    replace: bool = False,
) -> Lists:
    """Store the best candidates of every query of a collection, with texts and labels.

    Args:
        collection: where queries and documents come from.
        run: the first stage: query id -> candidates, best first; or several, of which each is cut at ``depth``. It is
            gone through several times. Queries that the collection lacks are counted and left out.
        folder: the folder to make; it appears whole or not at all.
        queries: the queries; None takes the collection's own.
        depth: candidates kept per query.
        qrels: judgments; None takes the collection's own.
        retriever: what made the run and its parameters, for the manifest.
        add_relevant: whether relevant documents that the first stage missed join the lists (for training only).
        score_added: what the first stage says of those; None where it cannot be asked.
        keep_self: whether a document that is the query itself (the same id, and the query's text) stays among its
            candidates. Benchmarks whose queries are documents (ArguAna, Quora) leave it out.
        replace: replace existing lists; anything else in their place is refused.

    Raises:
        UserError: a run names documents that the collection does not have, or hardly any query that it has, or has
            no candidate; judgments are of another collection (see :mod:`rerank.lists.judged`); or the place is taken.
    """
    queries = list(collection.queries()) if queries is None else queries
    known = {query.id for query in queries}
    pool = run if isinstance(run, Pool) else Pool({ORDER: run})
    for name, single in pool.runs.items():
        _check_queries(name, single, known, collection.name)
    qrels = collection.qrels() if qrels is None else qrels
    check_queries(queries, qrels, collection.name)
    judged = judged_documents(qrels, known)
    missing = set(judged)
    relevant = qrels if qrels is not None and add_relevant else {}
    counts = dict.fromkeys(COUNTS, 0) | {"queries": len(queries)}

    def lists(pool: Pool, score: ScoreDocuments | None = None) -> Iterator[_List]:
        for query in queries:
            documents, scores = pool.candidates(query.id, depth)
            there = set(documents)
            missed = [id for id, grade in relevant.get(query.id, {}).items() if grade > 0 and id not in there]
            said = np.full((len(missed), len(pool.columns)), np.nan)  # what the systems would say, they were not asked
            if score is not None and ORDER in pool.columns:
                said[:, pool.columns.index(ORDER)] = score(query, missed)
            yield _List(query, documents + missed, np.concatenate([scores, said]), len(missed))

    with new_lists(folder, replace) as temporary:
        size = max(1, PAIRS // (depth * len(pool.runs)))
        ranked = tqdm(lists(pool), desc="candidates", total=len(queries), unit=" queries", disable=None)
        rows = {id: LACKING for query in ranked for id in query.documents}
        asked = {} if keep_self else {query.id: query.text for query in queries if query.id in rows}
        rows |= {id: LACKING for query in asked for id in pool.candidates(query, depth + 1)[0]}
        log.info("%s: reading all documents, of which %d are candidates", collection.name, len(rows))
        found = tqdm(collection.documents(), "documents", collection.document_count(), unit=" documents", disable=None)
        selves: set[str] = set()
        texts = _documents(_noted(found, asked, selves), rows, counts, missing)
        counts["documents"] = write_arrow(temporary / "documents.arrow", DOCUMENTS, texts)
        check_documents(judged, missing, collection.name)
        if selves:
            pool = dataclasses.replace(pool, selves=frozenset(selves))
            message = "%s: %d queries are documents, which are left out of their lists (keep_self)"
            log.info(message, collection.name, len(selves))
        texts = ({"query_id": [q.id for q in some], "text": [q.text for q in some]} for some in batched(queries, BATCH))
        write_arrow(temporary / "queries.arrow", QUERIES, texts)
        ranked = tqdm(lists(pool, score_added), desc="lists", total=len(queries), unit=" queries", disable=None)
        with StoreWriter(temporary, {name: [name] for name in pool.columns}) as writer:
            for batch in batched((_present(one, rows, collection.name) for one in ranked), size):
                _write(writer, pool.columns, batch, qrels or {}, counts)
            ranking = ((query.id, pool.ranking(query.id, depth)) for query in queries)
            write_run(temporary / "run.trec", ranking, tag=pool.ordered_by)
            known_qrels = {q.id: qrels[q.id] for q in queries if qrels and qrels.get(q.id)}
            if known_qrels:
                write_qrels(temporary / "qrels.trec", known_qrels)
            writer.finish(
                collection={"name": collection.name, "fingerprint": collection.fingerprint()},
                retriever=dict(retriever or {}),
                depth=depth,
                order=pool.ordered_by,
                judgments="qrels.trec" if known_qrels else None,
                counts=counts,
                made={name: retriever or {} for name in pool.columns},
            )
    warn(collection.name, counts)
    return Lists.open(folder)


def _check_queries(run_name: str, run: Run, known: set[str], name: str) -> None:
    """Refuse a run of other queries; leave out a few, as trec_eval does, and say so."""
    unknown = [query for query in run if query not in known]
    if 10 * (len(run) - len(unknown)) < len(run):
        raise UserError(
            f"run {run_name}: {name} lacks {len(unknown)} of its {len(run)} queries, such as {unknown[0]!r}"
            f"{nearest(unknown[0], known)}; is it of another collection?"
        )
    if unknown:
        log.warning("run %s: %s lacks %d of its %d queries: left out", run_name, name, len(unknown), len(run))
    if not any(map(len, run.values())):
        raise UserError(f"run {run_name}: has no candidate for any query of {name}")


class _List(NamedTuple):
    """A query and its candidates, of which the last ``added`` are relevant documents that the first stage missed."""

    query: Query
    documents: list[str]
    scores: Array
    added: int


def _noted(documents: Iterable[Document], queries: Mapping[str, str], selves: set[str]) -> Iterator[Document]:
    """Pass documents on, and collect the queries that are documents: of the same id, and contained in the text."""
    for document in documents:
        if document.id in queries and " ".join(queries[document.id].split()) in " ".join(document.text.split()):
            selves.add(document.id)
        yield document


def _documents(
    documents: Iterable[Document], rows: dict[str, int], counts: dict[str, int], missing: set[str]
) -> Iterator[dict[str, list[str]]]:
    """Yield batches of the documents that the lists need, and note their rows and the empty ones."""

    def wanted() -> Iterator[Document]:
        count = 0
        for document in documents:
            missing.discard(document.id)
            row = rows.get(document.id)
            if row is None:
                continue
            if row != LACKING:
                raise UserError(f"document {document.id!r} comes a second time; ids are unique")
            rows[document.id] = count
            count += 1
            yield document

    for batch in batched(wanted(), BATCH):
        counts["empty_documents"] += sum(not document.text.strip() for document in batch)
        yield {"doc_id": [document.id for document in batch], "text": [document.text for document in batch]}


def _present(ranked: _List, rows: Mapping[str, int], name: str) -> tuple[_List, Array]:
    """Leave out added documents that the collection lacks, and return the rows of the others, too."""
    query, documents, scores, added = ranked
    places = np.array([rows[id] for id in documents], np.int32)
    lost = np.flatnonzero(places == LACKING)
    if not len(lost):
        return ranked, places
    if lost[0] < len(documents) - added:
        raise UserError(f"query {query.id}: the run's document {documents[lost[0]]!r} is not in {name}")
    there = places != LACKING
    return _List(query, list(compress(documents, there)), scores[there], added - len(lost)), places[there]


def _write(
    writer: StoreWriter, columns: Sequence[str], batch: list[tuple[_List, Array]], qrels: Qrels, counts: dict[str, int]
) -> None:
    lists = [ranked for ranked, _ in batch]
    judged = [qrels.get(ranked.query.id, {}) for ranked in lists]
    lengths = np.array([len(ranked.documents) for ranked in lists])
    added = np.array([ranked.added for ranked in lists])
    grades = [max(0, given.get(id, 0)) for ranked, given in zip(lists, judged, strict=True) for id in ranked.documents]
    scores = np.concatenate([np.zeros((0, len(columns))), *(ranked.scores for ranked in lists)])
    rows = np.concatenate([np.zeros(0, np.int32), *(found for _, found in batch)])
    writer.add(lengths, added, rows, np.array(grades, dtype=np.int16), **dict(zip(columns, scores.T, strict=True)))
    counts["added_relevant"] += int(added.sum())
    counts["pairs"] += len(rows)
    counts["queries_without_candidates"] += int((lengths == 0).sum())
    counts["negative_grades"] += sum(grade < 0 for given in judged for grade in given.values())


def warn(name: str, counts: Mapping[str, int]) -> None:
    """Warn about oddities in lists that were built."""
    for key, what in (
        ("empty_documents", "empty documents among the candidates (kept)"),
        ("queries_without_candidates", "queries without candidates (they score 0)"),
        ("negative_grades", "negative grades (counted as 0)"),
        ("added_relevant", "relevant documents that the first stage missed were added (for training only)"),
        ("scattered_queries", "queries are in several places of the file (joined)"),
        ("repeated_documents", "document ids come again in the same query (told apart by '#' and their row)"),
        ("too_large_values", "values are beyond float32 (taken for missing, so 0)"),
    ):
        if counts.get(key):
            log.warning("%s: %d %s", name, counts[key], what)
