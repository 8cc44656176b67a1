"""Rankers of a service: inputs from requests, scores, answers."""

from __future__ import annotations

import json
import re
import reprlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from rerank.errors import UserError
from rerank.kernels.precision import Precision
from rerank.models.load import load_model
from rerank.models.mixed import Mixed, unmixed
from rerank.models.scorer import Scorer
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.scoring.outputs import run_name
from rerank.scoring.questions import Question, scores_of
from rerank.scoring.shared import placed
from rerank.storage.arrow import FLOAT32, Array

NAME = re.compile(r"[\w.:/+-]{1,100}")

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "rank_fields": ([], ["text"]),
    "return_embeddings": (False,),
    "truncate": (True,),
    "truncation_direction": ("right", "Right"),
}
"""Values of other services' fields that ask for our only behaviour."""


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
        inner = unmixed(self.model)
        self.precision = placed(self.model, precision)
        self.budget = budget if isinstance(inner, Scorer) else None
        self.cosines = list(self.model.cosines) if isinstance(self.model, Mixed) else []
        self.reads_text = isinstance(inner, CrossEncoder) or bool(self.cosines)
        starts = inner.start.columns if isinstance(inner, CrossEncoder) else []
        self.columns = self.model.needs() if isinstance(self.model, Mixed) else starts
        self.features: dict[str, list[str]] = {}  # the numbers that a model of feature vectors reads, by their columns
        for number in getattr(inner, "names", ()):
            self.features.setdefault(number.partition("/")[0], []).append(number)
        by_column = [number for numbers in self.features.values() for number in numbers]
        self._order = [by_column.index(number) for number in getattr(inner, "names", ())]
        if isinstance(inner, CrossEncoder):  # kernels are chosen at the first scores, which nobody shall wait for
            inner.text_scores([("first", "scores")], budget, self.precision)

    def about(self) -> dict[str, Any]:
        inner = unmixed(self.model)
        return {
            "name": self.name,
            "kind": "Fusion" if inner is None else type(inner).__name__,
            "reads_text": self.reads_text,
            "calibrated": self.model.calibration is not None,
            "columns": self.columns,
            "features": [name for names in self.features.values() for name in names],
        }

    def question(self, query: str, documents: Sequence[Any], instruction: str | None = None) -> Question:
        """Read the model's inputs from a query and documents, which are texts or objects."""
        if instruction is not None and not isinstance(unmixed(self.model), CrossEncoder):
            raise UserError(f"instruction: {self.name} reads none; leave it out")
        texts, objects = [], []
        for i, document in enumerate(documents):
            where = f"documents: number {i}"
            if not isinstance(document, dict):
                document = {"text": checked_text(document, where, ", or an object with a text")}
            text = document.get("text")
            texts.append(checked_text(text, f"{where}: text") if self.reads_text or text is not None else "")
            objects.append(document)
        given = [name for name in self.cosines if any(name in document for document in objects)]
        columns = {name: self._column(name, objects) for name in [*self.columns, *given]}
        features = np.stack([self._vector(one, i) for i, one in enumerate(objects)]) if self.features else None
        return Question(query, texts, columns, features, instruction)

    def _column(self, name: str, documents: Sequence[Mapping[str, Any]]) -> Array:
        if not any(name in document for document in documents):
            raise UserError(
                f'documents: the ranker reads column {name}; give them as {{"text": "…", "{name}": 12.1}}, null or no '
                "such field where a system did not return one"
            )
        return checked_numbers([document.get(name) for document in documents], f"documents: {name}")

    def _vector(self, document: Mapping[str, Any], i: int) -> Array:
        """Read a document's numbers in the model's order, ``[F]``, from a list per column or a field per number."""
        found: list[Any] = []
        for column, names in self.features.items():
            if column in document:
                given = document[column]
                values = given if isinstance(given, list) else [given]
            elif any(name in document for name in names):
                values = [document.get(name) for name in names]
            else:
                raise UserError(f"documents: number {i}: the ranker reads {column}, which it does not have")
            if len(values) != len(names):
                raise UserError(
                    f"documents: number {i}: {column} has {len(values)} numbers, the ranker reads {len(names)}"
                )
            found += values
        return checked_numbers(found, f"documents: number {i}")[self._order]

    def scores(self, question: Question) -> Array:
        """Compute raw scores of a question's documents, ``[n]`` float32."""
        return scores_of(self.model, [question], self.budget, self.precision)[0]


