"""Scores of texts and feature vectors given directly, for the server and PyTerrier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rerank.errors import UserError
from rerank.kernels.precision import Precision
from rerank.models.interpolated import Interpolated, inner_model
from rerank.models.text.cross_encoder import CrossEncoder
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
    inner = inner_model(model)
    lengths = [len(question.texts) for question in questions]
    scores = np.zeros(sum(lengths), dtype=np.float32)
    if isinstance(inner, CrossEncoder):
        pairs = [(question.query, text) for question in questions for text in question.texts]
        each = [question.instruction for question in questions for _ in question.texts]
        scores = inner.text_scores(pairs, budget, precision, each if any(each) else None)
    elif inner is not None and len(scores):
        features = np.concatenate([question.features for question in questions if question.features is not None])
        options: dict[str, Any] = {"groups": lengths} | ({} if budget is None else {"budget": budget})
        scores = inner.predict(features, **options)
    found = []
    for question, own in zip(questions, np.split(scores, np.cumsum(lengths)[:-1]), strict=True):
        if isinstance(inner, CrossEncoder) and inner.start.columns:
            own = inner.add_start(own, question.columns)
        if isinstance(model, Interpolated):
            given = question.columns
            if any(question.texts) or question.features is None:
                given = model.with_cosines(question.query, question.texts, given)
            own = model.interpolate_given(given, own)
        if not np.isfinite(own).all():
            raise UserError(f"document {np.isfinite(own).argmin()}: its score is {own[~np.isfinite(own)][0]}")
        found.append(own)
    return found
