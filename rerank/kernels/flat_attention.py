r"""Attention within each of several sequences that lie end to end, without padding between them.

Three ways to the same sums :math:`\mathrm{softmax}(s Q_i K_i^\top) V_i` for every sequence *i*: PyTorch's kernel for
sequences of varying length where a GPU has it, batched products over sequences of equal length on a CPU, and PyTorch's
attention over padded sequences for what is left (on a GPU: float32, and sizes that the kernel does not know).
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from rerank.kernels.cpu_attention import ELEMENTS, again, attended, gradients, is_ours, keep
from rerank.kernels.dropout import threshold
from rerank.kernels.implementations import Implementation
from rerank.kernels.memory import sent
from rerank.kernels.shapes import CHUNK, ROWS, TEXT, rounded


@dataclass(frozen=True)
class Sequences:
    """Where sequences begin and end in a flat chunk.

    On a CPU a sequence may take more places than it has tokens, and the chunk have more places behind the last one, so
    that there are few shapes (:mod:`rerank.kernels.shapes`).

    Attributes:
        lengths: tokens of each.
        starts: ``[n + 1]`` int32, where each begins, and the last one ends; on the device of the tokens.
        rooms: places that each takes; as many as it has tokens, or more.
        total: places of the chunk.
    """

    lengths: tuple[int, ...]
    starts: Tensor
    rooms: tuple[int, ...]
    total: int

    @classmethod
    def of(cls, lengths: list[int], few_shapes: bool = False) -> Sequences:
        """Sequences of these lengths, on the CPU.

        Args:
            lengths: tokens of each.
            few_shapes: whether they and the chunk are rounded up.
        """
        rooms = [rounded(length, TEXT) for length in lengths] if few_shapes else lengths
        total, tokens = sum(rooms), sum(lengths)
        if few_shapes and total:
            total = rounded(total, (1 + CHUNK) * tokens / total - 1)  # texts have had some of the chunk's share
        starts = F.pad(torch.tensor(rooms, dtype=torch.int32).cumsum(0, dtype=torch.int32), (1, 0))
        return cls(tuple(lengths), starts, tuple(rooms), total)

    def to(self, device: torch.device, non_blocking: bool = False) -> Sequences:
        return replace(self, starts=sent(self.starts, device) if non_blocking else self.starts.to(device))

    @cached_property
    def first(self) -> Tensor:
        """Where each begins, ``[n]``."""
        return self.starts[:-1].long()

    @cached_property
    def asked(self) -> Tensor:
        """The same, with the last one again until their number is a multiple of eight, where shapes are to be few."""
        missing = 0 if self.is_tight else -len(self.lengths) % ROWS
        return torch.cat([self.first, self.first[-1:].expand(missing)]) if missing else self.first

    @property
    def is_tight(self) -> bool:
        """Whether every place has a token."""
        return self.total == sum(self.lengths)

    @cached_property
    def _masks(self) -> dict[tuple[int, int, int, int], Tensor | None]:
        return {}

    def mask_of(self, run: tuple[int, int, int, int]) -> Tensor | None:
        """Where the sequences of a run (:meth:`runs`) have a token, for their last places, in which some have none.

        Returns:
            ``[count, 1, 1, last]``, or None where every place has a token.
        """
        if run not in self._masks:
            number, _, count, length = run
            own = self.lengths[number : number + count]
            mask = torch.arange(min(own), length) < torch.tensor(own)[:, None]
            self._masks[run] = mask[:, None, None] if mask.shape[1] else None
        return self._masks[run]

    def mean(self, states: Tensor) -> Tensor:
        """The mean of each sequence's states, ``[n, H]``, from ``[T, H]``."""
        if self.is_tight:  # as on a GPU, where nothing may be read back, nor checked by torch
            lengths = self.starts.diff().long()
        else:
            lengths = torch.tensor(self.lengths)
            before = self.first - (lengths.cumsum(0) - lengths)
            states = states[torch.arange(sum(self.lengths)) + before.repeat_interleave(lengths)]
        return torch.segment_reduce(states.float(), "mean", lengths=lengths, axis=0, unsafe=True)

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
        """Neighbours with equally many places: number of the first, where it begins, how many, and their places.

        Args:
            most: lengths squared, added up, of those that go together.
        """
        found, start, number = [], 0, 0
        for length, group in groupby(self.rooms):
            left, together = len(list(group)), max(1, most // (length * length))
            if self.rooms != self.lengths:
                together = 1 << together.bit_length() - 1  # few shapes: pieces of 1, 2, 4, …
            while left:
                count = min(left, together) if self.rooms == self.lengths else min(1 << left.bit_length() - 1, together)
                found.append((number, start, count, length))
                number, start, left = number + count, start + count * length, left - count
        return found


class AttentionCall(NamedTuple):
    """What :func:`attend` is asked for."""

    query: Tensor
    key: Tensor
    value: Tensor
    sequences: Sequences
    scale: float
    dropout: float
    first: bool
    window: int | None = None


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    sequences: Sequences,
    scale: float,
    dropout: float,
    first: bool,
    way: Implementation | None = None,
    window: int | None = None,
) -> Tensor:
    """Attention within each sequence.

    Args:
        query: ``[T, H, d]``, or ``[n, H, d]`` with one query for each sequence.
        key: ``[T, H, d]``.
        value: ``[T, H, d]``.
        sequences: ``n`` sequences of ``T`` tokens together.
        scale: factor of the products of query and key.
        dropout: rate at which attention weights are dropped.
        first: whether there is one query for each sequence; there may be more of them, for nothing.
        way: ours, or PyTorch's attention; None for ours where it is known to be faster.
        window: how far a token sees, to both sides; None for the whole sequence.

    Returns:
        Like ``query``; 0 where no sequence is.
    """
    if window is not None and max(sequences.lengths) <= window + 1:
        window = None
    call = AttentionCall(query, key, value, sequences, scale, dropout, first, window)
    if query.device.type == "cpu":
        return _on_cpu(call, way) if window is None else _by_pytorch(call)
    if way != "torch" and window is None and _has_kernel(query):
        longest, starts = max(sequences.lengths), sequences.starts
        ends = torch.arange(len(starts), dtype=torch.int32, device=starts.device) if first else starts
        return _Flash.apply(query, key, value, ends, starts, 1 if first else longest, longest, dropout, scale)
    return _padded(call)


