"""Lists from documents alone: what the documents of the training lists begin with, looked up in the same documents."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from pathlib import Path

import numpy as np

from rerank.collections.in_memory import Texts
from rerank.collections.own_queries import OwnQueries
from rerank.errors import UserError
from rerank.lists.build import build_lists
from rerank.lists.view import Lists
from rerank.retrieval.bm25 import BM25, build_index
from rerank.storage.arrow import taken

DOCUMENTS = 50_000
"""Documents that are looked at, at the most."""

QUERIES = 1500
"""Queries that are trained on, at the most."""

FEWEST = 30
"""Queries below which there is nothing to learn from."""

DEPTH = 50
"""Candidates of a query, from which the negatives come."""


def own_lists(train: Lists, others: Collection[str], folder: Path) -> Lists:
    """Make lists whose queries are documents' titles; first sentences where so many of them, or half, have no title.

    Of a query's candidates, BM25's, one alone is relevant: the document that it was taken from. Queries by which BM25
    does not find it say little of it, and are left out.
    """
    index = folder.with_name(f"{folder.name}-index")
    try:
        if not folder.is_dir():
            own = _own_queries(train)
            plain = {text.rstrip(".") for text in others}
            wanted = [query for query in own.queries() if _plain(query.text) not in plain]
            left_out, model = len(own.qrels()) - len(wanted), BM25()
            run = model.search(build_index(own, index), wanted, depth=DEPTH, progress=False)
            found = [query for query in wanted if any(hit.id == query.id for hit in run[query.id])]
            if len(found) < FEWEST:
                raise UserError(f"the documents begin with {len(found)} queries that lead to them, too few")
            run, qrels = {query.id: run[query.id] for query in found}, {query.id: {query.id: 1} for query in found}
            made = {"bm25": vars(model), "queries": own.kind, "left_out": left_out}
            build_lists(own, run, folder, queries=found, depth=DEPTH, qrels=qrels, retriever=made)
    finally:
        shutil.rmtree(index, ignore_errors=True)
    return Lists.open(folder)


def _own_queries(train: Lists) -> OwnQueries:
    rows = np.unique(train.documents)
    if len(rows) > DOCUMENTS:
        rows = np.sort(np.random.default_rng(0).choice(rows, DOCUMENTS, replace=False))
    texts = taken(train.store.documents.column("text"), rows).to_pylist()
    queries = dict(zip(train.query_ids, train.query_texts, strict=True))
    documents = Texts(dict(zip(train.document_ids(rows), texts, strict=True)), queries, name="the training documents")
    titles = OwnQueries(documents, "titles", QUERIES)
    enough = len(titles.qrels()) >= min(QUERIES, len(rows) / 2)
    return titles if enough else OwnQueries(documents, "first-sentences", QUERIES)


def _plain(text: str) -> str:
    return " ".join(text.lower().split()).rstrip(".")
