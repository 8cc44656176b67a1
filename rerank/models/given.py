"""What models are given of one query from Python: documents, and columns of numbers about them."""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rerank.errors import UserError, one_line
from rerank.evaluation.calibration import Calibration
from rerank.settings.ranges import Count, check_value
from rerank.storage.arrow import Array


def given_column(
    columns: Mapping[str, Sequence[float] | Array], name: str, count: int, reader: str, instead: str = ""
) -> Array:
    """A column of the documents of one query, ``[n]`` float32; NaN where a system did not return a document."""
    if name not in columns:
        raise UserError(f"columns: {reader} column {name}; give its scores of the documents{instead}")
    try:
        values = np.asarray(columns[name], dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"columns: {name} has something else than numbers ({one_line(error)})") from error
    if np.isinf(values).any():
        raise UserError(f"columns: {name} has {values[np.isinf(values)][0]}; expected finite numbers, or None")
    if values.shape != (count,):
        raise UserError(f"columns: {name} has {values.size} numbers, there are {count} documents")
    return values


class RanksTexts(ABC):
    """What ranks texts from Python."""

    calibration: Calibration | None

    @abstractmethod
    def scores_of(
        self, query: str, documents: Sequence[str], columns: Mapping[str, Sequence[float] | Array] | None = None
    ) -> Array:
        """Scores of documents for a query, ``[n]`` float32; see :meth:`rank`."""

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        return_documents: bool = False,
        columns: Mapping[str, Sequence[float] | Array] | None = None,
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

        Raises:
            UserError: a column that is needed is missing, or has not a number for every document; or the model that is
                mixed reads no texts.
        """
        check_value("top_k", top_k, Count | None)
        if not isinstance(documents, Sequence) or isinstance(documents, str):
            raise UserError(f"rank: expected documents, a list of texts, not {reprlib.repr(documents)}")
        scores = self.scores_of(query, documents, columns)
        order = np.argsort(-scores, kind="stable")[:top_k]
        ranked: list[dict[str, Any]] = [{"corpus_id": int(i), "score": float(scores[i])} for i in order]
        if self.calibration is not None:
            for entry, probability in zip(ranked, self.calibration(scores[order]).tolist(), strict=True):
                entry["probability"] = probability
        return [entry | {"text": documents[entry["corpus_id"]]} for entry in ranked] if return_documents else ranked
