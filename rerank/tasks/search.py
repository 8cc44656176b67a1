"""How BM25 searches: the options that ``rerank.retrieve(search=…)`` and ``rerank retrieve`` share."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.errors import UserError
from rerank.settings.ranges import Count, check_arguments

if TYPE_CHECKING:
    from rerank.collections import Collection
    from rerank.retrieval.bm25 import BM25

log = logging.getLogger("rerank")

TUNE_MEASURE = "nDCG@10"


@dataclass(frozen=True)
class Search:
    """BM25's options.

    >>> Search(k1=1.2, b=0.75).k1
    1.2

    Attributes:
        k1: BM25's term frequency saturation.
        b: BM25's length normalisation.
        rm3: expand queries by RM3.
        language: language of texts and queries, which chooses Lucene's analyser: de, fr, ar, zh and others.
        index: a Lucene index (folder, or name of a prebuilt one) to search, instead of one built here.
        tune_on: a collection whose judged queries are used to choose k1 and b (training queries, never test queries).
        tune_measure: the measure that tuning maximises.
        threads: threads for indexing and searching; None takes all cores.

    Raises:
        UserError: a number out of its range, or options that contradict each other.
    """

    k1: float = 0.9
    b: float = 0.4
    rm3: bool = False
    language: str = "en"
    index: str | None = None
    tune_on: str | None = None
    tune_measure: str = TUNE_MEASURE
    threads: Count | None = None

    def __post_init__(self) -> None:
        from rerank.evaluation.measure_names import parse_measure

        check_arguments(Search, vars(self))
        self._untuned()  # checks its numbers
        parse_measure(self.tune_measure, "tune_measure")
        if self.tune_on is None and self.tune_measure != TUNE_MEASURE:
            raise UserError("tune_measure: is what --tune-on COLLECTION maximises; name one")
        for key in ("k1", "b"):
            if self.tune_on is not None and getattr(self, key) != getattr(Search, key):
                raise UserError(f"{key}: --tune-on chooses k1 and b; give only one of the two")

    def _untuned(self) -> BM25:
        from rerank.retrieval.bm25 import BM25

        return BM25(k1=self.k1, b=self.b, rm3=self.rm3, language=self.language)

    def searched_index(self, source: Collection) -> Path:
        from rerank.retrieval.bm25 import build_index, find_index

        return find_index(self.index) if self.index else build_index(source, None, self.threads, self.language)

    def model(self, index: Path, depth: int, fields: Sequence[str] | None) -> BM25:
        """BM25 with these options, tuned where a collection to tune on is named.

        Raises:
            UserError: none of the queries to tune on has judgments.
        """
        from rerank.collections import open_collection
        from rerank.evaluation.measure_names import parse_measure
        from rerank.evaluation.measures import Evaluator
        from rerank.retrieval.runs import Run
        from rerank.retrieval.tune import tune

        if self.tune_on is None:
            return self._untuned()
        training = open_collection(self.tune_on, fields)
        grades = training.qrels() or {}
        judged = [query for query in training.queries() if query.id in grades]
        if not judged:
            raise UserError(f"tune_on: none of the queries of {self.tune_on} has judgments")
        measure = parse_measure(self.tune_measure, "tune_measure")
        evaluator = Evaluator({query.id: grades[query.id] for query in judged}, measure)

        def mean(run: Run) -> float:
            return evaluator(run, "BM25", warn=False).mean[str(measure)]

        tuned = tune(index, judged, mean, depth, rm3=self.rm3, language=self.language)
        best = tuned.best
        log.info("tuned on %s: k1 %g, b %g, %s %.4f", self.tune_on, best.k1, best.b, self.tune_measure, tuned.value)
        return best
