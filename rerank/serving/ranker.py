"""A ranker as a service has it: what it is asked, what it reads of a document, its scores, and what is answered."""

from __future__ import annotations

import json
import re
import reprlib
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import UserError
from rerank.kernels.precision import Precision
from rerank.models.load import load_model
from rerank.models.mixed import Mixed, unmixed
from rerank.models.scorer import Scorer
from rerank.models.text.from_texts import TextScorer
from rerank.scoring.outputs import run_name
from rerank.scoring.shared import placed
from rerank.storage.arrow import FLOAT32, Array

NAME = re.compile(r"[\w.:/+-]{1,100}")


class Ranker:
    """A trained ranker that is ready to score."""

    def __init__(self, name: str, folder: str, precision: Precision = "auto", budget: int | None = None) -> None:
        self.name, self.model = name, load_model(folder)
        inner = unmixed(self.model)
        self.precision = placed(self.model, precision)
        self.budget = budget if isinstance(inner, Scorer) else None
        self.cosines = list(self.model.cosines) if isinstance(self.model, Mixed) else []
        self.reads_text = isinstance(inner, TextScorer) or bool(self.cosines)
        starts = inner.start.columns if isinstance(inner, TextScorer) else []
        self.columns = self.model.needs() if isinstance(self.model, Mixed) else starts
        self.features: dict[str, list[str]] = {}  # the numbers that a model of feature vectors reads, by their columns
        for number in getattr(inner, "names", ()):
            self.features.setdefault(number.partition("/")[0], []).append(number)
        by_column = [number for numbers in self.features.values() for number in numbers]
        self._order = [by_column.index(number) for number in getattr(inner, "names", ())]
        if isinstance(inner, TextScorer):  # kernels are chosen at the first scores, which nobody shall wait for
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

    def question(self, query: str, documents: Sequence[Any]) -> Question:
        """What it reads of a query and documents, which are texts or objects."""
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
        return Question(query, texts, columns, features)

    def _column(self, name: str, documents: Sequence[Mapping[str, Any]]) -> Array:
        if not any(name in document for document in documents):
            raise UserError(
                f'documents: the ranker reads column {name}; give them as {{"text": "…", "{name}": 12.1}}, null or no '
                "such field where a system did not return one"
            )
        return checked_numbers([document.get(name) for document in documents], f"documents: {name}")

    def _vector(self, document: Mapping[str, Any], i: int) -> Array:
        """The numbers of a document in the model's order, ``[F]``; its column's field has a list, or each a field."""
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

    def scores(self, questions: Sequence[Question]) -> list[Array]:
        """Raw scores of each question's documents, ``[n]`` float32, of all in one batch."""
        return scores_of(self.model, questions, self.budget, self.precision)

    def shown(self, scores: Array, raw: bool) -> Array:
        """What is answered, ``[n]``: probabilities where the ranker is calibrated and nobody asks for raw scores."""
        return scores if raw or self.model.calibration is None else self.model.calibration(scores)


def named(rankers: Sequence[str]) -> dict[str, str]:
    """Folders by the names of their rankers, from ``NAME=FOLDER``, or ``FOLDER``, after which the ranker is called."""
    folders: dict[str, str] = {}
    for word in rankers:
        name, equals, folder = word.partition("=")
        if not equals or Path(word).exists():
            name, folder = run_name(word), word
        if not NAME.fullmatch(name):
            raise UserError(f"{word}: {name!r} is no name; letters, digits and . _ : / + - make one")
        if name in folders:
            raise UserError(f"{word}: there is a ranker {name!r} already; call it NAME={folder}")
        folders[name] = folder
    if not folders:
        raise UserError("rankers: is empty; name a ranker's folder")
    return folders


@dataclass(frozen=True)
class Question:
    """A query and its documents, as far as a model reads them."""

    query: str
    texts: Sequence[str]
    columns: Mapping[str, Array] = field(default_factory=dict)  # mixed in or started from, ``[n]``; NaN for no number
    features: Array | None = None  # ``[n, F]`` for a model of feature vectors, in the order in which it reads them


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


@dataclass(frozen=True)
class Asked:
    """A request."""

    model: str | None
    query: str
    documents: list[Any]
    top_n: int | None
    with_documents: bool  # whether texts (objects, where they came as such) are returned, too
    raw: bool
    tei: bool  # whether the body is that of text-embeddings-inference, and so the answer


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
