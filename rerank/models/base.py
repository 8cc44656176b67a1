"""What a model is and what it reads; without torch, so that help and configurations load fast."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rerank.errors import UserError
from rerank.kernels.packing import pack
from rerank.settings.described import Described
from rerank.settings.ranges import Count, check_value
from rerank.storage.arrow import Array
from rerank.storage.files import warn_once

if TYPE_CHECKING:
    from torch import Tensor
    from torch import device as Device

    from rerank.evaluation.calibration import Calibration


FRESH_SEED = 42
"""Draws fresh weights before any training does, so that every score can be had again."""


class Inputs(ABC):
    """The lists of a store in the form that one model reads, addressed by rows of candidates."""

    beside: Callable[[Array], Tensor] | None = None
    """What scores of ``[n]`` rows need besides their chunks, ``[n, ...]``, for ``Scorer.joined``; None for nothing."""

    by_list: bool = False
    """Whether the score of a candidate depends on the others of its list."""

    @abstractmethod
    def lengths(self, rows: Array) -> Array:
        """Cost of each candidate in rows of the model's matrix products (tokens; 1 for feature vectors), ``[n]``."""

    @abstractmethod
    def collate(self, rows: Array, starts: Array) -> dict[str, Tensor]:
        """The model's input for some candidates.

        Args:
            rows: ``[n]`` rows of the candidates in the store, list after list.
            starts: positions in ``rows`` at which a list starts, the first of them 0.
        """

    def representatives(self, rows: Array) -> Array:
        """Return for each candidate the position of the first one that reads the same, ``[n]``."""
        return np.arange(len(rows))

    def to(self, device: Device) -> None:  # noqa: B027
        """Move what is held of the lists to where the model is now."""

    def chunks(self, rows: Array, starts: Array, budget: int) -> list[Array]:
        """Positions of the candidates that go through the model together, every one once, the largest first."""
        return pack(self.lengths(rows), budget)


class Model(Described, ABC):
    """What a run saves in ``best/``: a network that scores, or trees."""

    columns: Sequence[str] = ()
    """What it reads of every candidate besides texts: names of columns, of one number of theirs, or of their z."""

    @abstractmethod
    def predict(self, lists: Any, /) -> Array:
        """Scores of every candidate of lists, ``[T]`` float32, in their order.

        An untrained model scores with weights drawn with seed 42, and a warning says so.
        """

    calibration: Calibration | None = None
    """What makes probabilities of its scores; None where it was not calibrated, or was not read by ``rerank.load``."""

    remembered: Mapping[str, Any] = {}
    """What ``rerank.load`` read in its contract of the lists of its training, which ``save`` passes on."""

    def probabilities(self, lists: Any, /) -> Array:
        """Probabilities of relevance, ``[n]`` float64, of whatever :meth:`predict` scores, in the same order."""
        if self.calibration is None:
            way = "rerank calibrate --model FOLDER --lists VALIDATION does that, and rerank.load(FOLDER) reads it"
            raise UserError(f"probabilities: the model is not calibrated; {way}")
        return self.calibration(self.predict(lists))

    def check(self, lists: Any) -> None:
        """Refuse lists that lack what the model reads of them, before any work is done."""
        return

    def completed(self, lists: Any) -> Any:
        """Lists with what the model reads of them and can compute itself."""
        return lists

    def untrained(self) -> str:
        """What of the model is as it was drawn, and what its scores are then; empty for one that was trained."""
        return ""

    def warn_if_untrained(self) -> None:
        """Say so, once for each model, where its scores are those of random weights."""
        if what := self.untrained():
            warn_once(f"{what}; a trained model is rerank.train(…).model")

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write the model (safetensors, or its library's own format) and all that scoring needs (JSON)."""

    @classmethod
    @abstractmethod
    def load(cls, folder: Path) -> Self:
        """Read what :meth:`save` wrote."""

    @abstractmethod
    def contract(self) -> dict[str, Any]:
        """What an input looks like (tokenizer, lengths, head; features, normalisers); saved as ``rerank.json``."""


class RanksTexts(ABC):
    """What ranks texts from Python."""

    calibration: Calibration | None

    @abstractmethod
    def scores_of(
        self,
        query: str,
        documents: Sequence[str],
        columns: Mapping[str, Sequence[float] | Array] | None = None,
        instruction: str | None = None,
    ) -> Array:
        """Scores of documents for a query, ``[n]`` float32; see :meth:`rank`."""

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        columns: Mapping[str, Sequence[float] | Array] | None = None,
        instruction: str | None = None,
    ) -> list[dict[str, Any]]:
        """Rank documents for a query, best first: ``corpus_id``, ``score`` and, where asked for, ``text``.

        Those of a calibrated model have a ``probability``, too.

        Args:
            query: the query.
            documents: the documents; with ``columns`` in the order of the first stage, all that it found.
            top_k: how many to return; None for all.
            return_documents: whether their texts are returned, too.
            columns: for a model that starts from columns, or a mix of them, the first stage's scores of these
                documents, ``{"bm25": [12.1, …]}``; None or NaN where it has none. A mix computes cosines itself.
            instruction: what the model is told to look for, if its template has a place for it; None for its own.

        Raises:
            UserError: a column that is needed is missing, or has not a number for every document; or the model that is
                mixed reads no texts.
        """
        check_value("top_k", top_k, Count | None)
        if not isinstance(documents, Sequence) or isinstance(documents, str):
            raise UserError(f"rank: expected documents, a list of texts, not {reprlib.repr(documents)}")
        scores = self.scores_of(query, documents, columns, instruction)
        order = np.argsort(-scores, kind="stable")[:top_k]
        ranked: list[dict[str, Any]] = [{"corpus_id": int(i), "score": float(scores[i])} for i in order]
        if self.calibration is not None:
            for entry, probability in zip(ranked, self.calibration(scores[order]).tolist(), strict=True):
                entry["probability"] = probability
        return [entry | {"text": documents[entry["corpus_id"]]} for entry in ranked] if return_documents else ranked


@contextmanager
def drawn_from(seed: int) -> Iterator[None]:
    """Seed torch's random numbers on the CPU for a block of code; its generator is restored afterwards."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
