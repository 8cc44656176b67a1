"""The first stage: BM25 on Lucene, tuning it, and run files."""

from __future__ import annotations

from rerank.retrieval.runs import Run, Scored, read_run, write_run

__all__ = ["Run", "Scored", "read_run", "write_run"]
