"""From a collection to ranked lists: ``rerank.retrieve``, and the command of that name."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.errors import UserError
from rerank.progress import log
from rerank.settings.arguments import Count, check_arguments
from rerank.tasks.arguments import Columns, Judgments, Queries, Records, Runs, Source

if TYPE_CHECKING:
    from rerank.collections.base import Collection, Query
    from rerank.lists.view import Lists
    from rerank.retrieval.bm25 import BM25


@dataclass(frozen=True)
class Search:
    """BM25's options.

    >>> Search(k1=1.2, b=0.75).k1
    1.2

    Attributes:
        k1: BM25's term frequency saturation.
        b: BM25's length normalisation.
        language: language of texts and queries, which chooses Lucene's analyser: de, fr, ar, zh and others.
        index: a Lucene index (folder, or name of a prebuilt one) to search, instead of one built here.
        threads: threads for indexing and searching; defaults to all cores.

    Raises:
        UserError: a number out of its range, or a language that Lucene does not know.
    """

    k1: float = 0.9
    b: float = 0.4
    language: str = "en"
    index: str | None = None
    threads: Count | None = None

    def __post_init__(self) -> None:
        check_arguments(Search, vars(self))
        self.model()  # checks its numbers

    def model(self) -> BM25:
        from rerank.retrieval.bm25 import BM25

        return BM25(k1=self.k1, b=self.b, language=self.language)

    def searched_index(self, source: Collection) -> Path:
        from rerank.collections.lucene import find_index
        from rerank.retrieval.bm25 import build_index

        return find_index(self.index) if self.index else build_index(source, self.threads, self.language)


def retrieve(
    collection: Source | None = None,
    output: str | None = None,
    depth: Count = 150,
    records: Records | None = None,
    run: Runs | None = None,
    search: Search | None = None,
    dense: str | None = None,
    order: str | None = None,
    queries: Queries | None = None,
    query_fields: list[str] | None = None,
    qrels: Judgments | None = None,
    columns: Columns | None = None,
    add_relevant: bool = False,
) -> Lists:
    """Store candidates as ranked lists: from BM25, from other systems' runs, from both, or from existing records.

    BM25's candidates are kept on disk. With several runs, the lists are their union, with a column for each.

    >>> import rerank
    >>> documents = {"d1": "a jet engine", "d2": "a wing gives lift"}
    >>> texts = rerank.Texts(documents, {"q": "what is a wing"}, {"q": {"d2": 1}})
    >>> rerank.retrieve(texts, run={"mine": {"q": {"d1": 1.0, "d2": 0.5}}})  # without run, by BM25
    Lists('texts': 1 query (1 judged), 2 candidates; columns mine)

    Args:
        collection: an ir_datasets id, beir:DIR/SPLIT, files:DIR, lucene:NAME or demo; from Python also an object (see
            :class:`rerank.collections.Collection`).
        output: lists folder to make; from Python None keeps the lists in memory.
        depth: candidates per query.
        records: instead of a collection, candidates or training examples with their texts: a JSON, JSONL, CSV, TSV or
            Parquet file, a saved data set, or one on the hub as NAME:SPLIT (see :meth:`rerank.Lists.from_dataset`).
        run: run files to take the candidates from, instead of BM25: FILE or NAME=FILE (TREC, MS MARCO, JSONL,
            Parquet); each becomes a column of that name. They are read into memory.
        search: BM25's options; with runs they add BM25's candidates. None searches if nothing else is ranked.
        dense: embedding model (folder, or name on the hub): takes each query's nearest documents by cosine, in a
            column ``dense``; the search is exhaustive.
        order: the column that orders the lists; defaults to rrf, the fused reciprocal ranks, for several runs.
        queries: queries (JSONL, TSV or a collection); defaults to the collection's own. The word titles makes queries
            of the first lines of documents, and removes these lines from the documents.
        query_fields: fields of an ir_datasets id that make up a query's text, such as title description; defaults to
            the title.
        qrels: judgments (TREC file, BEIR TSV or collection); defaults to the collection's own.
        columns: names of the records' columns, as FIELD=COLUMN: query=question text=passage.
        add_relevant: add the relevant documents that the first stage missed; only training sees them.

    Returns:
        The lists, without the documents that ``add_relevant`` added.

    Raises:
        UserError: options that contradict each other, or a collection or file that is missing or damaged.
    """
    from rerank.collections.names import as_qrels, checked_collection, open_collection
    from rerank.collections.texts import OwnQueries
    from rerank.lists.build import ORDER, build_lists
    from rerank.lists.view import Lists
    from rerank.retrieval.dense import DENSE, build_vectors, search_dense
    from rerank.retrieval.fuse import Pool
    from rerank.retrieval.runs import Run, as_run
    from rerank.storage.files import exclusive_lock

    check_arguments(retrieve, {"depth": depth, "search": search})
    if (collection is None) == (records is None):
        raise UserError("collection: give --collection, or --records for candidates that exist already")
    with ExitStack() as opened:
        folder = _place(output, opened)
        forms = _named(run)
        for name, whose, used in ((ORDER, "BM25's column", search), (DENSE, "the column of --dense", dense)):
            if used is not None and name in forms:
                raise UserError(f"run: {whose} is called {name}, too; write --run NAME={forms[name]}")
        opened.enter_context(exclusive_lock(folder))
        judgments = None if qrels is None else as_qrels(qrels)
        if records is not None:
            searched = {"run": run, "search": search, "dense": dense, "add_relevant": add_relevant}
            if useless := next((option for option, value in searched.items() if value), None):
                raise UserError(f"{useless}: has no effect with --records, which hold the candidates; leave it out")
            texts = None if queries is None else {query.id: query.text for query in _asked(queries, query_fields)}
            found = _of_records(records, judgments, columns, order, texts, depth)
            return found if output is None else found.save(folder)
        if columns:
            raise UserError("columns: these name the columns of --records; leave them out for a collection")
        assert collection is not None
        source = open_collection(collection) if isinstance(collection, str) else checked_collection(collection)
        if isinstance(queries, str) and queries == "titles":
            source, queries = OwnQueries(source), None
        if not (forms or dense):
            search = search or Search()
        wanted = _asked(source if queries is None else queries, query_fields)
        names = [ORDER] * bool(search) + [DENSE] * bool(dense) + list(forms)
        Pool({name: {} for name in names}, order)  # a wrong order is refused before the work
        runs: dict[str, Run] = {name: as_run(form, f"run {name}") for name, form in forms.items()}
        paths = {name: str(form) if isinstance(form, str | Path) else "in memory" for name, form in forms.items()}
        retriever: dict[str, Any] = {"run": paths} if forms else {}
        if search is not None:  # one more, as a query that is a document may find itself
            index = search.searched_index(source)
            model = search.model()
            runs = {ORDER: model.search(index, wanted, depth + 1, search.threads, folder.parent), **runs}
            retriever |= {"bm25": vars(model)}
        if dense is not None:
            from rerank.models.text.cosines import Embedder

            encoder = Embedder(dense)
            runs[DENSE] = search_dense(build_vectors(source, encoder), encoder, wanted, depth + 1)
            retriever |= {"dense": {"model": dense, "sha256": encoder.id}}
        lists = build_lists(
            source,
            Pool(runs, order),
            folder,
            queries=wanted,
            depth=depth,
            qrels=judgments,
            retriever=retriever,
            add_relevant=add_relevant,
        )
        return lists if output is not None else Lists.of(lists.store.in_memory())


def _of_records(
    records: Any, judgments: Any, columns: Any, order: str | None, queries: dict[str, str] | None, depth: int
) -> Lists:
    from rerank.collections.records import parse_columns
    from rerank.lists.view import Lists

    named = columns if isinstance(columns, Mapping) else parse_columns(columns or ())
    whole = Lists.from_dataset(records, judgments, columns=named, order=order, queries=queries)
    found = whole.to_rerank(depth)
    if cut := whole.size - found.size:
        log.info("%s: %d candidates beyond depth %d were left out (--depth)", whole.store, cut, depth)
    return found


def _place(output: str | None, opened: ExitStack) -> Path:
    """Choose the folder to build the lists in: the one asked for, or a temporary one."""
    if output is None:
        return Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="rerank-"))) / "lists"
    folder = Path(output).expanduser()
    if folder.exists():
        raise UserError(f"output: {output} exists already; remove it, or name another folder")
    return folder


def _named(run: Any) -> Mapping[str, Any]:
    """Runs by name: from words of the command line, a list of files, or a dictionary of any forms."""
    from rerank.lists.columns import check_name, named_files

    if isinstance(run, Mapping):
        return {check_name(name): form for name, form in run.items()}
    return named_files([str(run)] if isinstance(run, str | Path) else list(map(str, run or [])))


def _asked(queries: Any, fields: list[str] | None) -> list[Query]:
    from rerank.collections.base import Query, checked_id, checked_text
    from rerank.collections.names import read_queries

    if isinstance(queries, Mapping):
        return [
            Query(checked_id(id, "queries"), checked_text(text, f"queries: {id!r}")) for id, text in queries.items()
        ]
    return list(read_queries(queries, fields))
