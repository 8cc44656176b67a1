"""Queries, documents and judgments: ir_datasets ids, folders of files, Lucene indexes, the demo collection."""

from __future__ import annotations

from rerank.collections.base import Collection, Document, Qrels, Query
from rerank.collections.names import as_qrels, open_collection, read_qrels, read_queries

__all__ = ["Collection", "Document", "Qrels", "Query", "as_qrels", "open_collection", "read_qrels", "read_queries"]
