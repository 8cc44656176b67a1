"""The ranks of SmoothI in one kernel, where Triton is: on a GPU, with PyTorch's own build of it.

A rank's indicators are a softmax of what all ranks before left, a chain of as many softmaxes, whatever is batched. So
PyTorch's operations take three kernels a rank, one after the other; here one kernel goes through the ranks, a list in
each of its programs, with S and C in registers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from rerank.errors import one_line
from rerank.progress import log


def in_one_kernel(shifted: Tensor) -> bool:
    """Whether :func:`launch` gives what :func:`step_by_step` does, on a device that this tensor is on."""
    return shifted.device.type == "cuda" and _works(shifted.device)


def step_by_step(
    pads: Tensor, shifted: Tensor, alphas: list[float], eliminate: float, rows: Tensor, kept: Tensor
) -> None:
    """Fill the indicators of some ranks, and C without its decay at each of them and behind the last.

    Args:
        pads: ``[B, N]``, 0, and a very small number where padded.
        shifted: S, ``[B, N]``.
        alphas: what the logits of each rank are multiplied by.
        eliminate: what C is multiplied by, less 1, where an indicator is 1.
        rows: ``[ranks, B, N]``, to be filled.
        kept: ``[ranks + 1, B, N]``, the first of which is given, to be filled.
    """
    logits = torch.empty_like(shifted)
    all_kept = kept.unbind()
    for row, own, after, alpha in zip(rows.unbind(), all_kept, all_kept[1:], alphas, strict=False):
        torch.addcmul(pads, shifted, own, value=alpha, out=logits)
        torch.softmax(logits, dim=1, out=row)
        torch.addcmul(own, own, row, value=eliminate, out=after)


def launch(pads: Tensor, shifted: Tensor, alphas: Tensor, eliminate: float, rows: Tensor, kept: Tensor) -> None:
    """The same by one kernel; the alphas are on the device."""
    count = shifted.shape[1]
    power = torch.full_like(alphas[:1], eliminate)  # a number would become float32 on its way
    width = 1 << max(0, count - 1).bit_length()
    _kernel()[(len(shifted),)](pads, shifted, alphas, power, rows, kept, len(rows), shifted.numel(), count, width)


@cache
def _works(device: torch.device) -> bool:
    """Whether there is Triton, and its kernel gives the numbers of PyTorch's."""
    try:
        drawn = torch.randn(2, 5, generator=torch.Generator().manual_seed(0)).abs().to(device)
        found, alphas = [], [3.0, 2.0, 1.0, 1.0]
        ways: tuple[tuple[Any, Any], ...] = (launch, drawn.new_tensor(alphas)), (step_by_step, alphas)
        for way, factors in ways:
            rows, kept = drawn.new_empty(4, 2, 5), drawn.new_ones(5, 2, 5)
            way(torch.zeros_like(drawn), drawn, factors, -1.25, rows, kept)
            found.append(torch.cat([rows, kept]))
        if (apart := float((found[0] - found[1]).abs().max())) <= 1e-5:
            return True
        why = f"{apart:.1e} apart"
    except Exception as error:  # no Triton, or no compiler for it
        why = f"{type(error).__name__}: {one_line(error)}"
    log.warning("SmoothI's ranks in one kernel do not work on this GPU (%s); they are computed more slowly", why)
    return False


@cache
def _kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit  # type: ignore[untyped-decorator, unused-ignore]
    def ranks(
        pads: Any,
        shifted: Any,
        alphas: Any,
        eliminate: Any,
        rows: Any,
        kept: Any,
        depth: Any,
        step: Any,
        count: Any,
        width: tl.constexpr,  # type: ignore[name-defined, unused-ignore]
    ) -> None:
        places = tl.arange(0, width)
        real = places < count
        own = tl.program_id(0) * count + places
        pad = tl.load(pads + own, mask=real, other=-float("inf"))
        score = tl.load(shifted + own, mask=real, other=0.0)
        left = tl.load(kept + own, mask=real, other=0.0)
        power = tl.load(eliminate)
        for rank in range(depth):
            logits = pad + tl.load(alphas + rank) * score * left
            weights = tl.exp(logits - tl.max(logits, axis=0))
            row = weights / tl.sum(weights, axis=0)
            left += left * row * power
            tl.store(rows + rank * step + own, row, mask=real)
            tl.store(kept + (rank + 1) * step + own, left, mask=real)

    return ranks
