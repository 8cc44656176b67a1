"""Pairs of texts, and what the architecture itself says of them."""

from __future__ import annotations

import numpy as np

from rerank.lists.tokens import Tokens
from rerank.models.score import score_candidates
from rerank.models.text.cross_encoder import CrossEncoder

PAIRS = [
    ("shock wave", "the shock wave on a blunt body"),
    ("heat", "a"),
    ("boundary layer flow", "heat transfer in the laminar boundary layer of a flat plate at high speed"),
    ("jet", ""),
]


def exact(model: CrossEncoder, pairs: list[tuple[str, str]]) -> np.ndarray:
    """What ``predict`` computes, in float32 on every machine."""
    cut = ((query, model.query_length) for query, _ in pairs), ((text, model.document_length) for _, text in pairs)
    sides = [[np.array(model.tokenizer(t, add_special_tokens=False)["input_ids"][:n], int) for t, n in s] for s in cut]
    rows = np.arange(len(pairs))
    return score_candidates(model, model.token_inputs(Tokens.of(*sides), rows, rows), rows, rows, precision="fp32")
