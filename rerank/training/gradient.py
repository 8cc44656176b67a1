"""The gradient of a loss over many scores, whole or a chunk at a time, and how many tokens fit with their graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from rerank.kernels.memory import free_memory, kept, sent
from rerank.kernels.precision import Precision, autocast
from rerank.kernels.products import weights_stay
from rerank.lists.view import Lists
from rerank.models.base import Inputs
from rerank.models.scorer import Scorer
from rerank.scoring.together import together
from rerank.storage.arrow import Array, list_numbers, starts_of

Mode = Literal["full", "cached"]

ALIKE = 0.01
"""How far a score may be from that of the first pass, as a share of the largest score; other dropout is further."""

PROBE = 2048
"""Tokens of the forward pass that is measured."""

LOOKED_AT = 256
"""Lists among which the one with the most tokens is measured."""

SHARE = 0.5
"""Share of the free memory that graphs may take; the rest is for what forward and backward passes need in between."""

PER_PARAMETER = 12
"""Bytes: a gradient and two moments."""


class Before:
    """What scoring again starts from: torch's random numbers, on the CPU and the device, and running statistics."""

    def __init__(self, model: Scorer, device: torch.device) -> None:
        self.device = None if device.type == "cpu" else device
        self.cpu = torch.get_rng_state()
        self.own = torch.get_device_module(device).get_rng_state(device) if self.device else None
        norms = (module for module in model.modules() if getattr(module, "track_running_stats", False))
        self.statistics = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers(recurse=False)]

    def restore(self) -> None:
        """Make the next random numbers those that came after this was made, and the statistics what they were."""
        torch.set_rng_state(self.cpu)
        if self.device:
            torch.get_device_module(self.device).set_rng_state(self.own, self.device)
        for buffer, before in self.statistics:
            buffer.copy_(before)


class Chunked:
    """Candidates of lists, cut into chunks that go through the model one after the other.

    Args:
        rows: ``[N]`` rows of the candidates in the store, list after list.
        starts: positions in ``rows`` at which a list starts.

    Attributes:
        off: how far second scores were from the first ones, as a share of the largest one; 0 where there were none.
    """

    def __init__(
        self,
        model: Scorer,
        inputs: Inputs,
        rows: Array,
        starts: Array,
        budget: int,
        precision: Precision,
        device: torch.device,
        scored: Callable[[int], object] | None = None,
    ) -> None:
        self.model, self.inputs, self.precision, self.device = model, inputs, precision, device
        self._scored = scored
        self.rows, self._of = rows, list_numbers(len(rows), starts)
        self.chunks = inputs.chunks(rows, starts, budget)
        self.beside = None if inputs.beside is None else sent(inputs.beside(rows), device)
        self.off = torch.zeros((), device=device)

    def collate(self, chunk: Array) -> dict[str, Tensor]:
        batch = self.inputs.collate(self.rows[chunk], starts_of(self._of[chunk]))
        return {name: sent(value, self.device) for name, value in batch.items()}

    def score(self, batch: dict[str, Tensor]) -> Tensor:
        with autocast(self.precision, self.device):
            scores = self.model.score(batch)
        if self._scored is not None:
            self._scored(len(scores))
        return scores

    def in_order(self, parts: list[Tensor]) -> Tensor:
        """Scores of all chunks as one vector ``[N]`` in the order of the pairs."""
        if len(parts) == 1 and (np.diff(self.chunks[0]) == 1).all():
            return parts[0]
        order = sent(torch.from_numpy(np.argsort(np.concatenate(self.chunks), kind="stable")), self.device)
        return torch.cat(parts)[order]

    def joined(self, scores: Tensor) -> Tensor:
        """The final scores ``[N]``: what a model adds to those of its chunks has its gradient here, in any mode."""
        return scores if self.beside is None else self.model.joined(scores, self.beside)


def backpropagate(mode: Mode, pairs: Chunked, loss: Callable[[Tensor], Tensor]) -> None:
    r"""Add the gradient of ``loss(scores)`` to the parameters of the model.

    With scores :math:`s(\theta) \in R^N`, the gradient is :math:`\sum_i \frac{\partial \ell}{\partial s_i}
    \nabla_\theta s_i`: the loss needs all scores, but no more than one chunk's graph at a time is needed for the
    rest. Both modes compute this sum, with the same random numbers.

    Args:
        mode: ``full`` keeps the graph of every chunk. ``cached`` scores all chunks without a graph, takes the gradient
            of the loss on the scores, then scores each chunk again, and backpropagates its share (Gao et al. 2021). The
            last chunk keeps its graph at once: a list of one chunk is scored once.
        pairs: what is scored. How far second scores were from the first is left in its ``off``, for the end of a step:
            to look at it here, the host would wait for the device.
        loss: a scalar of scores ``[N]`` in the order of the pairs.
    """
    with weights_stay():
        (_cached if mode == "cached" else _full)(pairs, loss)


def _full(pairs: Chunked, loss: Callable[[Tensor], Tensor]) -> None:
    with autocast(pairs.precision, pairs.device):  # one for all: weights are cast once
        parts = [pairs.score(pairs.collate(chunk)) for chunk in pairs.chunks]
    loss(pairs.joined(pairs.in_order(parts))).backward()


def _cached(pairs: Chunked, loss: Callable[[Tensor], Tensor]) -> None:
    *others, last = pairs.chunks
    parts, states = [], []
    with torch.no_grad(), autocast(pairs.precision, pairs.device):
        for chunk in others:
            states.append(Before(pairs.model, pairs.device))
            parts.append(pairs.score(pairs.collate(chunk)))
    kept = pairs.score(pairs.collate(last))
    scores = pairs.in_order([*parts, kept.detach()]).requires_grad_()
    loss(pairs.joined(scores)).backward()
    gradient = scores.grad
    assert gradient is not None
    kept.backward(gradient[_on(pairs.device, last)])
    del kept
    after, off = Before(pairs.model, pairs.device), torch.zeros((), device=pairs.device)
    for chunk, state, first in reversed(list(zip(others, states, parts, strict=True))):  # the order of a full graph
        state.restore()
        again = pairs.score(pairs.collate(chunk))
        off = torch.maximum(off, (again.detach() - first).abs().max())
        again.backward(gradient[_on(pairs.device, chunk)])
        del again
    after.restore()
    pairs.off = off / scores.detach().abs().max().clamp(min=torch.finfo(off.dtype).tiny)


def _on(device: torch.device, positions: Array) -> Tensor:
    return sent(torch.from_numpy(positions), device)


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
