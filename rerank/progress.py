"""Progress bars: in a terminal, in notebooks as a widget where there are any, nowhere else."""

from __future__ import annotations

import logging
import sys
from importlib.util import find_spec
from typing import Any

from tqdm import tqdm as terminal


def in_notebook() -> bool:
    """Whether this process answers a notebook's cells: IPython's kernel sits in it."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def tqdm(*args: Any, disable: bool | None = None, **options: Any) -> Any:
    """A bar of tqdm, its arguments the same; none where the logger ``rerank`` is told to be quieter than INFO.

    A notebook's streams are no terminals, so that ``disable=None`` would hide the bar there.

    Args:
        args: as tqdm takes them.
        disable: True for no bar; None for one where somebody can see it move.
        options: as tqdm takes them.
    """
    kind: Any = terminal
    if disable is None and logging.getLogger("rerank").level > logging.INFO:
        disable = True
    if not in_notebook():
        return kind(*args, disable=disable, **options)
    if find_spec("ipywidgets"):
        from tqdm.notebook import tqdm as widget

        kind = widget
    return kind(*args, disable=bool(disable), **options)