def _has_kernel(query: Tensor) -> bool:
    """Whether PyTorch's kernel for sequences of varying length takes these states: those of FlashAttention."""
    half, size = query.dtype in (torch.bfloat16, torch.float16), query.shape[-1]
    fits = query.device.type == "cuda" and half and size % 8 == 0 and size <= 256
    return fits and torch.cuda.get_device_capability(query.device) >= (8, 0)


DETERMINISTIC = ContextVar("deterministic", default=False)
"""Whether FlashAttention's backward pass adds up in one order: the same bits every time, more slowly."""


class _Flash(torch.autograd.Function):
    """FlashAttention over sequences of varying length, with dropout of its weights.

    ``torch.nn.attention.varlen`` has the same kernel without dropout, and only newer versions of it take a scale.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        ends: Tensor,
        starts: Tensor,
        rows: int,
        columns: int,
        dropout: float,
        scale: float,
    ) -> Tensor:
        output, sums, state, offset, _ = torch.ops.aten._flash_attention_forward(
            query, key, value, ends, starts, rows, columns, dropout, False, False, scale=scale
        )
        ctx.save_for_backward(query, key, value, output, sums, ends, starts, state, offset)
        ctx.told, ctx.scale, ctx.deterministic = (rows, columns, dropout, False), scale, DETERMINISTIC.get()
        return output

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        *states, output, sums, ends, starts, state, offset = ctx.saved_tensors
        before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        if ctx.deterministic:
            torch.use_deterministic_algorithms(True)
        try:
            found = torch.ops.aten._flash_attention_backward(
                gradient.contiguous(), *states, output, sums, ends, starts, *ctx.told, state, offset, scale=ctx.scale
            )
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        return (*found, *[None] * 6)


def _padded(call: AttentionCall) -> Tensor:
    query, key, value, sequences, scale, dropout, first, window = call
    rows = query[:, None] if first else query[sequences.columns]
    q, k, v = (state.transpose(1, 2) for state in (rows, key[sequences.columns], value[sequences.columns]))
    mask = sequences.mask[:, None, None, :]
    if window is not None:
        mask = mask & _near(mask.shape[3], window, first, mask.device)
    seen = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout, scale=scale).transpose(1, 2)
    return seen[:, 0] if first else seen.flatten(0, 1)[sequences.cells]


def _on_cpu(call: AttentionCall, way: Implementation | None) -> Tensor:
    query, key, value, sequences, scale, dropout, first, _ = call
    largest = 1 if first else max(sequences.rooms)
    if is_ours(way, query.dtype, query.shape[1] * largest * max(sequences.rooms), threshold(dropout)):
        runs = sequences.runs(ELEMENTS // query.shape[1])
        masks = [sequences.mask_of(run) for run in runs]
        return _Flat.apply(query, key, value, runs, masks, scale, threshold(dropout), first)
    return _by_pytorch(call)


def _by_pytorch(call: AttentionCall) -> Tensor:
    query, key, value, sequences, scale, dropout, first, window = call
    parts = []
    for run in sequences.runs(1 << 62):
        mask = sequences.mask_of(run)
        if mask is not None:  # of all places of the run
            mask = F.pad(mask, (run[3] - mask.shape[3], 0), value=True)
        if window is not None and run[3] > window + 1:
            near = _near(run[3], window, first, query.device)
            mask = near if mask is None else mask & near
            # Places without a token have to see something: nothing reads what becomes of them, but it is a number.
            mask = mask | ~mask.any(-1, keepdim=True)
        states = _views(run, query, key, value, first)
        parts.append(F.scaled_dot_product_attention(*states, mask, dropout_p=dropout, scale=scale))
    seen = torch.cat([part.transpose(1, 2).flatten(0, 1) for part in parts])
    return seen if len(seen) == len(query) else F.pad(seen, (0, 0, 0, 0, 0, len(query) - len(seen)))


def _near(length: int, window: int, first: bool, device: torch.device) -> Tensor:
    """Which tokens of a sequence each of them sees, or the first one does: ``[length, length]`` or ``[1, length]``."""
    places = torch.arange(length, device=device)
    return (places - places[: 1 if first else length, None]).abs() <= window


class _Flat(torch.autograd.Function):
    """Of sequences of equal length at a time, by :mod:`rerank.kernels.cpu_attention`."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        runs: list[Any],
        masks: list[Tensor | None],
        scale: float,
        steps: int,
        first: bool,
    ) -> Tensor:
        output, kept = torch.empty_like(query, memory_format=torch.contiguous_format), []
        with torch.autocast("cpu", enabled=False):
            for run, mask in zip(runs, masks, strict=True):
                states = _views(run, query, key, value, first)
                part, own = attended(*states, mask, scale, steps)
                _view(run, output, first).copy_(part)
                kept.append(own)
        output[_end(runs, first) :] = 0
        keep(ctx, kept, query, key, value)
        ctx.runs, ctx.masks, ctx.scale, ctx.steps, ctx.first = runs, masks, scale, steps, first
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        kept, query, key, value = again(ctx)
        found = [torch.empty_like(state, memory_format=torch.contiguous_format) for state in (query, key, value)]
        for run, mask, own in zip(ctx.runs, ctx.masks, kept, strict=True):
            states = _views(run, query, key, value, ctx.first)
            parts = gradients(_view(run, gradient, ctx.first), *states, mask, ctx.scale, ctx.steps, own)
            for place, part in zip(_views(run, found[0], found[1], found[2], ctx.first), parts, strict=True):
                place.copy_(part)
        for whole, first in zip(found, (ctx.first, False, False), strict=True):
            whole[_end(ctx.runs, first) :] = 0
        return (*found, None, None, None, None, None)


def _end(runs: list[tuple[int, int, int, int]], first: bool) -> int:
    """Behind the last run, in rows of queries or in places."""
    number, start, count, length = runs[-1]
    return number + count if first else start + count * length


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
