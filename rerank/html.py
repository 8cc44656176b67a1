"""How objects show themselves in notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

ROWS = 10
"""Rows that are shown."""


def shown(title: str, frame: pd.DataFrame, rows: int = ROWS) -> str:
    """A line and the first rows of a table, long texts cut."""
    import pandas as pd

    left = len(frame) - rows
    more = f"<div>… {left} more rows; <code>to_dataframe()</code> has all</div>" if left > 0 else ""
    with pd.option_context("display.max_colwidth", 80):
        table = frame.head(rows).to_html(index=False, na_rep="", border=0)
    return f"<div><b>{escape(title)}</b></div>{table}{more}"
