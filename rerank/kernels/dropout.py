r"""Dropout at the price of a pass over the data, on a CPU.

PyTorch draws a Bernoulli variable per element, which costs many times a pass over the data. Eight bits decide
as well: an element goes where its byte is below :math:`t = \mathrm{round}(256 p)`, and what stays is divided by
:math:`1 - t/256`. So the rate is a multiple of 1/256 (0.1 is 26/256), and the expectation is exact. Bytes come from
torch's generator, eight to a number.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

STEPS = 256
"""Rates are multiples of one over this."""


def threshold(rate: float) -> int:
    """Return a rate in steps; a rate above 0 is at least one step, one below 1 leaves at least one."""
    return 0 if rate <= 0 else STEPS if rate >= 1 else min(max(1, round(rate * STEPS)), STEPS - 1)


def draw(count: int) -> Tensor:
    """Draw a random byte for each of ``count`` elements, two to a word: ``[ceil(count / 8) * 4]`` int16."""
    return torch.empty((count + 7) // 8, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)


def drop_(values: Tensor, words: Tensor, steps: int) -> Tensor:
    """Set elements to 0, in place, if their byte from :func:`draw` is below ``steps``.

    They are contiguous, of a floating-point type of 2 or 4 bytes.
    """
    flat = values.view(-1).view(torch.int16 if values.element_size() == 2 else torch.int32)
    half = len(words)
    for part, bytes_ in ((flat[:half], words & 0xFF), (flat[half:], (words >> 8) & 0xFF)):
        # Below `steps` the difference is negative: shifted by all bits but one it is -1 (all ones), elsewhere 0.
        gone = bytes_.sub_(steps).bitwise_right_shift_(15)[: len(part)]
        part.bitwise_and_(gone.bitwise_not_().to(part.dtype))
    return values


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, steps: int) -> Tensor:
        words = draw(values.numel())
        ctx.save_for_backward(words)
        ctx.steps = steps
        return drop_(values.contiguous() * (STEPS / (STEPS - steps)), words, steps)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (words,) = ctx.saved_tensors
        return drop_(gradient.contiguous() * (STEPS / (STEPS - ctx.steps)), words, ctx.steps), None


class Dropout(nn.Dropout):
    """``nn.Dropout``, by bytes on a CPU and PyTorch's own elsewhere."""

    def forward(self, values: Tensor) -> Tensor:
        steps = threshold(self.p)
        known = values.device.type == "cpu" and values.dtype in (torch.bfloat16, torch.float16, torch.float32)
        if not (self.training and known and 0 < steps < STEPS):
            return super().forward(values)
        return _Dropout.apply(values, steps)


def use_cheap_dropout(network: nn.Module) -> None:
    """Put :class:`Dropout` where ``nn.Dropout`` is."""
    for module in network.modules():
        if type(module) is nn.Dropout:
            module.__class__ = Dropout  # its mode, hooks and name stay
