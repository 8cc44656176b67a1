"""What the service says of itself at ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rerank import __version__
from rerank.serving.limits import Limits

PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
"""Where scores are asked for: the same everywhere, as clients have one of these built in."""

GETS = {
    "/health": "Whether it answers",
    "/info": "Its rankers, what they read, and its limits",
    "/metrics": "Counts, for Prometheus",
}
REFUSALS = {
    400: "Something in the body is missing or wrong",
    401: "No key, or another one",
    404: "No such ranker",
    408: "The body did not arrive in time",
    413: "Too many documents, characters or bytes",
    429: "Too many requests wait",
    503: "No scores in time",
}
TEXT, SWITCH, COUNT, NUMBER = ({"type": name} for name in ("string", "boolean", "integer", "number"))


def description(names: Sequence[str], limits: Limits, key: bool) -> dict[str, Any]:
    """The paths, bodies and answers, in OpenAPI 3.1."""
    item = {"anyOf": [TEXT, {"type": "object", "properties": {"text": TEXT}}]}
    documents = _list(item) | {"minItems": 1, "maxItems": limits.documents}
    more = {"model": TEXT | {"enum": list(names)}, "top_n": COUNT | {"minimum": 1}, "raw_scores": SWITCH}
    usual = _object({"query": TEXT, "documents": documents}, more | {"return_documents": SWITCH})
    tei = _object({"query": TEXT, "texts": documents}, more | {"return_text": SWITCH})
    results = _list(_object({"index": COUNT, "relevance_score": NUMBER}, {"document": {}}))
    answer = _object({"id": TEXT, "object": TEXT, "model": TEXT, "results": results})
    scores = _list(_object({"index": COUNT, "score": NUMBER}, {"text": TEXT}))
    refusal = _content(_object({"message": TEXT}))
    post = {
        "summary": "Score documents for a query, best first",
        "requestBody": {"required": True} | _content({"anyOf": [usual, tei]}),
        "responses": {"200": {"description": "Scores, best first"} | _content({"anyOf": [answer, scores]})}
        | {str(status): {"description": why} | refusal for status, why in REFUSALS.items()},
    }
    gets = {path: {"get": {"summary": why, "responses": {"200": {"description": why}}}} for path, why in GETS.items()}
    paths = {path: {"post": post} for path in PATHS} | gets
    found: dict[str, Any] = {"openapi": "3.1.0", "info": {"title": "rerank", "version": __version__}, "paths": paths}
    if key:
        scheme = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        found |= {"components": scheme, "security": [{"key": []}]}
    return found


def _object(required: dict[str, Any], more: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", "properties": required | (more or {}), "required": list(required)}


def _list(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _content(schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {"application/json": {"schema": schema}}}
