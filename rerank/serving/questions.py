"""What is asked of a model about documents, and the scores of several such questions in one batch."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rerank.errors import UserError
from rerank.kernels.precision import Precision
from rerank.models.mixed import Mixed, unmixed
from rerank.models.text.from_texts import TextScorer
from rerank.storage.arrow import FLOAT32, Array


@dataclass(frozen=True)
class Question:
    """A query and its documents, as far as a model reads them.

    Attributes:
        columns: numbers of each column that is mixed in or started from, ``[n]``; NaN where there is none.
        features: ``[n, F]`` for a model of feature vectors, in the order in which it reads them.
    """

    query: str
    texts: Sequence[str]
    columns: Mapping[str, Array] = field(default_factory=dict)
    features: Array | None = None


def scores_of(
    model: Any, questions: Sequence[Question], budget: int | None = None, precision: Precision = "auto"
) -> list[Array]:
    """Scores of the documents of each question, ``[n]`` float32: those of :meth:`predict` and ``rank``."""
    inner = unmixed(model)
    lengths = [len(question.texts) for question in questions]
    scores = np.zeros(sum(lengths), dtype=np.float32)
    if isinstance(inner, TextScorer):
        pairs = [(question.query, text) for question in questions for text in question.texts]
        scores = inner.text_scores(pairs, budget, precision)
    elif inner is not None and len(scores):
        features = np.concatenate([question.features for question in questions if question.features is not None])
        options = {"budget": budget, "groups": lengths if len(lengths) > 1 else None}
        scores = inner.predict(features, **{name: value for name, value in options.items() if value is not None})
    found = np.split(scores, np.cumsum(lengths)[:-1])
    if isinstance(inner, TextScorer) and inner.start.columns:
        found = [inner.add_start(own, asked.columns) for own, asked in zip(found, questions, strict=True)]
    if isinstance(model, Mixed):
        given = [
            model.with_cosines(one.query, one.texts, one.columns) if one.features is None else one.columns
            for one in questions
        ]
        found = [model.mixed_given(columns, own) for own, columns in zip(found, given, strict=True)]
    for own in found:
        if not np.isfinite(own).all():
            raise UserError(f"document {np.isfinite(own).argmin()}: its score is {own[~np.isfinite(own)][0]}")
    return found


def checked_text(value: Any, where: str, hint: str = "") -> str:
    """A text that can be encoded."""
    if not isinstance(value, str):
        raise UserError(f"{where}: expected a text, not {reprlib.repr(value)}{hint}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: has half of a character at {error.start}, {value[error.start]!r}") from error
    return value


def checked_numbers(values: Any, where: str) -> Array:
    """``[n]`` float32, NaN where there is null."""
    if not isinstance(values, list):
        raise UserError(f"{where}: expected a list of numbers, not {reprlib.repr(values)}")
    for i, value in enumerate(values):
        number = type(value) in (int, float) and (value != value or abs(value) <= FLOAT32)
        if not (number or value is None):
            raise UserError(f"{where}: value {i} is {reprlib.repr(value)}; expected a number of float32, or null")
    return np.array(values, dtype=np.float32)
