"""Score one run."""

from __future__ import annotations

from typing import Any

from rerank.evaluation.measures import Evaluator, PerQuery


def evaluate(run: Any, qrels: Any, measures: Any, empty: Any = "0", name: str = "the run") -> PerQuery:
    """Score a run against judgments."""
    return Evaluator(qrels, measures, empty)(run, name)
