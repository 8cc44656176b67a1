"""From lists of hits to a lists folder, in one pass over them: memory holds some lists, and 200 bytes a document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from rerank.collections import Qrels
from rerank.collections.base import Query
from rerank.collections.hits import Distinct, Hit, HitList, HitsCollection
from rerank.errors import UserError, nearest
from rerank.lists.build import COUNTS, warn
from rerank.lists.columns import grouped
from rerank.lists.judged import check_documents, check_queries, judged_documents
from rerank.lists.layout import DOCUMENTS, QUERIES
from rerank.lists.view import Lists
from rerank.lists.writer import StoreWriter, new_lists, write_qrels
from rerank.progress import log
from rerank.retrieval.bm25 import PAIRS
from rerank.retrieval.runs import Scored, write_run
from rerank.storage.arrow import Array, ArrowWriter, FlatFile, blocks, read_arrow

HITS = 4096
"""Hits written at a time; more where a list has more."""

CANDIDATES = pa.schema([("document", pa.int32()), ("grade", pa.int16())])
SCORES = pa.schema([("values", pa.float32())])


def lists_of_hits(
    source: HitsCollection,
    folder: str | Path,
    *,
    depth: int = 150,
    qrels: Qrels | None = None,
    order: str | None = None,
    replace: bool = False,
) -> Lists:
    """Store lists of hits, with their texts, labels, and a column for every number of a hit."""
    with new_lists(folder, replace) as temporary, ExitStack() as opened:
        collected = _Collected(temporary, depth, qrels, order, opened)
        left_out = 0
        batch: list[HitList] = []
        waiting = 0
        for ranked in source.lists():
            if source.asked is not None and ranked.query.id not in source.asked:
                left_out += 1
                continue
            batch.append(ranked)
            waiting += len(ranked.hits)
            if waiting >= HITS:
                collected.add(batch)
                batch, waiting = [], 0
        collected.add(batch)
        if left_out:
            log.warning("%s: %d queries are not among those that were asked for; left out", source.name, left_out)
        if source.asked is not None:
            collected.add([HitList(query, []) for query in source.asked.values() if query.id not in collected.queries])
        collected.store(source)
    warn(source.name, collected.counts)
    if collected.cut:
        log.info("%s: %d hits beyond depth %d are left out (--depth)", source.name, collected.cut, depth)
    return Lists.open(folder)


class _Collected:
    """What was read so far: texts and numbers in files, ids of queries and documents in memory."""

    def __init__(self, folder: Path, depth: int, qrels: Qrels | None, order: str | None, opened: ExitStack) -> None:
        self.folder, self.depth, self.qrels, self.order = folder, depth, qrels, order
        self.counts = dict.fromkeys(COUNTS, 0)
        self.queries: dict[str, None] = {}  # in their order
        self.cut = 0
        self._lengths: list[int] = []
        self._distinct = Distinct()
        self._columns: dict[str, FlatFile] = {}
        self._open, self._writing = opened, opened.enter_context(ExitStack())
        self._texts = self._writing.enter_context(ArrowWriter(self.folder / "documents.arrow", DOCUMENTS))
        self._asked = self._writing.enter_context(ArrowWriter(self.folder / "queries.arrow", QUERIES))
        self._rows = self._open.enter_context(FlatFile(self.folder, CANDIDATES))
        self._grades: IO[str] | None = None

    def add(self, batch: Sequence[HitList]) -> None:
        kept = [(query, self._best(hits)) for query, hits in batch]
        self.queries |= dict.fromkeys(query.id for query, _ in kept)
        hits = [hit for _, best in kept for hit in best]
        rows, new = self._distinct.place(hits)
        self.counts["empty_documents"] += sum(not hit.text.strip() for hit in new)
        self._texts.add({"doc_id": [hit.id for hit in new], "text": [hit.text for hit in new]})
        self._asked.add({"query_id": [q.id for q, _ in kept], "text": [q.text for q, _ in kept]})
        self._lengths.extend(len(best) for _, best in kept)
        for name in dict.fromkeys(name for hit in hits for name in hit.scores):
            if name not in self._columns:  # as many unknown ones as there are candidates before the first that has it
                self._columns[name] = self._open.enter_context(FlatFile(self.folder, SCORES))
                for first, last in blocks(np.array([0, *np.cumsum(self._lengths[: -len(kept) or None])]), PAIRS):
                    self._columns[name].add(values=np.full(sum(self._lengths[first:last]), np.nan))
        for name, file in self._columns.items():
            file.add(values=np.array([hit.scores.get(name, np.nan) for hit in hits], np.float32))
        self._rows.add(document=np.array(rows, np.int32), grade=self._labels(batch, kept))

    def _best(self, hits: list[Hit]) -> list[Hit]:
        """The best of a list, in order; ties keep theirs."""
        if hits and self.order is None:
            first = hits[0].scores
            if not first:
                raise UserError(f"{hits[0].where}: no score; expected a number called 'score', or --order NAME")
            self.order = "score" if any("score" in hit.scores for hit in hits) else next(iter(first))
            if len(first) > 1:
                log.info("column %s orders the lists; --order NAME takes another", self.order)
        for hit in hits:
            if self.order not in hit.scores:
                there = f"{nearest(str(self.order), hit.scores)}; numbers: {', '.join(hit.scores) or 'none'}"
                advice = "the column that orders the lists (--order) needs a number for every hit"
                raise UserError(f"{hit.where}: no number {self.order!r}{there}; {advice}")
        scores = np.array([hit.scores[str(self.order)] for hit in hits], np.float32)
        best = np.argsort(-scores, kind="stable")[: self.depth]
        self.cut += len(hits) - len(best)
        return [hits[i] for i in best.tolist()]

    def _labels(self, batch: Sequence[HitList], kept: Sequence[tuple[Query, list[Hit]]]) -> Array:
        if self.qrels is None:
            grades = [hit.grade or 0 for _, best in kept for hit in best]
            for query, hits in batch:
                judged = {hit.id: hit.grade for hit in hits if hit.grade is not None}
                self.counts["negative_grades"] += sum(grade < 0 for grade in judged.values())
                if judged:
                    path = self.folder / "qrels.trec"
                    self._grades = self._grades or self._writing.enter_context(path.open("w", encoding="utf-8"))
                    self._grades.writelines(f"{query.id} 0 {id} {grade}\n" for id, grade in judged.items())
        else:
            grades = [self.qrels.get(query.id, {}).get(hit.id, 0) for query, best in kept for hit in best]
        return np.maximum(np.array(grades, np.int64), 0).astype(np.int16)

    def store(self, source: HitsCollection) -> None:
        """Close the texts, order the numbers into columns, and write what else a lists folder has."""
        self._writing.close()
        if not self._columns or self.order is None:
            raise UserError(f"{source.name}: no hits for any of the queries")
        asked = read_arrow(self.folder / "queries.arrow")
        ids_and_texts = (asked.column(name).to_pylist() for name in QUERIES.names)
        check_queries([Query(*pair) for pair in zip(*ids_and_texts, strict=True)], self.qrels, source.name)
        if self.qrels is not None:
            documents = judged_documents(self.qrels, self.queries)
            check_documents(documents, documents.keys() - self._distinct, source.name, whole=False)
            judged = {query: self.qrels[query] for query in self.queries if query in self.qrels}
            self.counts["negative_grades"] = sum(grade < 0 for given in judged.values() for grade in given.values())
            write_qrels(self.folder / "qrels.trec", judged)
        together = grouped(self._columns, source.name)
        ends = np.concatenate([[0], np.cumsum(self._lengths)]).astype(np.int64)
        rows = {name: self._rows.mapped(name) for name in ("document", "grade")}
        scores = {name: file.mapped("values") for name, file in self._columns.items()}
        names = {column: [key.partition("/")[2] or key for key in keys] for column, keys in together.items()}
        lengths = np.array(self._lengths, np.int64)
        with StoreWriter(self.folder, names) as writer:
            for first, last in blocks(ends, PAIRS):
                here = slice(int(ends[first]), int(ends[last]))
                values: dict[str, Any] = {
                    column: np.stack([scores[key][here] for key in keys], axis=1) for column, keys in together.items()
                }
                none = np.zeros(last - first, np.int32)
                writer.add(lengths[first:last], none, rows["document"][here], rows["grade"][here], **values)
            write_run(self.folder / "run.trec", self._ranked(ends, rows["document"], scores[self.order]), self.order)
            self.counts |= {"queries": len(self.queries), "documents": self._texts.rows, "pairs": self._rows.rows}
            self.counts["queries_without_candidates"] = int((lengths == 0).sum())
            writer.finish(
                collection={"name": source.name, "fingerprint": source.fingerprint()},
                retriever={"run": source.name},
                depth=self.depth,
                order=self.order,
                judgments="qrels.trec" if (self.folder / "qrels.trec").exists() else None,
                counts=self.counts,
                made={column: {"run": source.name} for column in names},
            )

    def _ranked(self, ends: Array, documents: Array, scores: Array) -> Iterator[tuple[str, list[Scored]]]:
        known = read_arrow(self.folder / "documents.arrow").column("doc_id")
        for query, start, end in zip(self.queries, ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            ids = known.take(pa.array(documents[start:end])).to_pylist()
            yield query, list(map(Scored, ids, scores[start:end].tolist()))
