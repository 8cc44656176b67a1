"""One training loop for every scorer, loss and kind of list."""

from __future__ import annotations
