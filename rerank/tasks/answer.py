"""Reranking for programs in any language: one JSON object per line in, one per line out (``rerank rerank --stdin``)."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable
from typing import IO, Any

import numpy as np

from rerank.errors import UserError
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.tasks.forms import ModelLike

RIGHT = '{"query": "…", "documents": ["…", "…"]}'


def answer_lines(model: ModelLike, lines: Iterable[str], out: IO[str], token_budget: int | None = None) -> int:
    """Answer every line with a line, in order, before the next one is read.

    A question has ``query`` and ``documents``, texts or objects with ``text`` (and ``id``); for a model that starts
    from columns also ``columns`` (``{"bm25": [12.1, 9.8]}``); ``top_k`` limits the answer. For a model of feature
    vectors it has ``features``, a list of numbers for each document. The answer has ``ranking``, best first: ``index``,
    ``score``, and the ``id`` where one was given. ``request`` is returned unchanged. A line that cannot be answered
    gets ``{"error": "…"}``; the lines after it are still answered.

    Args:
        model: a model, or its folder.
        lines: the questions; blank lines are passed over.
        out: where the answers go.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; None for the model's own.

    Returns:
        How many lines could not be answered.
    """
    from rerank.models.base import Model
    from rerank.models.load import load_model

    loaded = model if isinstance(model, Model) else load_model(model)
    failed = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            answer = _answer(loaded, line, token_budget)
        except UserError as error:
            failed += 1
            answer = {"error": f"line {number}: {error}"}
        out.write(json.dumps(answer, ensure_ascii=False) + "\n")
        out.flush()
    return failed


def _answer(model: Any, line: str, budget: int | None) -> dict[str, Any]:
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON ({error}); expected a line like {RIGHT}") from error
    if not isinstance(asked, dict):
        raise UserError(f"not a JSON object; expected a line like {RIGHT}")
    top = asked.get("top_k")
    if top is not None and (not isinstance(top, int) or top < 1):
        raise UserError(f"top_k: expected a whole number from 1, not {top!r}")
    if isinstance(model, CrossEncoder):
        ids, scores = _texts(model, asked, budget)
    else:
        ids, scores = [None] * len(asked.get("features", [])), model.predict(asked.get("features"))
    order = np.argsort(-scores, kind="stable")[:top].tolist()
    ranking = [{"index": i, "score": float(scores[i])} | ({} if ids[i] is None else {"id": ids[i]}) for i in order]
    return ({"request": asked["request"]} if "request" in asked else {}) | {"ranking": ranking}


def _texts(model: CrossEncoder, asked: dict[str, Any], budget: int | None) -> tuple[list[Any], Any]:
    query, documents = asked.get("query"), asked.get("documents")
    if not isinstance(query, str):
        raise UserError(f"query: expected a text, not {reprlib.repr(query)}; a line is like {RIGHT}")
    if not isinstance(documents, list):
        raise UserError(f"documents: expected a list of texts, not {reprlib.repr(documents)}; a line is like {RIGHT}")
    texts: list[Any] = [document.get("text") if isinstance(document, dict) else document for document in documents]
    if wrong := [i for i, text in enumerate(texts) if not isinstance(text, str)]:
        raise UserError(f"documents: number {wrong[0]} has no text")
    scores = model.text_scores([(query, text) for text in texts], budget)
    if model.start is not None:
        columns = {
            name: [np.nan if value is None else value for value in values]
            for name, values in (asked.get("columns") or {}).items()
        }
        scores = model.add_start(scores, columns)
    return [document.get("id") if isinstance(document, dict) else None for document in documents], scores
