"""Scores of runs: measures, significance, comparison, interpolation with the first stage."""

from __future__ import annotations

from rerank.evaluation.compare import Comparison, compare, compare_runs
from rerank.evaluation.folds import per_fold, pool
from rerank.evaluation.interpolate import interpolate, tune_weight
from rerank.evaluation.measures import Evaluator, PerQuery, check_overlap, evaluate, nERR, parse_measures

__all__ = [
    "Comparison",
    "Evaluator",
    "PerQuery",
    "check_overlap",
    "compare",
    "compare_runs",
    "evaluate",
    "interpolate",
    "nERR",
    "parse_measures",
    "per_fold",
    "pool",
    "tune_weight",
]
