"""Reranking for programs in any language: one JSON object per line in, one per line out (``rerank rerank --stdin``)."""

from __future__ import annotations

import json
import reprlib
from collections.abc import Iterable, Mapping
from typing import IO, Any, Literal

import numpy as np

from rerank.errors import UserError, nearest
from rerank.models.base import Model
from rerank.models.mixed import Mixed, unmixed
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.progress import log
from rerank.serving.ranker import Question, checked_numbers, checked_text, scores_of
from rerank.settings.ranges import Count, check_value
from rerank.storage.arrow import Array

TEXTS, FEATURES = '{"query": "...", "documents": ["...", "..."]}', '{"features": [[0.5, 1], [0, 2]]}'
"""Lines as they may be."""


def answer_lines(
    model: Model,
    lines: Iterable[str | bytes],
    out: IO[str],
    token_budget: int | None = None,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
) -> int:
    """Answer every line with a line, in order, before the next one is read; returns how many could not be answered.

    A question has ``query`` and ``documents``, texts or objects with ``text`` (and ``id``; other keys are passed over);
    for a ranker that mixes, or a model that starts from columns, also ``columns`` (``{"bm25": [12.1, 9.8]}``, null
    where a system did not return a document). For a model of feature vectors it has ``features``, a list of numbers for
    each document. ``top_k`` limits the answer, ``request`` is returned unchanged. The answer has ``ranking``, best
    first: ``index``, ``score``, and the ``id`` where one was given. A line that cannot be answered, whatever it holds,
    gets ``{"error": "…"}``; the lines after it are still answered.
    """
    from rerank.scoring.shared import check_scoring

    check_value("token_budget", token_budget, Count | None)
    check_scoring(model, precision, token_budget)
    failed = 0
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            answer = _answer(model, line, token_budget, precision)
        except Exception as error:
            if not isinstance(error, UserError):  # a fault of ours, or no memory: no reason to leave others waiting
                log.exception("line %d", number)
            failed += 1
            reason = error if isinstance(error, UserError) else f"{type(error).__name__} ({error})"
            answer = json.dumps({"error": f"line {number}: {reason}"})
        out.write(answer + "\n")
        out.flush()
    return failed


def _answer(model: Any, line: str | bytes, budget: int | None, precision: Any) -> str:
    inner = unmixed(model)
    text = inner if isinstance(inner, CrossEncoder) else None
    reads, example = (("query", "documents"), TEXTS) if inner is text else (("features",), FEATURES)
    columns = ("columns",) if isinstance(model, Mixed) or (text and text.start.columns) else ()
    keys = (*reads, *columns, "top_k", "request")
    try:
        asked = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"not JSON ({error}); expected a line like {example}") from error
    if not isinstance(asked, dict):
        raise UserError(f"not a JSON object; expected a line like {example}")
    for key in asked:
        if key not in keys:
            raise UserError(f"{key}: this model reads no such key{nearest(key, keys)}; a line is like {example}")
    top = asked.get("top_k")
    if top is not None and (type(top) is not int or top < 1):
        raise UserError(f"top_k: expected a whole number from 1, not {reprlib.repr(top)}")
    ids, question = _of_texts(asked) if inner is text else _of_features(asked)
    (scores,) = scores_of(model, [question], budget, precision)
    order = np.argsort(-scores, kind="stable")[:top].tolist()
    ranking = [{"index": i, "score": float(scores[i])} | ({} if ids[i] is None else {"id": ids[i]}) for i in order]
    answer = ({"request": asked["request"]} if "request" in asked else {}) | {"ranking": ranking}
    try:
        shown = json.dumps(answer, ensure_ascii=False, allow_nan=False)
        shown.encode()
    except ValueError as error:
        raise UserError(
            f"request, or an id: cannot be returned, as NaN, Infinity and half characters are no JSON ({error})"
        ) from error
    return shown


def _of_texts(asked: Mapping[str, Any]) -> tuple[list[Any], Question]:
    """Ids and a question for a cross-encoder, or for columns alone."""
    hint = f"; a line is like {TEXTS}"
    query, documents = checked_text(asked.get("query"), "query", hint), asked.get("documents")
    if not isinstance(documents, list):
        raise UserError(f"documents: expected a list of texts, not {reprlib.repr(documents)}{hint}")
    texts, ids = [], []
    for i, document in enumerate(documents):
        text, id = (document.get("text"), document.get("id")) if isinstance(document, dict) else (document, None)
        texts.append(checked_text(text, f"documents: number {i}", hint))
        ids.append(id)
    return ids, Question(query, texts, _columns(asked))


def _of_features(asked: Mapping[str, Any]) -> tuple[list[Any], Question]:
    """Ids, which there are none of, and a question for a model of feature vectors."""
    features = asked.get("features")
    if not isinstance(features, list):
        was = f"not {reprlib.repr(features)}; a line is like {FEATURES}"
        raise UserError(f"features: expected a list of numbers for each document, {was}")
    rows = [checked_numbers(row, f"features: number {i}") for i, row in enumerate(features)]
    if len({len(row) for row in rows}) > 1:
        raise UserError("features: expected as many numbers for each document")
    return [None] * len(rows), Question("", [""] * len(rows), _columns(asked), np.stack(rows) if rows else None)


def _columns(asked: Mapping[str, Any]) -> dict[str, Array]:
    columns = asked.get("columns")
    if columns is None:
        return {}
    if not isinstance(columns, dict):
        raise UserError(f'columns: expected an object such as {{"bm25": [12.1]}}, not {reprlib.repr(columns)}')
    return {name: checked_numbers(values, f"columns: {name}") for name, values in columns.items()}
