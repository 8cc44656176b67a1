"""The bodies of requests and answers: Cohere's and Jina's, which agree, and that of text-embeddings-inference."""

from __future__ import annotations

import json
import reprlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rerank.errors import UserError
from rerank.serving.questions import checked_text
from rerank.storage.arrow import Array


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        with_documents: whether their texts (objects, where they came as such) are returned, too.
        tei: whether the body is that of text-embeddings-inference, and so the answer.
    """

    model: str | None
    query: str
    documents: list[Any]
    top_n: int | None
    with_documents: bool
    raw: bool
    tei: bool


def read_body(body: bytes) -> Asked:
    """What a body asks for. Keys that are not known are passed over, as other services do."""
    try:
        content = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON ({str(error)[:200]}); expected an object with query and documents") from error
    if not isinstance(content, dict):
        raise UserError("not a JSON object; expected one with query and documents")
    tei = "texts" in content and "documents" not in content
    key = "texts" if tei else "documents"
    documents, top, model = content.get(key), content.get("top_n"), content.get("model")
    if not isinstance(documents, list) or not documents:
        raise UserError(f"{key}: expected a list of at least one text or object, not {reprlib.repr(documents)}")
    if top is not None and (type(top) is not int or top < 1):
        raise UserError(f"top_n: expected a whole number from 1, not {reprlib.repr(top)}")
    if model is not None and not isinstance(model, str):
        raise UserError(f"model: expected a name, not {reprlib.repr(model)}")
    if content.get("rank_fields") not in (None, [], ["text"]):
        raise UserError("rank_fields: only text is read; join the fields to one text")
    switches = ("return_text" if tei else "return_documents", "raw_scores")
    for name in switches:
        if content.get(name) is not None and not isinstance(content[name], bool):
            raise UserError(f"{name}: expected true or false, not {reprlib.repr(content[name])}")
    returned, raw = (bool(content.get(name)) for name in switches)
    return Asked(model, checked_text(content.get("query"), "query"), documents, top, returned, raw, tei)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def answer(asked: Asked, model: str, texts: Sequence[str], scores: Array, shown: Array) -> Any:
    """The answer, best first; equal scores keep the order of the documents."""
    order = np.argsort(-scores, kind="stable")[: asked.top_n].tolist()
    if asked.tei:
        return [
            {"index": i, "score": float(shown[i])} | ({"text": texts[i]} if asked.with_documents else {}) for i in order
        ]
    results = [{"index": i, "relevance_score": float(shown[i])} for i in order]
    if asked.with_documents:
        for result in results:
            document = asked.documents[result["index"]]
            result["document"] = document if isinstance(document, dict) else {"text": document}
    return {"id": uuid.uuid4().hex, "object": "list", "model": model, "results": results}
