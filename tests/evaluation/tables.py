"""Make up values per query."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rerank.evaluation.measures import PerQuery, parse_measures


def per_query(measures: str, values: np.ndarray, queries: Sequence[str] | None = None) -> PerQuery:
    """Make a run's values ``[measures, queries]``; queries with NaN have no relevant documents."""
    parsed, names = tuple(parse_measures(measures)), tuple(queries or map(str, range(values.shape[1])))
    lacking = dict(zip(map(str, parsed), np.isnan(values).sum(axis=1).tolist(), strict=True))
    return PerQuery(parsed, names, values, (), lacking, "drop" if any(lacking.values()) else "0")
