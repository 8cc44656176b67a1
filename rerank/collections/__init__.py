"""Queries, documents and judgments: ir_datasets ids, folders of files, Lucene indexes, the demo collection."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "base": ["Collection", "Document", "Qrels", "Query"],
        "names": ["as_qrels", "open_collection", "read_qrels", "read_queries"],
    },
)
