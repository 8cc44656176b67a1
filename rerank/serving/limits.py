"""Limits of a service."""

from __future__ import annotations

from dataclasses import dataclass

from rerank.settings.ranges import Count, Positive, check_arguments


@dataclass(frozen=True)
class Limits:
    """Limits of a service; requests beyond one get the status in brackets.

    Attributes:
        documents: documents of a request at most (413).
        body: bytes of a request at most (413).
        queue: requests that are read, wait or are scored at once at most (429).
        timeout: seconds from a request's head to its answer at most (408 while it is being sent, 503 afterwards).
    """

    documents: Count = 1000
    body: Count = 2 << 20
    queue: Count = 64
    timeout: Positive = 60.0

    def __post_init__(self) -> None:
        check_arguments(Limits, vars(self))
