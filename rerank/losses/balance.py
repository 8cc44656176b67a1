"""Lists that count alike: the gradient on each list's scores gets a given norm."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def balanced(compute: Callable[[Tensor], Tensor], scores: Tensor, norms: Tensor, spread: Tensor) -> Tensor:
    """Losses whose gradient on the scores of list b has the norm ``norms_b``; none where it is but rounding.

    The gradient is taken at once, list by list, so that batch mates, padding and weights of lists count as ever.

    Args:
        compute: the losses ``[B]`` from scores ``[B, N]``, each from its own list's scores alone.
        scores: ``[B, N]``, zero where padded.
        norms: ``[B]``, without gradient.
        spread: ``[B, 1]``, how far apart scores are: a gradient that changes less than rounding does, over this
            distance, has no direction.

    Returns:
        ``[B]``, the values of ``compute``.
    """
    import torch

    if not (torch.is_grad_enabled() and scores.requires_grad):
        return compute(scores)
    leaf = scores.detach().requires_grad_()
    values = compute(leaf)
    if not values.requires_grad:
        return values
    (gradient,) = torch.autograd.grad(values.sum(), leaf)
    largest = gradient.abs().amax(dim=1, keepdim=True)
    some = largest * spread > 4 * torch.finfo(gradient.dtype).eps
    gradient = torch.where(some, gradient / torch.where(some, largest, 1.0), 0.0)  # squares must not overflow
    gradient = gradient * (norms[:, None] / gradient.norm(dim=1, keepdim=True).clamp(min=1))
    return values.detach() + ((scores - scores.detach()) * gradient).sum(dim=1)
