"""Scores by a server that answers as Cohere's and Jina's do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np

from rerank.errors import UserError, one_line
from rerank.storage.arrow import Array

PATIENCE = 600.0
"""Seconds that an answer may take."""


def served_scores(url: str, query: str, documents: Sequence[str]) -> Array:
    """Scores ``[n]`` float32 of documents for a query by a server.

    It gets ``POST {"query", "documents", "top_n"}`` and answers ``{"results": [{"index", "relevance_score"}]}``.
    """
    body = {"query": query, "documents": list(documents), "top_n": len(documents)}
    request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    try:
        with urlopen(request, timeout=PATIENCE) as answer:
            said = answer.read()
    except HTTPError as error:
        why = one_line(error.read(1000).decode(errors="replace"))[:200]
        raise UserError(f"{url}: answers {len(documents)} documents by {error.code} {error.reason} ({why})") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{url}: cannot be reached ({one_line(error)}); is the server running?") from error
    try:
        content = json.loads(said)
        found = {int(entry["index"]): float(entry["relevance_score"]) for entry in content["results"]}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UserError(
            f'{url}: expected {{"results": [{{"index": 0, "relevance_score": 0.5}}]}}, not {said[:100]!r}'
        ) from error
    scores = np.array([found.get(i, np.nan) for i in range(len(documents))], dtype=np.float32)
    if lacking := int((~np.isfinite(scores)).sum()):
        raise UserError(f"{url}: has no number for {lacking} of {len(documents)} documents; rerank fewer with --depths")
    return scores


def is_url(word: Any) -> bool:
    """Whether a word is the address of a server."""
    return isinstance(word, str) and word.startswith(("http://", "https://"))
