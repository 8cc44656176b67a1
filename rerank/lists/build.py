"""From a collection and a run to a lists folder, streaming: memory grows with the lists' ids, not with the texts."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
from tqdm import tqdm

from rerank import __version__
from rerank.collections import Collection, Document, Qrels, Query
from rerank.errors import UserError, nearest
from rerank.files import atomic_folder, digest
from rerank.lists.ragged import read_arrow, write_arrow
from rerank.lists.store import VERSION, Lists, texts_digest
from rerank.retrieval.runs import Run, write_run

log = logging.getLogger("rerank")

BATCH = 4096
DOCUMENTS = pa.schema([("doc_id", pa.string()), ("text", pa.string())])
QUERIES = pa.schema(
    [
        ("query_id", pa.string()),
        ("text", pa.string()),
        ("documents", pa.list_(pa.int32())),
        ("labels", pa.list_(pa.int16())),
        ("scores", pa.list_(pa.float32())),
        ("added", pa.int32()),
    ]
)


def build_lists(
    collection: Collection,
    run: Run,
    folder: str | Path,
    *,
    queries: list[Query] | None = None,
    depth: int = 150,
    qrels: Qrels | None = None,
    retriever: Mapping[str, Any] | None = None,
    add_relevant: bool = False,
    replace: bool = False,
) -> Lists:
    """Store the best candidates of every query of a collection, with texts and labels.

    Args:
        collection: where queries and documents come from.
        run: the first stage: query id -> candidates, best first.
        folder: the folder to make; it appears whole or not at all.
        queries: the queries; None takes the collection's own.
        depth: candidates kept per query.
        qrels: judgments; None takes the collection's own.
        retriever: what made the run and its parameters, for the manifest.
        add_relevant: whether relevant documents that the first stage missed join the lists (for training only).
        replace: whether an existing folder gives way.

    Raises:
        UserError: the run names queries or documents that the collection does not have.
    """
    queries = list(collection.queries()) if queries is None else queries
    known = {query.id for query in queries}
    for query_id in run:
        if query_id not in known:
            raise UserError(
                f"the run has query {query_id!r}, which {collection.name} does not have{nearest(query_id, known)}"
            )
    qrels = collection.qrels() if qrels is None else qrels
    if qrels is not None and not known & qrels.keys():
        raise UserError(f"no query of {collection.name} is judged in the qrels; are they of another collection?")
    counts: dict[str, int] = {"queries": len(queries)}
    candidates, added = _candidates(queries, run, depth, qrels if add_relevant else None)

    with atomic_folder(folder, replace=replace) as temporary:
        rows: dict[str, int] = dict.fromkeys((doc for docs, _ in candidates.values() for doc in docs), -1)
        found = _Documents(rows)
        total = collection.document_count()
        stream = tqdm(collection.documents(), desc="documents", total=total, unit=" documents", disable=None)
        counts["documents"] = write_arrow(temporary / "documents.arrow", DOCUMENTS, found.batches(stream))
        if lost := {doc for doc, row in rows.items() if row < 0}:
            _forget_unknown(candidates, added, lost, collection.name)
        counts["added_relevant"] = sum(added.values())
        counts["empty_documents"] = found.empty
        counts["pairs"] = sum(len(docs) for docs, _ in candidates.values())
        counts["queries_without_candidates"] = sum(not docs for docs, _ in candidates.values())
        write_arrow(
            temporary / "queries.arrow", QUERIES, _query_batches(queries, candidates, added, rows, qrels or {}, counts)
        )
        write_run(temporary / "run.trec", {q: r[:depth] for q, r in run.items()}, tag="first-stage")
        if qrels is not None:
            _write_qrels(temporary / "qrels.trec", {q.id: qrels[q.id] for q in queries if q.id in qrels})
        manifest = {
            "version": VERSION,
            "rerank": __version__,
            "collection": {"name": collection.name, "fingerprint": collection.fingerprint()},
            "retriever": dict(retriever or {}),
            "depth": depth,
            "judged": qrels is not None,
            "counts": counts,
            "hashes": {"texts": texts_digest(temporary), "run": digest(temporary / "run.trec")},
        }
        (temporary / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
        read_arrow(temporary / "queries.arrow")  # what was written can be read before it takes its place
    _warn(collection.name, counts)
    return Lists.open(folder)


def _candidates(
    queries: list[Query], run: Run, depth: int, qrels: Qrels | None
) -> tuple[dict[str, tuple[list[str], list[float]]], dict[str, int]]:
    """Per query its candidates and scores, and how many relevant documents were added behind them."""
    candidates: dict[str, tuple[list[str], list[float]]] = {}
    added: dict[str, int] = {}
    for query in queries:
        best = run.get(query.id, [])[:depth]
        docs, scores = [scored.id for scored in best], [scored.score for scored in best]
        if qrels is not None:
            there = set(docs)
            missed = [doc for doc, grade in qrels.get(query.id, {}).items() if grade > 0 and doc not in there]
            docs += missed
            scores += [min(scores, default=0.0)] * len(missed)
            added[query.id] = len(missed)
        candidates[query.id] = (docs, scores)
    return candidates, added


def _forget_unknown(
    candidates: dict[str, tuple[list[str], list[float]]], added: dict[str, int], lost: set[str], name: str
) -> None:
    """Judged documents that the collection does not have cannot be added; retrieved ones must be there."""
    for query_id, (docs, scores) in candidates.items():
        retrieved = len(docs) - added.get(query_id, 0)
        if unknown := [doc for doc in docs[:retrieved] if doc in lost]:
            raise UserError(f"query {query_id}: the run's document {unknown[0]!r} is not in {name}")
        kept = [doc for doc in docs if doc not in lost]
        candidates[query_id] = (kept, scores[: len(kept)])  # what was added all has one score
        added[query_id] = len(kept) - retrieved


class _Documents:
    """Keeps the documents that the lists need, giving each its row, and counts empty ones."""

    def __init__(self, rows: dict[str, int]) -> None:
        self.rows = rows
        self.empty = 0

    def batches(self, documents: Iterable[Document]) -> Iterator[dict[str, list[str]]]:
        row = 0
        wanted = (document for document in documents if document.id in self.rows)
        while batch := list(islice(wanted, BATCH)):
            for document in batch:
                self.rows[document.id] = row
                row += 1
                self.empty += not document.text.strip()
            yield {"doc_id": [d.id for d in batch], "text": [d.text for d in batch]}


def _query_batches(
    queries: list[Query],
    candidates: dict[str, tuple[list[str], list[float]]],
    added: dict[str, int],
    rows: dict[str, int],
    qrels: Qrels,
    counts: dict[str, int],
) -> Iterator[dict[str, list[Any]]]:
    counts["negative_grades"] = sum(grade < 0 for query in queries for grade in qrels.get(query.id, {}).values())
    for start in range(0, len(queries), BATCH):
        batch = queries[start : start + BATCH]
        lists = [candidates[query.id] for query in batch]
        yield {
            "query_id": [query.id for query in batch],
            "text": [query.text for query in batch],
            "documents": [[rows[doc] for doc in docs] for docs, _ in lists],
            "labels": [
                [max(0, qrels.get(query.id, {}).get(doc, 0)) for doc in docs]
                for query, (docs, _) in zip(batch, lists, strict=True)
            ],
            "scores": [scores for _, scores in lists],
            "added": [added.get(query.id, 0) for query in batch],
        }


def _write_qrels(path: Path, qrels: Qrels) -> None:
    with path.open("w", encoding="utf-8") as file:
        for query, judged in qrels.items():
            file.writelines(f"{query} 0 {doc} {grade}\n" for doc, grade in judged.items())


def _warn(name: str, counts: Mapping[str, int]) -> None:
    for key, what in (
        ("empty_documents", "empty documents among the candidates (kept)"),
        ("queries_without_candidates", "queries without candidates (they score 0)"),
        ("negative_grades", "negative grades (counted as 0)"),
        ("added_relevant", "relevant documents that the first stage missed were added (for training only)"),
    ):
        if counts[key]:
            log.warning("%s: %d %s", name, counts[key], what)
