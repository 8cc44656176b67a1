"""Scores of texts and feature vectors given directly, for the server and PyTerrier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rerank.errors import UserError
from rerank.kernels.precision import Precision
from rerank.models.mixed import Mixed, unmixed
from rerank.models.text.from_texts import TextScorer
from rerank.storage.arrow import Array


@dataclass(frozen=True)
class Question:
    """Inputs of a model for one query.

    Attributes:
        query: the query's text.
        texts: the documents' texts.
        columns: scores that are interpolated or started from, ``[n]``; NaN if missing.
        features: feature vectors in the model's order, ``[n, F]``.
        instruction: instruction for a text model with a place for one.
    """

    query: str
    texts: Sequence[str]
    columns: Mapping[str, Array] = field(default_factory=dict)
    features: Array | None = None
    instruction: str | None = None


def scores_of(
    model: Any, questions: Sequence[Question], budget: int | None = None, precision: Precision = "auto"
) -> list[Array]:
    """Compute the scores of each question's documents, ``[n]`` float32, as :meth:`predict` and ``rank`` do."""
    inner = unmixed(model)
    lengths = [len(question.texts) for question in questions]
    scores = np.zeros(sum(lengths), dtype=np.float32)
    if isinstance(inner, TextScorer):
        pairs = [(question.query, text) for question in questions for text in question.texts]
        each = [question.instruction for question in questions for _ in question.texts]
        scores = inner.text_scores(pairs, budget, precision, each if any(each) else None)
    elif inner is not None and len(scores):
        features = np.concatenate([question.features for question in questions if question.features is not None])
        options = {"budget": budget, "groups": lengths if len(lengths) > 1 else None}
        scores = inner.predict(features, **{name: value for name, value in options.items() if value is not None})
    found = np.split(scores, np.cumsum(lengths)[:-1])
    if isinstance(inner, TextScorer) and inner.start.columns:
        found = [inner.add_start(own, asked.columns) for own, asked in zip(found, questions, strict=True)]
    if isinstance(model, Mixed):
        given = [
            one.columns
            if one.features is not None and not any(one.texts)
            else model.with_cosines(one.query, one.texts, one.columns)
            for one in questions
        ]
        found = [model.mixed_given(columns, own) for own, columns in zip(found, given, strict=True)]
    for own in found:
        if not np.isfinite(own).all():
            raise UserError(f"document {np.isfinite(own).argmin()}: its score is {own[~np.isfinite(own)][0]}")
    return found
