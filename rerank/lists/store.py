"""The one data structure: queries with their ranked candidates, ragged, memory-mapped."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rerank.arrow import Array, Ragged, read_arrow
from rerank.collections import Qrels, read_qrels
from rerank.errors import UserError
from rerank.files import digest
from rerank.retrieval.runs import Run, Scored

VERSION = 1
"""Version of the folder's layout; a folder of another version is refused."""


@dataclass(frozen=True)
class Lists:
    """Ranked lists of one folder, or a selection of them.

    List ``i`` has the candidates ``offsets[i]:offsets[i + 1]`` of the flat arrays, best first by first stage.

    Attributes:
        folder: where the lists are stored.
        manifest: where everything came from: collection, retriever, counts, hashes.
        query_ids: ids of the queries, ``[Q]``.
        query_rows: the row of each query in the store, ``[Q]``; token caches are addressed by it.
        offsets: ``[Q + 1]`` int64.
        documents: row of each candidate's document in the store, ``[T]`` int64.
        labels: grade of each candidate, ``[T]`` int16; 0 where unjudged or judged negative.
        first_stage: first-stage score of each candidate, ``[T]`` float32.
        query_table: Arrow table of the store's queries (``query_id``, ``text``, ...).
        document_table: Arrow table of the store's documents (``doc_id``, ``text``), each distinct document once; for
            features (``doc_id``, ``features``), a document per row of the file.
        qrels: all judgments of these queries, also of documents that are no candidates; None where there are none.
    """

    folder: Path
    manifest: dict[str, Any]
    query_ids: list[str]
    query_rows: Array
    offsets: Array
    documents: Array
    labels: Array
    first_stage: Array
    query_table: pa.Table
    document_table: pa.Table
    qrels: Qrels | None

    @classmethod
    def open(cls, folder: str | Path, with_added: bool = False) -> Lists:
        """Open a lists folder that :func:`build_lists` made.

        Args:
            folder: the folder.
            with_added: whether to see relevant documents that the first stage missed and ``add_relevant`` put in;
                for training only, since no measure may profit from them.

        Raises:
            UserError: no such folder, one of another version, or one that is not whole.
        """
        folder = Path(folder)
        manifest = read_manifest(folder)
        queries = read_arrow(folder / "queries.arrow")
        documents = read_arrow(folder / "documents.arrow")
        if (queries.num_rows, documents.num_rows) != (manifest["counts"]["queries"], manifest["counts"]["documents"]):
            raise UserError(f"{folder}: fewer rows than manifest.json says; build the lists again")
        candidates = Ragged(queries.column("documents"))
        lengths = candidates.lengths()
        types = (("documents", np.int64), ("labels", np.int16), ("scores", np.float32))
        flat: dict[str, Array] = {name: Ragged(queries.column(name)).flat(dtype) for name, dtype in types}
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        if not with_added and manifest["counts"]["added_relevant"]:
            keep_lengths = lengths - queries.column("added").to_numpy()
            keep = np.arange(offsets[-1]) - np.repeat(offsets[:-1], lengths) < np.repeat(keep_lengths, lengths)
            flat = {name: values[keep] for name, values in flat.items()}
            offsets = np.concatenate([[0], np.cumsum(keep_lengths)]).astype(np.int64)
        judged = folder / "qrels.trec"
        return cls(
            folder=folder,
            manifest=manifest,
            query_ids=queries.column("query_id").to_pylist(),
            query_rows=np.arange(queries.num_rows),
            offsets=offsets,
            documents=flat["documents"],
            labels=flat["labels"],
            first_stage=flat["scores"],
            query_table=queries,
            document_table=documents,
            qrels=read_qrels(judged) if judged.exists() else None,
        )

    def __len__(self) -> int:
        return len(self.query_ids)

    @property
    def features(self) -> Array | None:
        """Features of the store's documents, ``[D, F]`` float32, a read-only view of the mapped file; None for text."""
        if "features" not in self.document_table.column_names:
            return None
        column = self.document_table.column("features")
        parts = [chunk.flatten().to_numpy(zero_copy_only=True) for chunk in column.chunks]
        flat = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return flat.reshape(-1, column.type.list_size)

    @property
    def lengths(self) -> Array:
        """Number of candidates of every list, ``[Q]``."""
        return np.diff(self.offsets)

    def select(self, indices: Array | list[int]) -> Lists:
        """The lists at these positions, in this order; qrels are filtered to their queries."""
        indices = np.asarray(indices, dtype=np.int64)
        starts, lengths = self.offsets[indices], self.lengths[indices]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        flat = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
        ids = [self.query_ids[i] for i in indices]
        return replace(
            self,
            query_ids=ids,
            query_rows=self.query_rows[indices],
            offsets=offsets,
            documents=self.documents[flat],
            labels=self.labels[flat],
            first_stage=self.first_stage[flat],
            qrels=None if self.qrels is None else {q: self.qrels[q] for q in ids if q in self.qrels},
        )

    def top(self, depth: int) -> Lists:
        """The best ``depth`` candidates of every list."""
        lengths = self.lengths
        keep = np.arange(self.offsets[-1]) - np.repeat(self.offsets[:-1], lengths) < depth
        return replace(
            self,
            offsets=np.concatenate([[0], np.cumsum(np.minimum(lengths, depth))]).astype(np.int64),
            documents=self.documents[keep],
            labels=self.labels[keep],
            first_stage=self.first_stage[keep],
        )

    def document_ids(self, rows: Array) -> list[str]:
        """Ids of documents by their rows in the store."""
        return self.document_table.column("doc_id").take(pa.array(rows)).to_pylist()

    def run(self, scores: Array | None = None) -> Run:
        """A run of these lists, best first; ties keep the first stage's order.

        Args:
            scores: ``[T]`` a score per candidate; None for the first stage's own.
        """
        ranked = scores is not None
        values = np.asarray(self.first_stage if scores is None else scores, dtype=np.float32)
        ids = self.document_ids(self.documents)
        run: Run = {}
        for i, query in enumerate(self.query_ids):
            start, end = int(self.offsets[i]), int(self.offsets[i + 1])
            order = np.argsort(-values[start:end], kind="stable") if ranked else np.arange(end - start)
            run[query] = [Scored(ids[start + j], float(values[start + j])) for j in order]
        return run

    def text_digest(self) -> str:
        """Hash of the stored queries and documents, which keys the token cache."""
        return self.manifest["hashes"]["texts"]


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest of a lists folder, checked for its version."""
    path = folder / "manifest.json"
    if not path.is_file():
        raise UserError(f"{folder}: not a lists folder (no manifest.json); make one with `rerank retrieve`")
    try:
        manifest = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{error.lineno}: not JSON; build the lists again with `rerank retrieve`") from error
    if manifest.get("version") != VERSION:
        raise UserError(
            f"{path}: lists of version {manifest.get('version')}, this is version {VERSION}; "
            "build them again with `rerank retrieve`"
        )
    return manifest


def texts_digest(folder: Path) -> str:
    """Hash of the two Arrow files of a folder."""
    return digest(folder / "queries.arrow", folder / "documents.arrow")
