"""Saved values per query, from docs/studies/results."""

from __future__ import annotations

import functools
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "studies" / "results"
MEASURE = "nDCG@10"
FIRST, MIXED = "first stage", " + first stage"


@functools.cache
def results(name: str) -> pd.DataFrame:
    """Read a table; text columns are empty strings where they do not apply."""
    path = RESULTS / f"{name}.tsv.xz"
    table = pd.read_csv(path, sep="\t", dtype={"query": str, "fold": str}, keep_default_na=False, na_values=[""])
    words = [column for column in ("fold", "loss", "start") if column in table]
    table[words] = table[words].fillna("")
    missing = {column: cell for column, cell in (("fold", ""), ("seed", 0)) if column not in table}
    return table.assign(**missing)


@functools.cache
def values(name: str, measure: str = MEASURE, **cells: object) -> pd.DataFrame:
    """Return a measure as ``[fold and query, seed]`` of the rows that have these cells."""
    table = results(name)
    for column, cell in cells.items():
        table = table[table[column] == cell]
    return table.set_index(["fold", "query", "seed"])[measure].unstack("seed", sort=False)


def measures_of(name: str) -> list[str]:
    """List the measures of a table, whose columns come last."""
    columns = list(results(name))
    return [column for column in columns[columns.index("query") + 1 :] if column not in ("fold", "seed")]


def methods_of(name: str) -> list[str]:
    """List the methods of a table."""
    return list(results(name).method.unique())


def mixture(collection: str, share: float, depth: int) -> pd.DataFrame:
    """Return the values of BM25 and MiniLM's cosines interpolated, by the cosines' share."""
    return values("fusion", f"{share:.2f}", collection=collection, depth=depth)


@functools.cache
def features(condition: str, loss: str) -> pd.DataFrame:
    """Return the values of a loss in the study of features, a column per seed."""
    table = results("where")
    table = table[(table.condition == condition) & (table.loss == loss)].set_index(["fold", "query"])
    return table.filter(regex=r"^\d+$").rename(columns=int)
