"""Write a lists folder list by list; it appears whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from rerank import __version__
from rerank.collections.base import Qrels
from rerank.lists.columns import as_column, check_name, column_file, write_column
from rerank.lists.store import CANDIDATES, ENDS, MANIFEST, VERSION
from rerank.retrieval.runs import Run, Scored, write_run
from rerank.storage.arrow import Array, FlatFile
from rerank.storage.files import digest, write_json


class StoreWriter(ExitStack):
    """Collects candidates and columns, and writes what a lists folder has beside its texts.

    ``queries.arrow`` and ``documents.arrow`` are written by whoever has them, before :meth:`finish`.
    """

    def __init__(self, folder: Path, columns: Mapping[str, Sequence[str]]) -> None:
        super().__init__()
        self.folder, self.names = folder, {check_name(name): tuple(numbers) for name, numbers in columns.items()}
        self.lists = 0
        self._candidates = self.enter_context(FlatFile(folder, CANDIDATES))
        self._ends = self.enter_context(FlatFile(folder, ENDS))
        self._columns = {name: self.enter_context(column_file(folder, len(n))) for name, n in self.names.items()}

    def add(self, lengths: Array, added: Array, documents: Array, grades: Array, /, **columns: Array) -> None:
        """Append lists.

        Args:
            lengths: ``[q]`` candidates of every list, added ones included.
            added: ``[q]`` how many of each list's last ones were added.
            documents: ``[n]`` rows of the candidates' documents, list after list.
            grades: ``[n]``.
            columns: ``[n]`` or ``[n, C]`` for each column.
        """
        ends = np.cumsum(lengths, dtype=np.int64)
        queries = np.repeat(np.arange(self.lists, self.lists + len(lengths)), lengths)
        hidden = np.repeat(ends - added, lengths) <= np.arange(len(documents))
        self._ends.add(end=ends + self._candidates.rows, added=np.asarray(added))
        self._candidates.add(query=queries, document=np.asarray(documents), grade=np.asarray(grades), added=hidden)
        for name, values in columns.items():
            self._columns[name].add(values=as_column(name, values))
        self.lists += len(lengths)

    def finish(
        self,
        *,
        collection: Mapping[str, Any],
        retriever: Mapping[str, Any],
        counts: Mapping[str, int],
        made: Mapping[str, Mapping[str, Any]],
        order: str | None,
        run: Run | Iterable[tuple[str, Sequence[Scored]]],
        qrels: Qrels | None,
        by_grades: bool = False,
    ) -> None:
        """Write everything; ``run`` is the ranking by column ``order``, ``by_grades`` says that all judgments are."""
        self._candidates.write(self.folder / "candidates.arrow")
        self._ends.write(self.folder / "ends.arrow")
        candidates = digest(*(self.folder / f"{name}.arrow" for name in ("queries", "documents", "candidates")))
        (self.folder / "columns").mkdir()
        for name, file in self._columns.items():
            write_column(file, self.folder / "columns" / f"{name}.arrow", self.names[name], candidates, made[name])
        if order is not None:
            write_run(self.folder / "run.trec", run, order)
        if qrels:
            with (self.folder / "qrels.trec").open("w", encoding="utf-8") as judged:
                for query, grades in qrels.items():
                    judged.writelines(f"{query} 0 {document} {grade}\n" for document, grade in grades.items())
        manifest = {
            "version": VERSION,
            "rerank": __version__,
            "collection": dict(collection),
            "retriever": dict(retriever),
            "order": order,
            "judgments": "grades" if by_grades else "qrels.trec" if qrels else None,
            "counts": dict(counts),
            "columns": list(self.names),
            "candidates": candidates,
        }
        write_json(self.folder / MANIFEST, manifest)
