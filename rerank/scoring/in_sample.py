"""Queries that a model was trained on, whose scores are overfitted."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from rerank.errors import UserError
from rerank.lists.view import Lists
from rerank.models.base import Model
from rerank.models.folder import TRAINED_ON, contract_of
from rerank.storage.arrow import Array


def query_hashes(lists: Lists) -> Array:
    """Hash the queries' keys, ``[Q]`` uint64."""
    digests = (hashlib.sha256(key.encode()).digest() for key in lists.query_keys)
    return np.frombuffer(b"".join(digest[:8] for digest in digests), "<u8")


def remember(lists: Lists, initial: str | Path | None = None) -> dict[str, str]:
    """Return the entry of ``rerank.json`` for the queries of a training run, with those of its initial model.

    Hashes are hexadecimal, so the entries of several models can be concatenated.
    """
    earlier = "" if initial is None else contract_of(initial).get(TRAINED_ON, "")
    hashes = [query_hashes(lists), np.frombuffer(bytes.fromhex(earlier), "<u8")]
    return {TRAINED_ON: np.unique(np.concatenate(hashes)).tobytes().hex()}


def shared_queries(lists: Lists, model: str | Path | Model) -> list[str]:
    """List the ids of queries that a model was trained on; none if the model does not record them."""
    recorded = model.remembered if isinstance(model, Model) else contract_of(model)
    known = np.frombuffer(bytes.fromhex(recorded.get(TRAINED_ON, "")), "<u8")
    shared = np.isin(query_hashes(lists), known)
    return [id for id, both in zip(lists.query_ids, shared.tolist(), strict=True) if both]


def check_out_of_sample(lists: Lists, model: str | Path) -> None:
    """Raise if a model was trained on some of the queries."""
    if shared := shared_queries(lists, model):
        raise UserError(
            f"{lists.store}: {model} was trained on {len(shared)} of these {len(lists)} queries, e.g. {shared[0]!r}, "
            "so its scores of them are overfitted; score other queries, or give --in-sample"
        )
