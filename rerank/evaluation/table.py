"""A comparison as people meet it: it prints, shows itself in a notebook, and becomes a data frame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rerank.evaluation.compare import Comparison
from rerank.evaluation.export import COLUMNS, table_rows
from rerank.evaluation.render import html, on_screen

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Table(Comparison):
    """A comparison that shows itself.

    >>> import rerank
    >>> texts = ["a wing gives lift", "a jet engine", "heat is energy", "a jet engine"]
    >>> table = {"query": ["wing", "wing", "heat", "heat"], "text": texts, "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> rerank.evaluate(lists, {"ours": [0.9, 0.1, 0.2, 0.8]}, measures="nDCG@10", baseline="bm25")
    Table(bm25, ours: nDCG@10; 2 queries, against bm25)
    """

    @classmethod
    def of(cls, comparison: Comparison) -> Self:
        return cls(**vars(comparison))

    def __str__(self) -> str:
        return on_screen(self)

    def __repr__(self) -> str:
        against = f", against {self.baseline}" if self.baseline else ""
        shown = f"{', '.join(self.tables)}: {', '.join(self.measures)}; {len(self.first.queries)} queries{against}"
        return f"Table({shown})"

    def _repr_html_(self) -> str:
        return html(self)

    def to_dataframe(self) -> pd.DataFrame:
        """A row per run and measure: ``mean`` and, under a baseline, the difference with all that was tested of it."""
        import pandas as pd

        names = [*COLUMNS, *(f"p_{test}{suffix}" for test in self.tests for suffix in ("", "_corrected"))]
        rows = [dict(zip(names, row, strict=False)) for row in table_rows(self)]
        return pd.DataFrame(rows, columns=names).drop(columns=[] if self.differences else names[4:])
