"""The table that :func:`rerank.auto` returns."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.html import shown

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class Selection:
    """Result of :func:`rerank.auto`.

    Attributes:
        folder: its folder; ``best/`` in it is the chosen ranker.
        chosen: the candidate that was chosen.
        table: a row per candidate, the first stage first: ``candidate``; ``validation``, the mean over the validation
            queries, out of fold if something was tuned; ``p`` of a model, with Holm's correction; ``test``, the mean
            over the test queries; ``difference`` from the first stage, on the test queries if there are any, and its
            95 % interval, ``low`` to ``high``; ``ms`` per query, of its models and embedding models; ``weights``.
        notes: facts about the numbers and the data.
    """

    folder: Path
    chosen: str
    table: DataFrame
    notes: list[str]

    def _shown(self) -> DataFrame:
        """Drop empty columns, and mark the best candidate."""
        best = self.table["candidate"] == self.chosen
        table = self.table.assign(candidate=best.map({True: "* ", False: "  "}) + self.table["candidate"])
        return table.drop(columns="weights").dropna(axis="columns", how="all")

    def __str__(self) -> str:
        width = max(map(len, self.table["candidate"])) + 2
        forms: dict[str, Any] = {"candidate": f"{{:<{width}}}".format, "ms": "{:.0f}".format}
        table = self._shown().to_string(index=False, na_rep="", float_format="{:.4f}".format, formatters=forms)
        return "\n".join([table, "", *(line for note in self.notes for line in textwrap.wrap(note, 100))])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return shown(f"best: {self.chosen}", self._shown())
