"""A ranker as a service has it: its name, what it reads of a document, and what its scores mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
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
from rerank.serving.questions import Question, checked_numbers, checked_text, scores_of
from rerank.storage.arrow import Array

NAME = re.compile(r"[\w.:/+-]{1,100}")


class Ranker:
    """A trained ranker that is ready to score.

    Attributes:
        features: names of the numbers that a model of feature vectors reads, by the columns that they belong to.
    """

    def __init__(self, name: str, folder: str, precision: Precision = "auto", budget: int | None = None) -> None:
        self.name, self.model = name, load_model(folder)
        inner = unmixed(self.model)
        self.precision = placed(self.model, precision)
        self.budget = budget if isinstance(inner, Scorer) else None
        self.cosines = list(self.model.cosines) if isinstance(self.model, Mixed) else []
        self.reads_text = isinstance(inner, TextScorer) or bool(self.cosines)
        starts = inner.start.columns if isinstance(inner, TextScorer) else []
        self.columns = self.model.needs() if isinstance(self.model, Mixed) else starts
        self.features: dict[str, list[str]] = {}
        for number in getattr(inner, "names", ()):
            self.features.setdefault(number.partition("/")[0], []).append(number)
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
        """The numbers of a document, ``[F]``: a list in the column's field, or a field for each."""
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
        return checked_numbers(found, f"documents: number {i}")

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
