"""Per-query values of cross-validation: pooled over folds, or averaged within each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
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


def per_fold(table: PerQuery, folds: Mapping[str, str]) -> PerQuery:
    """The means within folds, one column per fold, so that tests compare folds instead of queries.

    Args:
        table: values of all queries.
        folds: the fold of each query.

    Returns:
        A table whose ``queries`` are the names of the folds, in the order of their first query; a fold all of whose
        queries lack relevant documents counts as such, and is NaN under ``drop``.

    Raises:
        UserError: a query without a fold.
    """
    lost = next((query for query in table.queries if query not in folds), None)
    if lost is not None:
        raise UserError(f"query {lost!r} is in no fold")
    names = tuple(dict.fromkeys(folds[query] for query in table.queries))
    members = [np.array([folds[query] == name for query in table.queries]) for name in names]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of a fold whose queries were all dropped is NaN
        values = np.stack([np.nanmean(table.values[:, member], axis=1) for member in members], axis=1)
    return replace(
        table,
        queries=names,
        values=values,
        missing=(),
        without_relevant=np.stack([table.without_relevant[:, member].all(axis=1) for member in members], axis=1),
    )
