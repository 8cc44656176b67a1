"""How BM25 searches: the options that ``rerank.retrieve(search=…)`` and ``rerank retrieve`` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.settings.ranges import Count, check_arguments

if TYPE_CHECKING:
    from rerank.collections import Collection
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
        threads: threads for indexing and searching; None takes all cores.

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
        from rerank.retrieval.bm25 import build_index, find_index

        return find_index(self.index) if self.index else build_index(source, None, self.threads, self.language)