def named(rankers: Sequence[str]) -> dict[str, str]:
    """Map rankers' names to their folders, from ``NAME=FOLDER`` or ``FOLDER``."""
    folders: dict[str, str] = {}
    for word in rankers:
        name, equals, folder = word.partition("=")
        if not equals or Path(word).exists():
            name, folder = run_name(word), word
        if not NAME.fullmatch(name):
            raise UserError(f"{word}: {name!r} is not a name; use letters, digits and . _ : / + -")
        if name in folders:
            raise UserError(f"{word}: there is a ranker {name!r} already; call it NAME={folder}")
        folders[name] = folder
    if not folders:
        raise UserError("rankers: is empty; name a ranker's folder")
    return folders


def checked_text(value: Any, where: str, hint: str = "") -> str:
    """Check that a value is text without halves of characters."""
    if not isinstance(value, str):
        raise UserError(f"{where}: expected a text, not {reprlib.repr(value)}{hint}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"{where}: has half of a character at {error.start}, {value[error.start]!r}") from error
    return value


def checked_numbers(values: Any, where: str) -> Array:
    """Convert a list of numbers to float32, ``[n]``; null becomes NaN."""
    if not isinstance(values, list):
        raise UserError(f"{where}: expected a list of numbers, not {reprlib.repr(values)}")
    for i, value in enumerate(values):
        number = type(value) in (int, float) and (value != value or abs(value) <= FLOAT32)
        if not (number or value is None):
            raise UserError(f"{where}: value {i} is {reprlib.repr(value)}; expected a number of float32, or null")
    return np.array(values, dtype=np.float32)


@dataclass(frozen=True)
class Body:
    """A request's body.

    Attributes:
        with_documents: return texts or objects as they came.
        raw: return raw scores of a calibrated ranker.
        tei: the body, and so the answer, is that of text-embeddings-inference.
    """

    model: str | None
    query: str
    documents: list[Any]
    instruction: str | None
    top_n: int | None
    with_documents: bool
    raw: bool
    tei: bool

    @classmethod
    def read(cls, content: bytes) -> Self:
        """Parse a body; fields that would change the answer and are not supported are errors."""
        try:
            fields = json.loads(content, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            raise UserError(f"body: not JSON ({str(error)[:200]}); send an object with query and documents") from error
        if not isinstance(fields, dict):
            raise UserError("body: not a JSON object; send one with query and documents")
        tei = "texts" in fields and "documents" not in fields
        documents, returned = ("texts", "return_text") if tei else ("documents", "return_documents")
        known = {"model", "query", documents, "instruction", "top_n", returned, "raw_scores"}
        for name, value in fields.items():
            if name not in known and value is not None and value not in NEUTRAL.get(name, ()):
                raise UserError(f"{name[:100]}: {reprlib.repr(value)} is not supported; leave it out")
        if not isinstance(fields.get(documents), list) or not fields[documents]:
            raise UserError(f"{documents}: expected texts or objects, not {reprlib.repr(fields.get(documents))}")
        top, model, instruction = fields.get("top_n"), fields.get("model"), fields.get("instruction")
        if top is not None and (type(top) is not int or top < 1):
            raise UserError(f"top_n: expected a whole number from 1, not {reprlib.repr(top)}")
        if model is not None and not isinstance(model, str):
            raise UserError(f"model: expected a name, not {reprlib.repr(model)}")
        for name in (returned, "raw_scores"):
            if not isinstance(fields.get(name) or False, bool):
                raise UserError(f"{name}: expected true or false, not {reprlib.repr(fields[name])}")
        return cls(
            model,
            checked_text(fields.get("query"), "query"),
            fields[documents],
            None if instruction is None else checked_text(instruction, "instruction"),
            top,
            bool(fields.get(returned)),
            bool(fields.get("raw_scores")),
            tei,
        )

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
