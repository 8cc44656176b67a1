"""How many tokens fit in memory while their graph is kept."""

from __future__ import annotations

import logging

import numpy as np

from rerank.kernels.memory import free_memory, kept
from rerank.kernels.precision import Precision
from rerank.lists.view import Lists
from rerank.models.base import Inputs
from rerank.models.scorer import Scorer
from rerank.scoring.together import together
from rerank.storage.arrow import Array
from rerank.training.gradient import Chunked

log = logging.getLogger("rerank")

PROBE = 2048
"""Tokens of the forward pass that is measured."""

LOOKED_AT = 256
"""Lists among which the one with the most tokens is measured."""

SHARE = 0.5
"""Share of the free memory that graphs may take; the rest is for what forward and backward passes need in between."""

PER_PARAMETER = 12
"""Bytes: a gradient and two moments."""


def tokens_that_fit(
    model: Scorer, inputs: Inputs, lists: Lists, usable: Array, precision: Precision
) -> tuple[int | None, str]:
    """How many tokens (documents, for feature vectors) fit the free memory with their graph, and why.

    One forward pass over long pairs says what a token costs; the count is rounded down to a power of two, so that it
    does not follow every change of the memory that other programs leave.

    Returns:
        The count, None where the free memory cannot be told, and a reason for the log.
    """
    device = next(model.parameters()).device
    free = free_memory(device)
    if free is None:
        return None, f"free memory unknown on {device.type}"
    room = SHARE * max(0, free - PER_PARAMETER * sum(p.numel() for p in model.parameters() if p.requires_grad))
    with together():
        each = bytes_per_token(model, inputs, lists, usable[:LOOKED_AT], precision)
    return 2 ** int(np.log2(max(1.0, room / each))), f"{room / 1e9:.1f} GB of memory, {each / 1e3:.1f} kB a token"


def bytes_per_token(model: Scorer, inputs: Inputs, lists: Lists, among: Array, precision: Precision) -> float:
    """Bytes that the graph keeps for a token, measured on the longest pairs of the longest of some lists."""
    device = next(model.parameters()).device
    candidates = [np.arange(lists.starts[i], lists.starts[i] + lists.lengths[i]) for i in among]
    longest = candidates[int(np.argmax([inputs.lengths(rows).sum() for rows in candidates]))]
    pairs = Chunked(model, inputs, longest, np.zeros(1, np.int64), PROBE, precision, device)
    chunk = pairs.chunks[0]
    lengths = inputs.lengths(longest[chunk])
    was = {name: value.clone() for name, value in model.named_buffers()}
    with kept(model) as count:
        scores = pairs.score(pairs.collate(chunk))
        size = count.bytes
        del scores
    for name, value in model.named_buffers():
        value.copy_(was[name])  # running statistics do not see the probe
    return max(1.0, size / int(lengths.sum()))
