"""Values per query that are made up."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rerank.evaluation.measures import PerQuery, parse_measures


def per_query(measures: str, values: np.ndarray, queries: Sequence[str] | None = None) -> PerQuery:
    """A run's values ``[measures, queries]``; where they are NaN, nothing is relevant and the query is left out."""
    lacking = np.isnan(values)
    names = tuple(queries or map(str, range(values.shape[1])))
    return PerQuery(tuple(parse_measures(measures)), names, values, (), lacking, "drop" if lacking.any() else "0")
