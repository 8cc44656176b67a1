"""Rankers of a service: inputs from requests, scores, answers."""

from __future__ import annotations

import json
import reprlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import UserError
from rerank.kernels.precision import Precision
from rerank.lists.columns import as_name
from rerank.models.base import RanksTexts
from rerank.models.interpolated import Interpolated, inner_model
from rerank.models.load import load_model
from rerank.models.scorer import Scorer
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.scoring.outputs import run_name
from rerank.scoring.shared import placed
from rerank.storage.arrow import FLOAT32, Array

FEATURES = "features"
"""Field of a document with the vector that a model reads."""

FIELDS: dict[str, tuple[type, str]] = {
    "model": (str, "a text"),
    "query": (str, "a text"),
    "instruction": (str, "a text"),
    "top_n": (int, "a whole number from 1"),
    "return_documents": (bool, "true or false"),
    "return_text": (bool, "true or false"),
    "raw_scores": (bool, "true or false"),
}

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "rank_fields": ([], ["text"]),
    "return_embeddings": (False,),
    "truncate": (True,),
    "truncation_direction": ("right", "Right"),
}
"""Values of other services' fields that ask for our only behaviour."""


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
    columns: Mapping[str, Array]
    features: Array | None = None
    instruction: str | None = None


class Ranker:
    """A trained ranker that is ready to score."""

    def __init__(
        self,
        name: str,
        folder: str,
        precision: Precision = "auto",
        budget: int | None = None,
        instruction: str | None = None,
    ) -> None:
        self.name, self.model = name, load_model(folder, instruction=instruction)
        self.inner = inner_model(self.model)
        self.precision = placed(self.model, precision)
        self.budget = budget if isinstance(self.inner, Scorer) else None
        self.cosines = list(self.model.cosines) if isinstance(self.model, Interpolated) else []
        self.reads_text = isinstance(self.inner, CrossEncoder) or bool(self.cosines)
        starts = self.inner.start.columns if isinstance(self.inner, CrossEncoder) else []
        self.columns = self.model.needs() if isinstance(self.model, Interpolated) else starts
        self.features = list(getattr(self.inner, "names", ()))
        if isinstance(self.inner, CrossEncoder):  # kernels are chosen at the first scores, which no request waits for
            self.inner.text_scores([("first", "scores")], budget, self.precision)

    def about(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": "Fusion" if self.inner is None else type(self.inner).__name__,
            "reads_text": self.reads_text,
            "calibrated": self.model.calibration is not None,
            "columns": self.columns,
            "features": self.features,
        }

    def question(self, query: str, documents: Sequence[Any], instruction: str | None = None) -> Question:
        """Read the model's inputs from a query and documents, which are texts or objects."""
        if instruction is not None and not isinstance(self.inner, CrossEncoder):
            raise UserError(f"instruction: {self.name} reads none; leave it out")
        objects = [document if isinstance(document, dict) else {"text": document} for document in documents]
        texts: list[Any] = [one.get("text", None if self.reads_text else "") for one in objects]
        for i, text in enumerate(texts):
            if not isinstance(text, str):
                raise UserError(
                    f"documents: number {i}: expected a text, or an object with one, not {reprlib.repr(text)}"
                )
        try:
            "\n".join([query, *texts, instruction or ""]).encode()
        except UnicodeEncodeError as error:
            raise UserError("query, documents: unpaired surrogates such as \\ud800 are not text") from error
        given = [name for name in self.cosines if any(name in one for one in objects)]
        columns = {name: self._column(name, objects) for name in [*self.columns, *given]}
        features = np.stack([self._vector(one, i) for i, one in enumerate(objects)]) if self.features else None
        return Question(query, texts, columns, features, instruction)

    def _column(self, name: str, documents: Sequence[Mapping[str, Any]]) -> Array:
        if not any(name in document for document in documents):
            raise UserError(
                f'documents: the ranker reads column {name}; give them as {{"text": "…", "{name}": 12.1}}, null or no '
                "such field where a system did not return one"
            )
        return _numbers([document.get(name) for document in documents], f"documents: {name}")

    def _vector(self, document: Mapping[str, Any], i: int) -> Array:
        """Read a document's vector ``[F]``, in the order of ``names``."""
        values = document.get(FEATURES)
        if not isinstance(values, list) or len(values) != len(self.features):
            raise UserError(
                f"documents: number {i}: the ranker reads {FEATURES}, a list of {len(self.features)} numbers in the "
                "order of GET /info"
            )
        return _numbers(values, f"documents: number {i}: {FEATURES}")

    def scores(self, question: Question) -> Array:
        """Compute raw scores of a question's documents, ``[n]`` float32."""
        asked = question.query, question.texts, question.columns
        if question.features is None:
            assert isinstance(self.model, RanksTexts)
            return self.model.scores_of(*asked, question.instruction, budget=self.budget, precision=self.precision)
        options = {} if self.budget is None else {"budget": self.budget}
        assert self.inner is not None
        scores: Array = self.inner.predict(question.features, **options)
        if isinstance(self.model, Interpolated):
            scores = self.model.interpolate_given(self.model.with_cosines(*asked), scores)
        return scores


