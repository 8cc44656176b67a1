r"""Attention within each of several sequences that lie end to end, without padding between them.

Three ways to the same sums :math:`\mathrm{softmax}(s Q_i K_i^\top) V_i` for every sequence *i*: PyTorch's kernel for
sequences of varying length where a GPU has it, batched products over sequences of equal length on a CPU, and PyTorch's
attention over padded sequences for what is left (on a GPU: float32, and sizes that the kernel does not know). A token
may see all others, those before it, or those that are near, and heads may share their keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from rerank.kernels.cpu_attention import ELEMENTS, Attention, Run, is_faster
from rerank.kernels.dropout import threshold
from rerank.kernels.memory import sent


@dataclass(frozen=True)
class Sequences:
    """Places of sequences in a flat chunk.

    Attributes:
        lengths: tokens of each.
        starts: ``[n + 1]`` int32, where each begins, and the last one ends; on the device of the tokens.
    """

    lengths: tuple[int, ...]
    starts: Tensor

    @classmethod
    def of(cls, lengths: list[int]) -> Sequences:
        """Make sequences of these lengths, on the CPU."""
        starts = F.pad(torch.tensor(lengths, dtype=torch.int32).cumsum(0, dtype=torch.int32), (1, 0))
        return cls(tuple(lengths), starts)

    def to(self, device: torch.device, non_blocking: bool = False) -> Sequences:
        return replace(self, starts=sent(self.starts, device) if non_blocking else self.starts.to(device))

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sequence."""
        return max(self.lengths)

    @cached_property
    def last(self) -> Tensor:
        """The place of each sequence's last token, ``[n]``."""
        return self.starts[1:].long() - 1

    @cached_property
    def first(self) -> Tensor:
        """The place of each sequence's first token, ``[n]``."""
        return self.starts[:-1].long()

    def mean(self, states: Tensor) -> Tensor:
        """The mean of each sequence's states, ``[n, H]``, from ``[T, H]``."""
        return torch.segment_reduce(
            states.float(), "mean", lengths=self.starts.diff().long(), axis=0, unsafe=True
        )  # a GPU would be waited for if torch checked the lengths

    @cached_property
    def columns(self) -> Tensor:
        """Rows of a table, ``[n, longest]``: the place of each token; past a sequence's end, of some other."""
        places = self.first[:, None] + torch.arange(self.longest, device=self.starts.device)
        return places.clamp_(max=sum(self.lengths) - 1)

    def visible(self, first: bool, window: int | None, causal: bool) -> Tensor:
        """Return a mask of the keys that each token of the table sees, ``[n, 1, queries or 1, keys]``."""
        places = torch.arange(self.longest, device=self.starts.device)
        mask = (places < self.starts.diff()[:, None])[:, None, None]
        if window is None and not causal:
            return mask
        return mask & _near(places[: 1 if first else None], places, window, causal)

    @cached_property
    def cells(self) -> Tensor:
        """The place of each token in the table, ``[T]``."""
        total, count = sum(self.lengths), len(self.lengths)
        device = self.starts.device
        row = torch.repeat_interleave(torch.arange(count, device=device), self.starts.diff(), output_size=total)
        return row * self.longest + torch.arange(total, device=device) - self.first[row]

    def runs(self, most: int) -> list[Run]:
        """Find neighbours of equal length, ``most`` pairs of tokens at most."""
        found, number, start = [], 0, 0
        for length, group in groupby(self.lengths):
            left, together = len(list(group)), max(1, most // (length * length))
            while left:
                count = min(left, together)
                found.append(Run(number, start, count, length))
                number, start, left = number + count, start + count * length, left - count
        return found


class AttentionCall(NamedTuple):
    """Arguments of :func:`attend`.

    Attributes:
        query: ``[T, H, d]``, or ``[n, H, d]`` with one query for each sequence.
        key: ``[T, H, d]``, or of fewer heads, each of which serves as many neighbours among the queries'.
        value: like ``key``.
        sequences: ``n`` sequences of ``T`` tokens together.
        scale: factor of the products of query and key.
        dropout: rate at which attention weights are dropped.
        first: whether there is one query for each sequence.
        window: how far a token sees, to both sides; None for the whole sequence.
        causal: whether it sees none behind it.
        training: whether the attention is part of a network in training.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    sequences: Sequences
    scale: float
    dropout: float
    first: bool
    window: int | None = None
    causal: bool = False
    training: bool = False


def attend(call: AttentionCall) -> Tensor:
    """Compute attention within each sequence, like ``query``; 0 where no sequence is."""
    if call.window is not None and call.sequences.longest <= call.window + 1:
        call = call._replace(window=None)
    if call.query.device.type == "cpu":
        return _by_pytorch(call) if call.causal or call.window is not None else _on_cpu(call)
    if not (call.first and call.window is not None) and not call.dropout and _has_kernel(call.query):
        return _by_flash(call)
    return _padded(call)


def _by_flash(call: AttentionCall) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn

    query, key, value, sequences, scale, _, first, window, causal, _ = call
    starts, key_starts, columns = sequences.starts, sequences.starts, sequences.longest
    if first:
        starts = torch.arange(len(starts), dtype=torch.int32, device=starts.device)
    # The kernel lays a sequence's last query beside its last key, and counts windows from there.
    left = -1 if window is None else window
    near, shares, rows = (left, 0 if causal else left), query.shape[1] != key.shape[1], 1 if first else columns
    seen = varlen_attn(
        query, key, value, starts, key_starts, rows, columns, scale=scale, window_size=near, enable_gqa=shares
    )
    assert isinstance(seen, Tensor)
    return seen


def _has_kernel(query: Tensor) -> bool:
    """Tell if PyTorch's kernel for sequences of varying length takes these states, as FlashAttention does."""
    half, size = query.dtype in (torch.bfloat16, torch.float16), query.shape[-1]
    fits = query.device.type == "cuda" and half and size % 8 == 0 and size <= 256
    return fits and torch.cuda.get_device_capability(query.device) >= (8, 0)


SEEN: ContextVar[Sequences | None] = ContextVar("seen", default=None)
"""The rows of the flat chunk that this thread is at; of every row the encoder then gives the one state that counts."""


@contextmanager
def having(variable: ContextVar[Any], value: Any) -> Iterator[None]:
    """Let a context variable have a value within a block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def _padded(call: AttentionCall) -> Tensor:
    query, key, value, sequences, scale, dropout, first, window, causal, _ = call
    rows = query[:, None] if first else query[sequences.columns]
    key, value = (_of_all_heads(states[sequences.columns], query.shape[1]) for states in (key, value))
    q, k, v = (states.transpose(1, 2) for states in (rows, key, value))
    mask = sequences.visible(first, window, causal)
    seen = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout, scale=scale).transpose(1, 2)
    return seen[:, 0] if first else seen.flatten(0, 1)[sequences.cells]


def _of_all_heads(states: Tensor, heads: int) -> Tensor:
    """Keys or values ``[n, L, heads, d]``, of which several heads may have the same."""
    count, length, own, size = states.shape
    if own == heads:
        return states
    return states[:, :, :, None].expand(-1, -1, -1, heads // own, -1).reshape(count, length, heads, size)


def _on_cpu(call: AttentionCall) -> Tensor:
    query, key, value, sequences, scale, dropout, first, *_ = call
    elements = query.shape[1] * sequences.longest * (1 if first else sequences.longest)
    if is_faster(query.dtype, elements, threshold(dropout), call.training):
        runs = sequences.runs(ELEMENTS // query.shape[1])
        return Attention.apply(query, key, value, runs, scale, threshold(dropout), first)
    return _by_pytorch(call)


def _by_pytorch(call: AttentionCall) -> Tensor:
    parts = []
    for run in call.sequences.runs(1 << 62):
        q, k, v = run.of_all(call.query, call.key, call.value, call.first)
        mask, shares = _mask(call, run.length), q.shape[1] != k.shape[1]
        causal = call.causal and mask is None
        part = F.scaled_dot_product_attention(q, k, v, mask, call.dropout, causal, scale=call.scale, enable_gqa=shares)
        parts.append(part.transpose(1, 2).flatten(0, 1))
    return torch.cat(parts)


def _mask(call: AttentionCall, length: int) -> Tensor | None:
    """Return the mask of a run; None if a token sees all, or all before it."""
    if call.window is None or length <= call.window + 1:
        return None
    places = torch.arange(length)
    return _near(places[: 1 if call.first else None], places, call.window, call.causal)


def _near(rows: Tensor, places: Tensor, window: int | None, causal: bool) -> Tensor:
    """Return a mask of the places that rows see: ``[…, rows, places]``."""
    before = rows[..., None] - places
    if causal:
        return before >= 0 if window is None else (before >= 0) & (before <= window)
    assert window is not None
    return before.abs() <= window
