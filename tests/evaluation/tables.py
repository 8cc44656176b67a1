"""Make up values per query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rerank.evaluation.measures import PerQuery, parse_measures


def per_query(measures: str, values: np.ndarray, queries: Sequence[str] | None = None) -> PerQuery:
    """Make a run's values ``[measures, queries]``; queries with NaN have no relevant documents."""
    lacking = np.isnan(values)
    names = tuple(queries or map(str, range(values.shape[1])))
    return PerQuery(tuple(parse_measures(measures)), names, values, (), lacking, "drop" if lacking.any() else "0")
