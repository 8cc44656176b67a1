"""Queries that a model was trained on, whose scores are overfitted."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import numpy as np

from rerank.errors import UserError
from rerank.lists.view import Lists
from rerank.models.contract import CONTRACT, TRAINED_ON, read_contract
from rerank.storage.arrow import Array

BYTES = 6
"""Bytes of a query's hash: of half a million queries, one is taken for another by chance in a thousand cases."""


def query_hashes(lists: Lists) -> Array:
    """Hash the queries' keys, ``[Q]`` uint64."""
    hashes = b"".join(hashlib.sha256(key.encode()).digest()[:BYTES] + bytes(8 - BYTES) for key in lists.query_keys)
    return np.frombuffer(hashes, "<u8")


def remember(lists: Lists, initial: str | Path | None = None) -> dict[str, str]:
    """Return the entry of ``rerank.json`` for the queries of a training: eight letters each, with earlier ones."""
    earlier = None if initial is None else _known(initial)
    hashes = [query_hashes(lists)] + ([] if earlier is None else [earlier])
    parts = np.unique(np.concatenate(hashes)).view(np.uint8).reshape(-1, 8)[:, :BYTES]
    return {TRAINED_ON: base64.b64encode(parts.tobytes()).decode()}


def _known(model: str | Path) -> Array | None:
    """Read the hashes of the queries that a model was trained on; None if it does not record them."""
    known = read_contract(Path(model)).get(TRAINED_ON)
    if known is None:
        return None
    try:
        parts = np.frombuffer(base64.b64decode(known, validate=True), np.uint8).reshape(-1, BYTES)
    except (TypeError, ValueError) as error:
        problem = f"expected eight letters of base64 a query, not {str(known)[:50]!r}"
        raise UserError(f"{Path(model) / CONTRACT}: {TRAINED_ON}: {problem}; save the model again") from error
    return np.pad(parts, ((0, 0), (0, 8 - BYTES))).view("<u8")[:, 0]


def shared_queries(lists: Lists, model: str | Path) -> list[str] | None:
    """List the ids of queries that a model was trained on; None if the model does not record them."""
    hashes = _known(model)
    if hashes is None:
        return None
    shared = np.isin(query_hashes(lists), hashes)
    return [id for id, both in zip(lists.query_ids, shared.tolist(), strict=True) if both]


def check_out_of_sample(lists: Lists, model: str | Path) -> None:
    """Refuse to score queries that a model was trained on."""
    if shared := shared_queries(lists, model):
        raise UserError(
            f"{lists.store}: {model} was trained on {len(shared)} of these {len(lists)} queries, e.g. {shared[0]!r}, "
            "so its scores of them are overfitted; score other queries, or give --in-sample"
        )
