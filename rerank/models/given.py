"""What models are given of one query from Python: documents, and columns of numbers about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rerank.errors import UserError, one_line
from rerank.models.calibration import Calibration
from rerank.settings.ranges import Count, check_value
from rerank.storage.arrow import Array


def given_column(columns: Mapping[str, Sequence[float] | Array], name: str, count: int, reader: str) -> Array:
    """A column of the documents of one query, ``[n]`` float32; NaN where a system did not return a document."""
    if name not in columns:
        raise UserError(f"columns: {reader} column {name}; give its scores of the documents")
    try:
        values = np.asarray(columns[name], dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"columns: {name} has something else than numbers ({one_line(error)})") from error
    if np.isinf(values).any():
        raise UserError(f"columns: {name} has {values[np.isinf(values)][0]}; expected finite numbers, or None")
    if values.shape != (count,):
        raise UserError(f"columns: {name} has {values.size} numbers, there are {count} documents")
    return values


def check_documents(documents: Any, top_k: int | None) -> None:
    """Refuse what is no list of texts, or a limit below 1."""
    check_value("top_k", top_k, Count | None)
    if not isinstance(documents, Sequence) or isinstance(documents, str):
        raise UserError(f"rank: expected documents, a list of texts, not {shortened(documents)}")


def best_documents(
    scores: Array,
    documents: Sequence[str],
    top_k: int | None,
    return_documents: bool,
    calibration: Calibration | None = None,
) -> list[dict[str, Any]]:
    """Documents by their scores, best first: ``corpus_id``, ``score`` and, where there are some, more.

    Those of a calibrated model have their ``probability``, and ``text`` is there if it is asked for.
    """
    order = np.argsort(-scores, kind="stable")[:top_k]
    ranked: list[dict[str, Any]] = [{"corpus_id": int(i), "score": float(scores[i])} for i in order]
    if calibration is not None:
        for entry, probability in zip(ranked, calibration(scores[order]).tolist(), strict=True):
            entry["probability"] = probability
    return [entry | {"text": documents[entry["corpus_id"]]} for entry in ranked] if return_documents else ranked


def shortened(value: Any) -> str:
    """A value in a message."""
    return repr(value) if len(repr(value)) < 60 else f"{repr(value)[:60]}…"
