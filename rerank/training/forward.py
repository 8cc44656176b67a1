"""Score the candidates of a micro-batch and backpropagate a loss of all scores, whole or a chunk at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from rerank.kernels.memory import free_memory, kept, sent
from rerank.kernels.precision import Precision, autocast
from rerank.lists.view import Lists
from rerank.models.base import Inputs
from rerank.models.scorer import Scorer
from rerank.storage.arrow import Array, list_numbers, starts_of

if TYPE_CHECKING:
    from accelerate import Accelerator

PROBE_TOKENS = 2048
"""Tokens of the forward pass that is measured."""

PROBE_LISTS = 256
"""Lists among which the longest pairs are measured."""

GRAPH_SHARE = 0.5
"""Share of the free memory for graphs; the rest is for what forward and backward passes need in between."""

BYTES_PER_PARAMETER = 12
"""A gradient and two moments, in float32."""

UNLIMITED = 1 << 62
"""Stands for any number of tokens."""


class ScoringModule(nn.Module):
    """Score a collated batch through ``forward``, which Accelerate wraps: it reaches every trained parameter."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.scorer.score(batch)


class RngSnapshot:
    """Random states of torch and running statistics of batch norms, to score the same chunk again."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.device = None if device.type == "cpu" else device
        self.cpu = torch.get_rng_state()
        self.own = torch.get_device_module(device).get_rng_state(device) if self.device else None
        norms = (module for module in model.modules() if getattr(module, "track_running_stats", False))
        self.statistics = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers(recurse=False)]

    def restore(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.device:
            torch.get_device_module(self.device).set_rng_state(self.own, self.device)
        for buffer, before in self.statistics:
            buffer.copy_(before)


class ChunkedForward:
    """Score the candidates of lists, cut into chunks that go through the model one after the other.

    Args:
        model: the model as Accelerate prepared it.
        rows: ``[N]`` rows of the candidates in the store, list after list.
        starts: positions in ``rows`` at which a list starts.
        budget: rows of matrix products (tokens) per chunk at most.

    Attributes:
        chunks: positions in ``rows`` that are scored together.
        empty: the number of chunks at the beginning that count for nothing.
    """

    def __init__(
        self, accelerator: Accelerator, model: nn.Module, inputs: Inputs, rows: Array, starts: Array, budget: int
    ) -> None:
        self.accelerator, self.model, self.inputs, self.device = accelerator, model, inputs, accelerator.device
        self.rows, self._list_of = rows, list_numbers(len(rows), starts)
        self.chunks = inputs.chunks(rows, starts, budget)
        self.empty = 0

    def pad(self, passes: int) -> None:
        """Score two documents again and again before the others, up to a number of passes that all processes make."""
        self.empty = max(0, passes - len(self.chunks))
        self.chunks = [self.chunks[0][:2]] * self.empty + self.chunks

    def score(self, chunk: Array) -> Tensor:
        batch = self.inputs.collate(self.rows[chunk], starts_of(self._list_of[chunk]))
        scores: Tensor = self.model({name: sent(value, self.device) for name, value in batch.items()})
        return scores

    def in_order(self, parts: list[Tensor]) -> Tensor:
        """Join the scores of all chunks but the empty ones, ``[N]`` in the order of the candidates."""
        parts, chunks = parts[self.empty :], self.chunks[self.empty :]
        if len(parts) == 1 and (np.diff(chunks[0]) == 1).all():
            return parts[0]
        order = sent(torch.from_numpy(np.argsort(np.concatenate(chunks), kind="stable")), self.device)
        return torch.cat(parts)[order]

    def by_chunk(self, gradient: Tensor) -> list[Tensor]:
        """Cut the derivatives of scores ``[N]`` into those of each chunk; empty ones have zeros."""
        parts = [gradient[sent(torch.from_numpy(chunk), self.device)] for chunk in self.chunks]
        return [torch.zeros_like(part) for part in parts[: self.empty]] + parts[self.empty :]

    def sync(self, when: bool) -> AbstractContextManager[None]:
        """Exchange gradients in a backward pass only on a condition; it holds for the forward pass before it, too."""
        return nullcontext() if when else self.accelerator.no_sync(self.model)


def backpropagate(cached: bool, forward: ChunkedForward, loss: Callable[[Tensor], Tensor], last: bool) -> None:
    r"""Add the gradient of ``loss(scores)`` to the parameters of the model.

    With scores :math:`s(\theta) \in R^N` the gradient is :math:`\sum_i \frac{\partial \ell}{\partial s_i}
    \nabla_\theta s_i`: the loss needs all scores, but the rest needs the graph of one chunk at a time. Both ways
    compute this sum, with the same random numbers.

    Args:
        cached: score all chunks without a graph, take the gradient of the loss on the scores, then score each chunk
            again and backpropagate its share (Gao et al. 2021); by default the graph of every chunk is kept.
        forward: candidates of the micro-batch.
        loss: a scalar of scores ``[N]`` in the order of the candidates.
        last: whether processes exchange gradients in the last backward pass.
    """
    *others, final = forward.chunks
    if not cached or not others:
        with forward.accelerator.autocast():  # one block for all chunks: weights are cast once
            with forward.sync(False):
                parts = [forward.score(chunk) for chunk in others]
            with forward.sync(last):
                parts.append(forward.score(final))
        with forward.sync(last):
            value = loss(forward.in_order(parts))
            for part in parts[: forward.empty]:
                value = value + 0.0 * part.sum()
            forward.accelerator.backward(value)
        return
    parts, states = [], []
    with forward.sync(False):
        with torch.no_grad(), forward.accelerator.autocast():
            for chunk in others:
                states.append(RngSnapshot(forward.model, forward.device))
                parts.append(forward.score(chunk))
        graph = forward.score(final)  # keeps its graph at once: it is scored once
        scores = forward.in_order([*parts, graph.detach()]).requires_grad_()
        forward.accelerator.backward(loss(scores))
        assert scores.grad is not None
        *gradients, gradient = forward.by_chunk(scores.grad)
        graph.backward(gradient)
    del graph
    after = RngSnapshot(forward.model, forward.device)
    again = reversed(list(zip(others, states, gradients, strict=True)))  # the order of a full graph
    for number, (chunk, state, gradient) in enumerate(again, 1):
        state.restore()
        with forward.sync(last and number == len(others)):
            forward.score(chunk).backward(gradient)
    after.restore()


def has_unused_parameters(scorer: Scorer, inputs: Inputs, lists: Lists) -> bool:
    """Test whether a pass over two documents leaves a trained parameter without a gradient, as DDP must know."""
    training = scorer.training
    rows = lists.row_numbers[: min(2, int(lists.lengths[0]))]
    ScoringModule(scorer.eval())(inputs.collate(rows, np.zeros(1, np.int64))).sum().backward()
    unused = any(parameter.requires_grad and parameter.grad is None for parameter in scorer.parameters())
    scorer.zero_grad(set_to_none=True)
    scorer.train(training)
    return unused


def tokens_that_fit(
    scorer: Scorer, inputs: Inputs, lists: Lists, usable: Array, precision: Precision
) -> tuple[int, str]:
    """Estimate how many tokens (documents, for feature vectors) fit the free memory with their graph, and say why.

    The count is rounded down to a power of two, so that it does not follow every change of the memory that other
    programs leave.
    """
    device = next(scorer.parameters()).device
    free = free_memory(device)
    if free is None:
        return UNLIMITED, f"unknown on {device.type}"
    trained = sum(p.numel() for p in scorer.parameters() if p.requires_grad)
    room = GRAPH_SHARE * max(0, free - BYTES_PER_PARAMETER * trained)
    per_token = graph_bytes(scorer, inputs, lists.select(usable[:PROBE_LISTS]), precision)
    tokens = 2 ** int(np.log2(max(1.0, room / per_token)))
    return tokens, f"{room / 1e9:.1f} GB, {per_token / 1e3:.1f} kB a token, enough for {tokens} tokens"


def graph_bytes(scorer: Scorer, inputs: Inputs, lists: Lists, precision: Precision) -> float:
    """Measure the bytes that a graph keeps per token, in a forward pass over the longest pairs of lists."""
    device = next(scorer.parameters()).device
    rows, starts = lists.row_numbers, lists.offsets[:-1]
    chunk = inputs.chunks(rows, starts, PROBE_TOKENS)[0]
    batch = inputs.collate(rows[chunk], starts_of(list_numbers(len(rows), starts)[chunk]))
    before = RngSnapshot(scorer, device)
    with kept(scorer) as count, autocast(precision, device):
        scores = scorer.score({name: sent(value, device) for name, value in batch.items()})
        size = count.bytes
        del scores
    before.restore()  # running statistics do not see the probe
    return max(1.0, size / int(inputs.lengths(rows[chunk]).sum()))
