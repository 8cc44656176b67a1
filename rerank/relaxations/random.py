"""Random numbers that belong to a list: the same whatever is batched, padded or computed beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Numbers: TypeAlias = Any
"""A tensor, or an array, of int64: the arithmetic is the same."""

_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed 64-bit integer
_MIX1 = -4658895280553007687  # 0xBF58476D1CE4E5B9
_MIX2 = -7723592293110705685  # 0x94D049BB133111EB


def _shift(x: Numbers, bits: int) -> Numbers:
    """Logical right shift: torch's is arithmetic and would smear the sign bit."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _half_mixed(x: Numbers) -> Numbers:
    return (x ^ _shift(x, 30)) * _MIX1


def _mix(x: Numbers) -> Numbers:
    """The output function of SplitMix64 (Steele, Lea and Flood 2014), a bijection that scatters counters."""
    x = _half_mixed(x)
    x = (x ^ _shift(x, 27)) * _MIX2
    return x ^ _shift(x, 31)


def drawn(seeds: Tensor | None, mask: Tensor) -> Tensor:
    """The seeds of lists; where there are none, they are drawn from torch's generator."""
    import torch

    return torch.randint(2**63 - 1, mask.shape[:1], device=mask.device) if seeds is None else seeds


def bits(seeds: Numbers, places: Numbers, draw: int = 0) -> Numbers:
    """Random numbers of 23 bits, one per document, ``[B, N]`` int64; what :func:`uniform` makes its own of.

    Of tensors, or of arrays, which is faster for small ones: seeds ``[B]``, and the place of every document among the
    real ones of its list, from 1, ``[B, N]`` or, where it is the same in all lists, ``[1, N]``.
    """
    stream = _mix(_mix(seeds + _GOLDEN) + draw)
    x = _half_mixed(stream[:, None] + places * _GOLDEN)
    return _shift((x ^ _shift(x, 27)) * _MIX2, 41)  # the last step of _mix does not reach the upper 31 bits


def uniform(seeds: Tensor | None, mask: Tensor, draw: int = 0) -> Tensor:
    """Uniform numbers in the open interval (0, 1), one per document: ``[B, N]`` float32, multiples of 2^-24.

    A number depends on the list's seed, on the index of the document among the real documents of its list and on which
    of several independent draws it is; batch mates, padding, device and process count change nothing.
    """
    return (bits(drawn(seeds, mask), mask.cumsum(1), draw).float() + 0.5) * 2.0**-23


def gumbel(seeds: Tensor | None, mask: Tensor, draw: int = 0) -> Tensor:
    """Standard Gumbel numbers, one per document: ``-log(-log(u))`` of :func:`uniform`."""
    return -(-uniform(seeds, mask, draw).log()).log()
