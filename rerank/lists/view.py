"""The one data structure: queries with their ranked candidates, as a cheap view of a store."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rerank.collections.base import Qrels
from rerank.errors import UserError
from rerank.html import ROWS, shown
from rerank.lists.store import Store, StoreWriter
from rerank.retrieval.runs import RunTable
from rerank.storage.arrow import Array, ranges, taken, write_arrow
from rerank.storage.files import atomic_folder

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Lists:
    """Ranked lists: all of a store, or some, or their best candidates.

    List ``i`` has the candidates ``starts[i]`` to ``starts[i] + lengths[i]`` of the store; of everything per candidate
    (``[T]``) it has ``offsets[i]:offsets[i + 1]``. Selecting lists and cutting them costs a few numbers a list.

    >>> import rerank
    >>> texts = ["a wing gives lift", "a jet engine", "heat is energy", "a jet engine"]
    >>> table = {"query": ["wing", "wing", "heat", "heat"], "text": texts, "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> lists
    Lists('data frame': 2 queries (2 judged), 4 candidates; columns bm25)
    >>> lists.top(1).column("bm25").tolist(), lists.select([1]).query_texts
    ([3.0, 2.0], ['heat'])

    Attributes:
        store: the store of which the lists are a view.
        queries: row of each list's query in the store, ``[Q]``.
        starts: row of each list's first candidate in the store, ``[Q]`` int64.
        lengths: number of candidates of every list, ``[Q]`` int64.
    """

    store: Store
    queries: Array
    starts: Array
    lengths: Array

    @classmethod
    def of(cls, store: Store) -> Lists:
        """View all lists of a store, without added documents."""
        lengths = np.diff(store.ends, prepend=0)
        return cls(store, np.arange(len(lengths)), store.ends - lengths, lengths - store.added)

    @classmethod
    def open(cls, folder: str | Path) -> Lists:
        """Open a lists folder, as ``rerank retrieve`` makes them.

        Relevant documents that the first stage missed and ``--add-relevant`` put in are hidden: no measure may profit
        from them. See :meth:`with_added`.

        Raises:
            UserError: no such folder, one of another version, or one that is not whole.
        """
        return cls.of(Store.open(folder))

    @classmethod
    def from_dataset(
        cls,
        source: pd.DataFrame | Any,
        qrels: Qrels | Any | None = None,
        name: str | None = None,
        columns: Mapping[str, str] | None = None,
        order: str | None = None,
        queries: Mapping[str, str] | None = None,
    ) -> Lists:
        """Make lists in memory from records: a data set, a data frame, a file, or the name of a data set on the hub.

        >>> rows = [{"anchor": "a wing", "positive": "it lifts", "negative_1": "a jet", "negative_2": "heat"}]
        >>> Lists.from_dataset(rows)
        Lists('data frame': 1 query (1 judged), 3 candidates)

        Args:
            source: what :func:`rerank.collections.tables.load_frame` takes, in one of these shapes: a row per
                candidate (``query_id``, ``query``, ``doc_id``, ``text``, ``grade``, any numbers); ``query, docs,
                labels``; ``anchor, positive, negative_1 … negative_n``; ``query, positive, negative``; ``query, pos,
                neg, pos_scores, neg_scores, prompt``; ``query, positive_passages, negative_passages``; ``sentence1,
                sentence2, label or score``; or a query with a list of ``hits``, as search engines and rank_llm give
                them. Ids that are left out are made from the texts: equal texts have equal ids everywhere. Every other
                column of numbers becomes a column of the lists, in which higher is better; ``rank`` becomes its
                negative. Missing grades mean unjudged. Labels with fractions are a column of scores, for ``Term(MSE(),
                target=…)``.
            qrels: all judgments, in any form that :func:`rerank.collections.as_qrels` takes; None takes the
                grades, if there are any.
            name: its name in messages.
            columns: the source's name of a field that has an unusual one: ``{"text": "passage_text"}``.
            order: the column that ordered the lists, best first; None takes ``score``, ``rank``, or the first column
                by which the rows of every query are sorted.
            queries: texts by id, of sources that have none.

        Raises:
            UserError: columns of no known shape, or a row with a missing or contradictory value.
        """
        from rerank.collections.names import as_qrels
        from rerank.collections.records import read_records
        from rerank.lists.from_records import store_of

        judged = None if qrels is None else as_qrels(qrels, name="qrels")
        return cls.of(store_of(read_records(source, columns, name, queries), judged, order))

    from_dataframe = from_dataset

    def save(self, folder: str | Path) -> Lists:
        """Write what these lists show as a folder of their own; returns the lists opened from there.

        Raises:
            UserError: the place is taken, or a query was selected twice.
        """
        import pandas as pd

        store = self.store
        if len(again := np.flatnonzero(np.bincount(self.queries, minlength=1) > 1)):
            query = store.queries.column("query_id")[int(again[0])].as_py()
            raise UserError(f"{folder}: query {query!r} is chosen twice; a folder has it once")
        numbers, chosen = pd.factorize(self.documents)
        retrieved = np.minimum(self.lengths, (store.ends - store.added)[self.queries] - self.starts)
        added = self.lengths - retrieved
        columns = {column: store.entry(column) for column in store.column_names}
        with atomic_folder(folder) as temporary:
            for file, table, some in (("queries", store.queries, self.queries), ("documents", store.documents, chosen)):
                texts = {name: taken(table.column(name), some).to_pylist() for name in table.column_names}
                write_arrow(temporary / f"{file}.arrow", pa.schema([(name, pa.string()) for name in texts]), [texts])
            with StoreWriter(temporary, {column: entry.names for column, entry in columns.items()}) as writer:
                values = {column: entry.values[self.rows] for column, entry in columns.items()}
                writer.add(self.lengths, added, numbers, self.grades, **values)
                unadded = Lists(store, self.queries, self.starts, retrieved)
                counts = {"queries": len(self), "documents": len(chosen), "pairs": self.size}
                writer.finish(
                    collection=store.manifest["collection"],
                    retriever=store.manifest["retriever"],
                    counts=counts | {"added_relevant": int(added.sum())},
                    made={column: entry.made for column, entry in columns.items()},
                    order=store.order,
                    run={} if store.order is None else unadded.run(),
                    qrels={query: grades for query, grades in (self.qrels or {}).items() if grades},
                    by_grades=self.judged_by_grades,
                )
        saved = Lists.open(folder)
        return saved.with_added() if saved.store.added.any() else saved

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row per candidate: ``query_id``, ``doc_id``, of texts ``query`` and ``text``, ``grade``, columns.

        Grades are missing for what is not judged. Columns of several numbers are one column each, called
        ``NAME/NUMBER``.
        """
        import pandas as pd

        store, of = self.store, np.repeat(np.arange(len(self)), self.lengths)
        data: dict[str, Any] = {"query_id": np.array(self.query_ids, dtype=object)[of]}
        data["doc_id"] = self.document_ids(self.documents)
        if "instruction" in store.queries.column_names:
            data["instruction"] = np.array(self.instructions, dtype=object)[of]
        if store.has_text:
            data["query"] = np.array(self.query_texts, dtype=object)[of]
            rows, where = np.unique(self.documents, return_inverse=True)
            data["text"] = np.array(taken(store.documents.column("text"), rows).to_pylist(), dtype=object)[where]
        grades = self.judged_grades()
        data["grade"] = pd.array(grades, "Int16") if None in grades else np.array(grades, np.int16)
        for name, numbers in store.numbers_by_column().items():
            data |= zip(numbers, self.matrix([name]).T, strict=True)
        return pd.DataFrame(data)

    @property
    def judged(self) -> Array:
        """Mask of the queries with a judgment, ``[Q]``; all of them if grades are the judgments, as in LETOR files."""
        if self.store.judged_by_grades:
            return np.ones(len(self), dtype=bool)
        qrels = self.qrels or {}
        return np.array([bool(qrels.get(query)) for query in self.query_ids], dtype=bool)

    def __len__(self) -> int:
        return len(self.queries)

    def __repr__(self) -> str:
        judged = int(self.judged.sum())
        names = sorted(self.store.column_names, key=lambda name: name != self.store.order)
        columns = f"; columns {', '.join(names)}" if names else ""
        queries = f"{len(self)} quer{'y' if len(self) == 1 else 'ies'} ({judged} judged)"
        return f"Lists({str(self.store)!r}: {queries}, {self.size} candidates{columns})"

    def _repr_html_(self) -> str:
        some = int(np.searchsorted(self.offsets[1:], ROWS + 1)) + 1  # lists that hold the rows that are shown
        return shown(repr(self), self.select(np.arange(min(len(self), some))).to_dataframe())

    @cached_property
    def offsets(self) -> Array:
        """Start of each list among the candidates, and end of the last one, ``[Q + 1]`` int64."""
        return np.concatenate([[0], np.cumsum(self.lengths)]).astype(np.int64)

    @property
    def size(self) -> int:
        """The number of candidates, T."""
        return int(self.offsets[-1])

    @cached_property
    def rows(self) -> Array | slice:
        """Rows of the candidates in the store: a slice where they lie one after the other, else ``[T]`` int64."""
        if not len(self):
            return slice(0, 0)
        if (self.starts[:-1] + self.lengths[:-1] == self.starts[1:]).all():
            return slice(int(self.starts[0]), int(self.starts[-1] + self.lengths[-1]))
        return self.row_numbers

    @cached_property
    def row_numbers(self) -> Array:
        """Rows of the candidates in the store, ``[T]`` int64."""
        return ranges(self.starts, self.lengths)

    @cached_property
    def query_ids(self) -> list[str]:
        return taken(self.store.queries.column("query_id"), self.queries).to_pylist()

    @cached_property
    def query_texts(self) -> list[str]:
        return taken(self.store.queries.column("text"), self.queries).to_pylist()

    @property
    def instructions(self) -> list[str]:
        """The instruction of each query, ``""`` for none."""
        if "instruction" not in self.store.queries.column_names:
            return [""] * len(self)
        return [text or "" for text in taken(self.store.queries.column("instruction"), self.queries).to_pylist()]

    @property
    def query_keys(self) -> list[str]:
        """Keys of the queries, ignoring case and white space: their texts, or their ids if there are none.

        Ids are not enough: other collections use the same ids, and NFCorpus has the same query twice.
        """
        if not self.store.has_text:
            return [f"id {id}" for id in self.query_ids]
        texts = (" ".join(text.lower().split()) for text in self.query_texts)
        return [text or f"id {id}" for text, id in zip(texts, self.query_ids, strict=True)]

    @cached_property
    def documents(self) -> Array:
        """Row of each candidate's document in the store, ``[T]`` int32."""
        return self.store.document[self.rows]

    @cached_property
    def grades(self) -> Array:
        """Grade of each candidate, ``[T]`` int16; 0 where unjudged or judged negative."""
        return self.store.grades[self.rows]

    @cached_property
    def qrels(self) -> Qrels | None:
        """All judgments of these queries, also of documents that are not candidates; None if there are none."""
        if self.store.judged_by_grades:
            whole = Lists.of(self.store).select(self.queries)  # a cut takes no judgment away
            pairs = list(zip(whole.document_ids(whole.documents), whole.grades.tolist(), strict=True))
            ends = itertools.pairwise(whole.offsets.tolist())
            return {query: dict(pairs[slice(*own)]) for query, own in zip(self.query_ids, ends, strict=True)}
        if self.store.qrels is None:
            return None
        return {query: self.store.qrels[query] for query in self.query_ids if query in self.store.qrels}

    @property
    def judged_by_grades(self) -> bool:
        """True if the candidates' grades are all judgments, as in a LETOR file whose lists are whole."""
        return self.store.judged_by_grades and bool((self.starts + self.lengths == self.store.ends[self.queries]).all())

    def judged_grades(self) -> list[int | None]:
        """Return each candidate's judgment, ``[T]``, negative ones too; None if there is none."""
        if self.store.judged_by_grades:
            return self.grades.tolist()
        ids, of = self.document_ids(self.documents), np.repeat(np.arange(len(self)), self.lengths).tolist()
        judged = [(self.qrels or {}).get(query, {}) for query in self.query_ids]
        return [judged[query].get(id) for query, id in zip(of, ids, strict=True)]

    def column(self, name: str) -> Array:
        """Return a column of one number a candidate, ``[T]`` float32; NaN if the system did not return it."""
        return self.store.column(name, self.rows)

    def matrix(self, names: Sequence[str]) -> Array:
        """Return columns side by side, ``[T, C]`` float32; a view of the mapped file if it has them in this order."""
        return self.store.matrix(names, self.rows)

    def select(self, lists: Array | Sequence[int] | Sequence[bool] | slice) -> Lists:
        """Select some of the lists.

        Args:
            lists: their positions, in the order that is wanted; a mask, ``[Q]`` bool; or a slice.
        """
        chosen: Any = lists if isinstance(lists, slice) else np.atleast_1d(np.asarray(lists))
        if not isinstance(chosen, slice) and not chosen.size:
            chosen = chosen.astype(np.int64)  # an empty list is one of floats to NumPy
        positions = np.arange(len(self))[chosen]
        return Lists(self.store, self.queries[positions], self.starts[positions], self.lengths[positions])

    def top(self, depth: int) -> Lists:
        """Cut every list to its best ``depth`` candidates."""
        if depth < 0:
            raise UserError(f"top: depth {depth!r}; expected a whole number, 0 or more")
        return replace(self, lengths=np.minimum(self.lengths, depth))

    def to_rerank(self, depth: int | None) -> Lists:
        """Cut lists that have an order to their best ``depth`` candidates, if it is given; leave others whole."""
        return self if depth is None or self.store.order is None else self.top(depth)

    def with_added(self) -> Lists:
        """Show the relevant documents that the first stage missed at the ends of the lists, to train on.

        Raises:
            UserError: lists that were cut before.
        """
        added = self.store.added[self.queries]
        if (self.starts + self.lengths + added != self.store.ends[self.queries]).any():
            raise UserError("with_added: the lists were cut before, or show what was added already")
        return replace(self, lengths=self.lengths + added)

    def document_ids(self, rows: Array) -> list[str]:
        """Return the ids of documents by their rows in the store."""
        return taken(self.store.documents.column("doc_id"), rows).to_pylist()

    def run(self, scores: Array | str | None = None) -> RunTable:
        """Return a run of these lists, best first.

        Args:
            scores: ``[T]`` a score per candidate, ties in the order of the lists; or the name of a column, whose run
                has the candidates that its system returned, ties as trec_eval breaks them (by descending id); None
                for the column that ordered the lists, in their order; evaluation still breaks its ties as trec_eval
                does.

        Raises:
            UserError: not one score per candidate, one that is not a number, or none for lists without an order.
        """
        column = self.store.order if scores is None else scores
        if column is None:
            raise UserError(f"{self.store}: nothing ranked these lists; a run needs scores")
        of = np.repeat(np.arange(len(self)), self.lengths)
        if isinstance(column, str):
            values = self.column(column)
            order = np.flatnonzero(~np.isnan(values))
            if scores is not None:
                order = order[np.lexsort((-self._places_of_ids[order], -values[order], of[order]))]
        else:
            values = np.asarray(column, dtype=np.float32)
            if values.shape != (self.size,):
                raise UserError(f"scores: have the shape {list(values.shape)}; {self.store} has {self.size} candidates")
            if unknown := int(np.isnan(values).sum()):
                raise UserError(f"scores: {unknown} of {self.size} are not a number")
            order = np.lexsort((-values, of))
        offsets = np.searchsorted(of[order], np.arange(len(self) + 1))
        ids = taken(self.store.documents.column("doc_id"), self.documents[order]).cast(pa.large_string())
        return RunTable(self.query_ids, offsets, ids, values[order].astype(np.float64))

    @cached_property
    def _places_of_ids(self) -> Array:
        """Place of each candidate's document id in sorted order, ``[T]``, which breaks trec_eval's ties."""
        rows, where = np.unique(self.documents, return_inverse=True)
        order = np.argsort(np.array(self.document_ids(rows), dtype=object), kind="stable")
        return np.argsort(order)[where]
