"""Errors that the user can fix, with messages of one line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib import import_module
from typing import Any


class UserError(ValueError):
    """An error that the user can fix; the command line prints it as one line and exits with code 2.

    The message gives the place (``file:line`` or the option), the fault, and the remedy. In Python it is a ValueError.

    >>> import rerank
    >>> try:
    ...     rerank.LambdaLoss(measure="nDCG10")
    ... except rerank.UserError as error:
    ...     print(error)
    measure 'nDCG10': cannot train on 'nDCG10' (did you mean 'nDCG'?)
    """


class NotFoundError(UserError, FileNotFoundError):
    """A missing file or folder; in Python it is a FileNotFoundError, too.

    >>> try:
    ...     raise NotFoundError("runs/x: no such folder")
    ... except FileNotFoundError as error:
    ...     print(error)
    runs/x: no such folder
    """


def one_line(error: object) -> str:
    r"""Put the message of a library's error on one line.

    >>> one_line(ValueError("Couldn't deserialize thrift:\nInvalid data\n"))
    "Couldn't deserialize thrift: Invalid data"
    """
    return " ".join(str(error).split())


def needed(what: str, package: str, extra: str) -> Any:
    """Import an optional package; if it is not installed, the error names the extra that installs it."""
    try:
        return import_module(package)
    except ImportError as error:
        raise UserError(f"{what} needs {package}; pip install 'rerank-direct[{extra}]'") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """Suggest a known name, to append to an error about an unknown one; empty if none is close.

    Names that begin or end with ``name`` come first, in their order.

    >>> nearest("SmoothI", ["LambdaLoss", "SmoothINDCG"])
    " (did you mean 'SmoothINDCG'?)"
    """
    names, lower = list(known), name.lower()
    ends = (str.startswith, str.endswith)
    matches = [one for one in names if one.lower() == lower]
    matches += [one for matching in ends for one in names if len(name) > 2 and matching(one.lower(), lower)]
    letters = difflib.get_close_matches(lower, [one.lower() for one in names], n=1, cutoff=0.75)
    matches += [one for one in names if one.lower() in letters]
    return f" (did you mean {matches[0]!r}?)" if matches else ""
