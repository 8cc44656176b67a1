"""Base classes of models and their inputs; without torch, so that help and configurations load fast."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rerank.errors import UserError, one_line
from rerank.kernels.packing import pack
from rerank.models.folder import CALIBRATION, CONTRACT
from rerank.settings.arguments import Count, Described, check_value
from rerank.storage.arrow import Array
from rerank.storage.files import write_json

if TYPE_CHECKING:
    from torch import Tensor
    from torch import device as Device

    from rerank.evaluation.calibration import Calibration
    from rerank.lists.view import Lists


FRESH_SEED = 42
"""Seed of the weights of models that are not trained, so that their scores are reproducible."""


class Inputs(ABC):
    """Lists in the form that a model reads, addressed by rows of candidates.

    Attributes:
        listwise: True if the score of a candidate depends on the others of its list.
    """

    listwise: bool = False

    @abstractmethod
    def lengths(self, rows: Array) -> Array:
        """Return the cost of each candidate in rows of matrix products (tokens; 1 for feature vectors), ``[n]``."""

    @abstractmethod
    def collate(self, rows: Array, starts: Array) -> dict[str, Tensor]:
        """Make the model's input for some candidates.

        Args:
            rows: ``[n]`` rows of the candidates in the store, list after list.
            starts: positions in ``rows`` at which a list starts, the first of them 0.
        """

    def representatives(self, rows: Array) -> Array:
        """Return for each candidate the position of the first one that reads the same, ``[n]``."""
        return np.arange(len(rows))

    def to(self, device: Device) -> None:  # noqa: B027
        """Move tensors to the device of the model."""

    def chunks(self, rows: Array, starts: Array, budget: int) -> list[Array]:
        """Cut candidates into chunks that are scored together, the largest first."""
        return pack(self.lengths(rows), budget)


class Model(Described, ABC):
    """A model that scores lists.

    Attributes:
        columns: names of the columns that the model reads in addition to texts, of single numbers or of z-scores.
        given: names of the columns that :meth:`rank` needs of one query's documents.
        calibration: conversion of its scores to probabilities, if ``rerank.load`` has found one.
        remembered: entries of ``rerank.json`` about its training lists, which ``save`` passes on.
    """

    columns: Sequence[str] = ()
    given: Sequence[str] = ()
    calibration: Calibration | None = None
    remembered: Mapping[str, Any] = {}

    @abstractmethod
    def predict(self, lists: Any, /) -> Array:
        """Score every candidate of lists: ``[T]`` float32, in their order."""

    def probabilities(self, lists: Any, /) -> Array:
        """Compute probabilities of relevance, ``[n]`` float64, of everything that :meth:`predict` scores."""
        if self.calibration is None:
            way = "run `rerank calibrate --model FOLDER --lists VALIDATION` and load it with rerank.load(FOLDER)"
            raise UserError(f"probabilities: the model is not calibrated; {way}")
        return self.calibration(self.predict(lists))

    def check(self, lists: Any) -> None:
        """Validate that lists have the columns that the model reads."""
        return

    def completed(self, lists: Any) -> Any:
        """Add columns that the model reads and can compute itself."""
        return lists

    def check_trained(self) -> None:
        """Raise if there are no weights; warn, once per model, if scores come from random ones."""
        return

    def save(self, folder: str | Path) -> None:
        """Write the model (safetensors, or its library's own format) and ``rerank.json``: all that scoring needs."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.write(folder)
        calibration = {CALIBRATION: vars(self.calibration)} if self.calibration else {}
        write_json(folder / CONTRACT, {**self.contract(), **self.remembered, **calibration})

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write all of the model but ``rerank.json`` into an existing folder."""

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what :meth:`save` wrote; :func:`rerank.load` finds the class."""
        raise NotImplementedError(cls.__name__)

    @abstractmethod
    def contract(self) -> dict[str, Any]:
        """Return the description of inputs (lengths, head; features, normalisers) that ``rerank.json`` holds."""

    def scores_of(
        self,
        query: str,
        documents: Sequence[str],
        columns: Mapping[str, Sequence[float] | Array] | None = None,
        instruction: str | None = None,
        **options: Any,
    ) -> Array:
        """Score documents for a query: ``[n]`` float32.

        The arguments are those of :meth:`rank`; options are ``budget`` and ``precision`` of
        :func:`rerank.models.scorer.score_candidates`.
        """
        raise UserError(f"rank: {type(self).__name__} reads no texts; use predict(lists)")

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        columns: Mapping[str, Sequence[float] | Array] | None = None,
        instruction: str | None = None,
    ) -> list[dict[str, Any]]:
        """Rank documents for a query, best first: ``corpus_id``, ``score`` and, on request, ``text``.

        Calibrated models add a ``probability``.

        Args:
            query: the query.
            documents: the documents; with ``columns`` all that the first stage found, in its order.
            top_k: number of documents to return; defaults to all.
            return_documents: return texts, too.
            columns: first-stage scores of these documents, ``{"bm25": [12.1, …]}``, for a model with residual columns
                or interpolated with columns; None or NaN if there is no score. Cosines are computed if missing.
            instruction: instruction for the model, if its template has a place for one; defaults to the model's.

        Raises:
            UserError: a column is missing or does not have a number for every document, or the model reads no texts.
        """
        check_value("top_k", top_k, Count | None)
        if not isinstance(documents, Sequence) or isinstance(documents, str):
            raise UserError(f"rank: expected documents, a list of texts, not {reprlib.repr(documents)}")
        if wrong := [text for text in (query, *documents) if not isinstance(text, str)]:
            raise UserError(f"rank: expected texts, not {reprlib.repr(wrong[0])} ({type(wrong[0]).__name__})")
        scores = self.scores_of(query, documents, columns, instruction)
        order = np.argsort(-scores, kind="stable")[:top_k]
        ranked: list[dict[str, Any]] = [{"corpus_id": int(i), "score": float(scores[i])} for i in order]
        if self.calibration is not None:
            for entry, probability in zip(ranked, self.calibration(scores[order]).tolist(), strict=True):
                entry["probability"] = probability
        return [entry | {"text": documents[entry["corpus_id"]]} for entry in ranked] if return_documents else ranked


