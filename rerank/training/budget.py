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
    """How many tokens (documents, for feature vectors) fit the free memory with their graph, None if unknown, and why.

    One forward pass over long pairs says what a token costs; the count is rounded down to a power of two, so that it
    does not follow every change of the memory that other programs leave.
    """
    device = next(model.parameters()).device
    free = free_memory(device)
    if free is None:
        return None, f"free memory unknown on {device.type}"
    room = SHARE * max(0, free - PER_PARAMETER * sum(p.numel() for p in model.parameters() if p.requires_grad))
    with together():
        each, at_once = graph_bytes(model, inputs, lists, usable[:LOOKED_AT], precision)
    tokens = 2 ** int(np.log2(max(1.0, (room - at_once) / each)))
    return tokens, f"{room / 1e9:.1f} GB of memory, {each / 1e3:.1f} kB a token"


def graph_bytes(model: Scorer, inputs: Inputs, lists: Lists, among: Array, precision: Precision) -> tuple[float, float]:
    """Bytes that the graph keeps for a token, and for all of them together, such as weights cast to bf16.

    They are measured on the longest pairs of the longest of some lists, and on half as many of them.
    """
    device = next(model.parameters()).device
    candidates = [np.arange(lists.starts[i], lists.starts[i] + lists.lengths[i]) for i in among]
    longest = candidates[int(np.argmax([inputs.lengths(rows).sum() for rows in candidates]))]
    pairs = Chunked(model, inputs, longest, np.zeros(1, np.int64), PROBE, precision, device)
    chunk = pairs.chunks[0]
    was = {name: value.clone() for name, value in model.named_buffers()}
    tokens, sizes = [], []
    for part in (chunk, chunk[: len(chunk) // 2]) if len(chunk) > 3 else (chunk,):  # batch norm takes two or more
        with kept(model) as count:
            scores = pairs.score(pairs.collate(part))
            sizes.append(count.bytes)
            del scores
        tokens.append(int(inputs.lengths(longest[part]).sum()))
    for name, value in model.named_buffers():
        value.copy_(was[name])  # running statistics do not see the probe
    if len(sizes) == 1:
        return max(1.0, sizes[0] / tokens[0]), 0.0
    each = max(1.0, (sizes[0] - sizes[1]) / (tokens[0] - tokens[1]))
    return each, max(0.0, sizes[0] - each * tokens[0])
