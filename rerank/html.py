"""HTML of objects in notebooks, and texts in Markdown."""

from __future__ import annotations

import re
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

ROWS = 10
"""Largest number of rows to show."""

_MARKDOWN = re.compile(r"[|`*\\~]|(?<!\w)_|_(?!\w)|<(?=[A-Za-z/!?])|&(?=#?\w+;)|(?<=\])[(\[]")
"""Start of a tag, an entity, a link or emphasis, but not a sign such as in ``<0.0001``."""

_SIGNS = {"&": "&amp;", "<": "&lt;"}


def in_markdown(text: str) -> str:
    r"""Escape a text for Markdown.

    >>> in_markdown("a|b <script> p < 0.05")
    'a\\|b &lt;script> p < 0.05'
    """
    return _MARKDOWN.sub(lambda sign: _SIGNS.get(sign[0], f"\\{sign[0]}"), text)


def shown(title: str, frame: pd.DataFrame) -> str:
    """Render a title and the first rows of a table, with long texts cut."""
    import pandas as pd

    left = len(frame) - ROWS
    more = f"<div>… {left} more rows; <code>to_dataframe()</code> has all</div>" if left > 0 else ""
    with pd.option_context("display.max_colwidth", 80):
        table = frame.head(ROWS).to_html(index=False, na_rep="", border=0)
    return f"<div><b>{escape(title)}</b></div>{table}{more}"
