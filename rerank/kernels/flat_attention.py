r"""Attention within each of several sequences that lie end to end, without padding between them.

Three ways to the same sums :math:`\mathrm{softmax}(s Q_i K_i^\top) V_i` for every sequence *i*: PyTorch's kernel for
sequences of varying length where a GPU has it, batched products over sequences of equal length on a CPU, and PyTorch's
attention over padded sequences for what is left (on a GPU: dropout, float32, and sizes that the kernel does not know).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rerank.kernels.cpu_attention import ELEMENTS, attended, gradients, is_faster
from rerank.kernels.dropout import threshold


@dataclass(frozen=True)
class Sequences:
    """Where sequences begin and end in a flat chunk.

    Attributes:
        lengths: tokens of each.
        starts: ``[n + 1]`` int32, where each begins, and the last one ends; on the device of the tokens.
    """

    lengths: tuple[int, ...]
    starts: Tensor

    @classmethod
    def of(cls, lengths: list[int]) -> Sequences:
        """Sequences of these lengths, on the CPU."""
        return cls(tuple(lengths), F.pad(torch.tensor(lengths, dtype=torch.int32).cumsum(0, dtype=torch.int32), (1, 0)))

    def to(self, device: torch.device, non_blocking: bool = False) -> Sequences:
        """The same with ``starts`` on a device."""
        return replace(self, starts=self.starts.to(device, non_blocking=non_blocking))

    @cached_property
    def first(self) -> Tensor:
        """Where each begins, ``[n]``."""
        return self.starts[:-1].long()

    @cached_property
    def columns(self) -> Tensor:
        """Rows of a table, ``[n, longest]``: the place of each token; past a sequence's end, of some other."""
        places = self.first[:, None] + torch.arange(max(self.lengths), device=self.starts.device)
        return places.clamp_(max=sum(self.lengths) - 1)

    @cached_property
    def mask(self) -> Tensor:
        """True where the table has a token, ``[n, longest]``."""
        return torch.arange(max(self.lengths), device=self.starts.device) < self.starts.diff()[:, None]

    @cached_property
    def cells(self) -> Tensor:
        """The place of each token in the table, ``[T]``."""
        total, count = sum(self.lengths), len(self.lengths)
        device = self.starts.device
        row = torch.repeat_interleave(torch.arange(count, device=device), self.starts.diff(), output_size=total)
        return row * max(self.lengths) + torch.arange(total, device=device) - self.first[row]

    def runs(self, most: int) -> list[tuple[int, int, int, int]]:
        """Neighbours of equal length: number of the first, where it begins, how many, and their length.

        Args:
            most: lengths squared, added up, of those that go together.
        """
        found, start, number = [], 0, 0
        for length, group in groupby(self.lengths):
            left, together = len(list(group)), max(1, most // (length * length))
            while left:
                count = min(left, together)
                found.append((number, start, count, length))
                number, start, left = number + count, start + count * length, left - count
        return found


def attend(
    query: Tensor, key: Tensor, value: Tensor, sequences: Sequences, scale: float, dropout: float, first: bool
) -> Tensor:
    """Attention within each sequence.

    Args:
        query: ``[T, H, d]``, or ``[n, H, d]`` with one query for each sequence.
        key: ``[T, H, d]``.
        value: ``[T, H, d]``.
        sequences: ``n`` sequences of ``T`` tokens together.
        scale: factor of the products of query and key.
        dropout: rate at which attention weights are dropped.
        first: whether there is one query for each sequence.

    Returns:
        Like ``query``.
    """
    if query.device.type == "cpu":
        return _on_cpu(query, key, value, sequences, scale, dropout, first)
    if not dropout and _has_kernel(query):
        from torch.nn.attention.varlen import varlen_attn

        longest, starts = max(sequences.lengths), sequences.starts
        ends = torch.arange(len(starts), dtype=torch.int32, device=starts.device) if first else starts
        found = varlen_attn(query, key, value, ends, starts, 1 if first else longest, longest, scale=scale)
        assert isinstance(found, Tensor)  # a pair only where more is asked for
        return found
    return _padded(query, key, value, sequences, scale, dropout, first)


def _has_kernel(query: Tensor) -> bool:
    """Whether PyTorch's kernel for sequences of varying length takes these states: those of FlashAttention."""
    half, size = query.dtype in (torch.bfloat16, torch.float16), query.shape[-1]
    fits = query.device.type == "cuda" and half and size % 8 == 0 and size <= 256
    return fits and torch.cuda.get_device_capability(query.device) >= (8, 0)


def _padded(
    query: Tensor, key: Tensor, value: Tensor, sequences: Sequences, scale: float, dropout: float, first: bool
) -> Tensor:
    rows = query[:, None] if first else query[sequences.columns]
    q, k, v = (state.transpose(1, 2) for state in (rows, key[sequences.columns], value[sequences.columns]))
    mask = sequences.mask[:, None, None, :]
    found = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout, scale=scale).transpose(1, 2)
    return found[:, 0] if first else found.flatten(0, 1)[sequences.cells]


def _on_cpu(
    query: Tensor, key: Tensor, value: Tensor, sequences: Sequences, scale: float, dropout: float, first: bool
) -> Tensor:
    largest = 1 if first else max(sequences.lengths)
    if is_faster(query.dtype, query.shape[1] * largest * max(sequences.lengths), threshold(dropout)):
        runs = sequences.runs(ELEMENTS // query.shape[1])
        return _Attention.apply(query, key, value, runs, scale, threshold(dropout), first)
    parts = [
        F.scaled_dot_product_attention(*_views(run, query, key, value, first), dropout_p=dropout, scale=scale)
        for run in sequences.runs(1 << 62)
    ]
    return torch.cat([part.transpose(1, 2).flatten(0, 1) for part in parts])


class _Attention(torch.autograd.Function):
    """Of sequences of equal length at a time, by :mod:`rerank.kernels.cpu_attention`."""

    @staticmethod
    def forward(
        ctx: Any, query: Tensor, key: Tensor, value: Tensor, runs: list[Any], scale: float, steps: int, first: bool
    ) -> Tensor:
        output, drawn = torch.empty_like(query, memory_format=torch.contiguous_format), []
        with torch.autocast("cpu", enabled=False):
            for run in runs:
                states = _views(run, query, key, value, first)
                part, words = attended(*states, None, scale, steps)
                _view(run, output, first).copy_(part)
                drawn.append(words)
        ctx.save_for_backward(query, key, value, *(words for words in drawn if words is not None))
        ctx.runs, ctx.scale, ctx.steps, ctx.first = runs, scale, steps, first
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, *drawn = ctx.saved_tensors
        found = [torch.empty_like(state, memory_format=torch.contiguous_format) for state in (query, key, value)]
        for i, run in enumerate(ctx.runs):
            states = _views(run, query, key, value, ctx.first)
            words = drawn[i] if drawn else None
            parts = gradients(_view(run, gradient, ctx.first), *states, None, ctx.scale, ctx.steps, words)
            for place, part in zip(_views(run, found[0], found[1], found[2], ctx.first), parts, strict=True):
                place.copy_(part)
        return (*found, None, None, None, None)


def _view(run: tuple[int, int, int, int], states: Tensor, first: bool = False) -> Tensor:
    """The states of a run, ``[count, H, length, d]``."""
    number, start, count, length = run
    if first:
        return states[number : number + count].unsqueeze(2)
    return states[start : start + count * length].unflatten(0, (count, length)).transpose(1, 2)


def _views(
    run: tuple[int, int, int, int], query: Tensor, key: Tensor, value: Tensor, first: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return _view(run, query, first), _view(run, key), _view(run, value)
