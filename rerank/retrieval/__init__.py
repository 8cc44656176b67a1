"""The first stage: BM25 on Lucene, and run files."""

from __future__ import annotations

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={"bm25": ["BM25", "build_index"], "runs": ["Run", "Scored", "read_run", "write_run"]},
)