def named(rankers: Sequence[str]) -> dict[str, str]:
    """Map rankers' names to their folders, from ``NAME=FOLDER`` or ``FOLDER``."""
    folders: dict[str, str] = {}
    for word in rankers:
        name, equals, folder = word.partition("=")
        if not equals or Path(word).exists():
            name, folder = run_name(word), word
        name = as_name(name)  # without what would break a label of the metrics
        if name in folders:
            raise UserError(f"{word}: there is a ranker {name!r} already; call it NAME={folder}")
        folders[name] = folder
    if not folders:
        raise UserError("rankers: empty; name a ranker's folder")
    return folders


def _numbers(values: list[Any], where: str) -> Array:
    """Convert a list of numbers to float32, ``[n]``; null becomes NaN."""
    for i, value in enumerate(values):
        if not (value is None or (type(value) in (int, float) and abs(value) <= FLOAT32)):
            raise UserError(f"{where}: value {i} is {reprlib.repr(value)}; expected a number of float32, or null")
    return np.array(values, dtype=np.float32)


class Body:
    """A request's body, in Cohere's and Jina's shape, or (``tei``) in that of text-embeddings-inference.

    Fields that would change the answer and are not supported are errors.
    """

    def __init__(self, content: bytes) -> None:
        try:
            fields = json.loads(content, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise UserError(f"body: not JSON ({str(error)[:200]}); send an object with query and documents") from error
        if not isinstance(fields, dict):
            raise UserError("body: not a JSON object; send one with query and documents")
        self.tei = "texts" in fields and "documents" not in fields
        documents, returned = ("texts", "return_text") if self.tei else ("documents", "return_documents")
        for name, value in fields.items():
            if name in FIELDS and not (type(value) is FIELDS[name][0] or (value is None and name != "query")):
                raise UserError(f"{name}: expected {FIELDS[name][1]}, not {reprlib.repr(value)}")
            if name not in (*FIELDS, documents) and value is not None and value not in NEUTRAL.get(name, ()):
                raise UserError(f"{name[:100]}: {reprlib.repr(value)} is not supported; leave it out")
        if not isinstance(fields.get(documents), list) or not fields[documents]:
            raise UserError(f"{documents}: expected texts or objects, not {reprlib.repr(fields.get(documents))}")
        if "query" not in fields:
            raise UserError("query: missing; send a text")
        if (top := fields.get("top_n")) is not None and top < 1:
            raise UserError(f"top_n: expected a whole number from 1, not {top}")
        self.query: str = fields["query"]
        self.documents: list[Any] = fields[documents]
        self.model: str | None = fields.get("model")
        self.instruction: str | None = fields.get("instruction")
        self.top_n: int | None = top
        self.with_documents, self.raw = bool(fields.get(returned)), bool(fields.get("raw_scores"))

    def answer(self, ranker: Ranker, texts: Sequence[str], scores: Array) -> Any:
        """Sort documents, best first; equal scores keep the order of the documents."""
        order = np.argsort(-scores, kind="stable")[: self.top_n].tolist()
        calibration = None if self.raw else ranker.model.calibration
        shown = (scores if calibration is None else calibration(scores)).tolist()
        if self.tei:
            return [
                {"index": i, "score": shown[i]} | ({"text": texts[i]} if self.with_documents else {}) for i in order
            ]
        results: list[dict[str, Any]] = [{"index": i, "relevance_score": shown[i]} for i in order]
        if self.with_documents:
            for result in results:
                document = self.documents[result["index"]]
                result["document"] = document if isinstance(document, dict) else {"text": document}
        return {"id": uuid.uuid4().hex, "object": "list", "model": ranker.name, "results": results}


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
