"""Items in batches; from Python 3.12 on this is `itertools.batched`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items as they come, ``size`` at a time; the last batch may have fewer."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
