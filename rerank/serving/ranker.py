"""Rankers of a service: inputs from requests, scores, answers."""

from __future__ import annotations

import json
import math
import reprlib
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from rerank.errors import UserError
from rerank.kernels.precision import Precision
from rerank.lists.columns import as_name
from rerank.models.load import Interpolated, inner_model, load_model
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.scoring.outputs import run_name
from rerank.scoring.shared import placed
from rerank.storage.arrow import FLOAT32, Array

FIELDS: dict[str, tuple[type, str]] = {
    "model": (str, "a text"),
    "query": (str, "a text"),
    "instruction": (str, "a text"),
    "top_n": (int, "a whole number from 1"),
    "return_documents": (bool, "true or false"),
    "return_text": (bool, "true or false"),
    "raw_scores": (bool, "true or false"),
}

ONLY_BEHAVIOUR: dict[str, tuple[Any, ...]] = {
    "rank_fields": ([], ["text"]),
    "return_embeddings": (False,),
    "truncate": (True,),
    "truncation_direction": ("right", "Right"),
}
"""Values of other services' fields that ask for our only behaviour."""


class Ranker:
    """A ranker of texts, or a fusion of columns, that is ready to score."""

    def __init__(
        self,
        name: str,
        folder: str,
        precision: Precision = "auto",
        budget: int | None = None,
        instruction: str | None = None,
    ) -> None:
        model = load_model(folder, instruction=instruction)
        inner = inner_model(model)
        if not (inner is None or isinstance(inner, CrossEncoder)):
            raise UserError(f"rankers: {folder} reads features, not texts; rank lists with it: `rerank rerank`")
        self.name, self.model, self.precision, self.budget = name, model, placed(model, precision), budget
        self.reads_instructions = inner is not None
        self.cosines: list[str] = list(model.cosines) if isinstance(model, Interpolated) else []
        self.reads_text = inner is not None or bool(self.cosines)
        self.columns = list(model.given)
        if inner is not None:  # kernels are chosen at the first scores, which no request waits for
            columns = {name: [0.0] for name in inner.given}
            inner.scores_of("first", ["scores"], columns, budget=budget, precision=self.precision)

    def scores(self, body: Body) -> Array:
        """Compute raw scores of a request's documents, ``[n]`` float32."""
        if body.instruction is not None and not self.reads_instructions:
            raise UserError(f"instruction: {self.name} reads none; leave it out")
        if self.reads_text and None in body.texts:
            raise UserError(f"documents: number {body.texts.index(None)}: expected a text, or an object with one")
        given = [name for name in self.cosines if any(name in document for document in body.objects)]
        columns = {name: self._column(name, body.objects) for name in [*self.columns, *given]}
        texts = [text or "" for text in body.texts]
        return self.model.scores_of(
            body.query, texts, columns, body.instruction, budget=self.budget, precision=self.precision
        )

    def _column(self, name: str, documents: Sequence[Mapping[str, Any]]) -> Array:
        """Read a column of the documents, ``[n]`` float32; NaN if a document has no such field, or null."""
        values = [document.get(name) for document in documents]
        if not any(name in document for document in documents):
            raise UserError(
                f'documents: the ranker reads column {name}; give them as {{"text": "…", "{name}": 12.1}}, null or no '
                "such field where a system did not return one"
            )
        for i, value in enumerate(values):
            if not (value is None or (type(value) in (int, float) and abs(value) <= FLOAT32)):
                shown = f"value {i} is {reprlib.repr(value)}; expected a number of float32, or null"
                raise UserError(f"documents: {name}: {shown}")
        return np.array(values, dtype=np.float32)


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


class Body:
    """A request's body, in Cohere's and Jina's shape, or (``tei``) in that of text-embeddings-inference.

    Fields that would change the answer and are not supported are errors.
    """

    def __init__(self, content: bytes) -> None:
        try:
            fields = json.loads(content, parse_constant=_refuse_constant, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            raise UserError(f"body: not JSON ({str(error)[:200]}); send an object with query and documents") from error
        if not isinstance(fields, dict):
            raise UserError("body: not a JSON object; send one with query and documents")
        self.tei = "texts" in fields and "documents" not in fields
        documents, returned = ("texts", "return_text") if self.tei else ("documents", "return_documents")
        for name, value in fields.items():
            if name in FIELDS and not (type(value) is FIELDS[name][0] or (value is None and name != "query")):
                raise UserError(f"{name}: expected {FIELDS[name][1]}, not {reprlib.repr(value)}")
            if name not in (*FIELDS, documents) and value is not None and value not in ONLY_BEHAVIOUR.get(name, ()):
                raise UserError(f"{name[:100]}: {reprlib.repr(value)} is not supported; leave it out")
        if not isinstance(fields.get(documents), list) or not fields[documents]:
            raise UserError(f"{documents}: expected texts or objects, not {reprlib.repr(fields.get(documents))}")
        if "query" not in fields:
            raise UserError("query: missing; send a text")
        self.objects = [one if isinstance(one, dict) else {"text": one} for one in fields[documents]]
        self.texts: list[str | None] = [one.get("text") for one in self.objects]
        for i, (one, text) in enumerate(zip(self.objects, self.texts, strict=True)):
            if "text" in one and not isinstance(text, str):
                shown = f"expected a text, or an object with one, not {reprlib.repr(text)}"
                raise UserError(f"{documents}: number {i}: {shown}")
        if (top := fields.get("top_n")) is not None and top < 1:
            raise UserError(f"top_n: expected a whole number from 1, not {top}")
        self.query: str = fields["query"]
        self.model: str | None = fields.get("model")
        self.instruction: str | None = fields.get("instruction")
        try:
            "\n".join([self.query, *filter(None, self.texts), self.instruction or ""]).encode()
        except UnicodeEncodeError as error:
            raise UserError("query, documents: unpaired surrogates such as \\ud800 are not text") from error
        self.top_n: int | None = top
        self.with_documents, self.raw = bool(fields.get(returned)), bool(fields.get("raw_scores"))

    def answer(self, ranker: Ranker, scores: Array) -> Any:
        """Sort documents, best first; equal scores keep the order of the documents."""
        order = np.argsort(-scores, kind="stable")[: self.top_n].tolist()
        calibration = None if self.raw else ranker.model.calibration
        shown = (scores if calibration is None else calibration(scores)).tolist()
        if self.tei:
            returned = [{"text": self.texts[i]} if self.with_documents else {} for i in order]
            return [{"index": i, "score": shown[i], **text} for i, text in zip(order, returned, strict=True)]
        results: list[dict[str, Any]] = [{"index": i, "relevance_score": shown[i]} for i in order]
        if self.with_documents:
            for result in results:
                result["document"] = self.objects[result["index"]]
        return {"id": uuid.uuid4().hex, "object": "list", "model": ranker.name, "results": results}


def _finite(text: str) -> float:
    return float(text) if math.isfinite(float(text)) else _refuse_constant(text)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
