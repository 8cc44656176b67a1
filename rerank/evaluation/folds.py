"""Per-query values of cross-validation, pooled over folds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from rerank.errors import UserError
from rerank.evaluation.measures import PerQuery


def pool(tables: Sequence[PerQuery]) -> PerQuery:
    """One table over the queries of all folds.

    Raises:
        UserError: folds that share a query, or were scored in other measures or under another policy.
    """
    first = tables[0]
    if any((table.measures, table.empty) != (first.measures, first.empty) for table in tables):
        raise UserError("the folds were scored in different measures or policies for empty queries")
    queries = tuple(query for table in tables for query in table.queries)
    if len(set(queries)) < len(queries):
        twice = next(query for query in queries if queries.count(query) > 1)
        raise UserError(f"query {twice!r} is in more than one fold")
    return replace(
        first,
        queries=queries,
        values=np.concatenate([table.values for table in tables], axis=1),
        missing=tuple(query for table in tables for query in table.missing),
        without_relevant=np.concatenate([table.without_relevant for table in tables], axis=1),
    )
