"""The first stage: BM25 on Lucene, and run files."""

from __future__ import annotations

from rerank.collections.jvm import start_jvm
from rerank.collections.lucene import prebuilt_index
from rerank.retrieval.bm25 import BM25, build_index
from rerank.retrieval.runs import Run, Scored, read_run, write_run

__all__ = ["BM25", "Run", "Scored", "build_index", "prebuilt_index", "read_run", "start_jvm", "write_run"]
