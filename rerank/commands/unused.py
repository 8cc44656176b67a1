"""Options without an effect are refused by the names that they have on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rerank.errors import UserError
from rerank.settings.help import option
from rerank.settings.ranges import check_unused


def refuse_unused(why: str, function: Callable[..., Any], **options: Any) -> None:
    """As :func:`check_unused`, by the names that options have on the command line."""
    try:
        check_unused(why, function, **options)
    except UserError as error:
        key, _, rest = str(error).partition(":")
        raise UserError(f"{option(key)}:{rest}") from error