def check_lists(given: object) -> None:
    """Refuse anything but lists."""
    if not hasattr(given, "row_numbers"):
        raise UserError(
            f"predict: expected lists, not {reprlib.repr(given)}; make them with rerank.Lists.from_dataframe, or use "
            "rank(query, documents)"
        )


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Seed torch's random numbers on the CPU for a block of code; its generator is restored afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def check_column(lists: Lists, name: str, reader: str, instead: str = "") -> None:
    """Refuse lists without a column of one number a candidate."""
    try:
        lists.select([]).column(name)
    except UserError as error:
        way = f"add it with `rerank add --lists {lists.store} --run {name}=FILE`{instead}"
        raise UserError(f"{reader} column {name}; {error}; {way}") from error


def check_added(lists: Lists, names: Sequence[str]) -> None:
    """Refuse added candidates without a value in a column: the gap itself would tell that they are relevant."""
    added = lists.store.added_rows[lists.rows]
    if added.any() and (unknown := np.isnan(lists.matrix(names)[added]).any(axis=0)).any():
        raise UserError(
            f"{lists.store}: {names[int(unknown.argmax())]} has no value for the relevant documents that were added, "
            "so the gap would reveal them; make the lists without --add-relevant, or leave the column out"
        )


def given_column(
    columns: Mapping[str, Sequence[float] | Array], name: str, count: int, reader: str, instead: str = ""
) -> Array:
    """Return a column of one query's documents, ``[n]`` float32; NaN where a system did not return a document."""
    if name not in columns:
        raise UserError(f"columns: {reader} column {name}; give its scores of the documents{instead}")
    try:
        values = np.asarray(columns[name], dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"columns: {name} holds values that are not numbers ({one_line(error)})") from error
    if np.isinf(values).any():
        raise UserError(f"columns: {name} has {values[np.isinf(values)][0]}; expected finite numbers, or None")
    if values.shape != (count,):
        raise UserError(f"columns: {name} has {values.size} numbers, there are {count} documents")
    return values
