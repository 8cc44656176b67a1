"""Our kernels prove themselves on the network that they are put into: a new release of its library can only cost speed.

Scores and gradients of a small random batch are compared with those of the network as its library made it. Where they
differ, or ours fail, there is one warning, and the network stays what it was.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from rerank.kernels.cpu_attention import NAME, use_cheap_attention
from rerank.kernels.dropout import use_cheap_dropout
from rerank.kernels.flat import flatten, reads_flat, stop_reading_flat, use_flat_encoder
from rerank.kernels.products import use_products
from rerank.kernels.ways import Ways, use_ways

log = logging.getLogger("rerank")

Score = Callable[[Mapping[str, Any]], Tensor]
"""The scores of a collated batch."""

APART, ROUNDING = 1e-2, 1e-6
"""How far a gradient may be from the network's own: a share of its own length, and of that of all of them."""

APART_BF16 = 0.2
"""How far scores in bf16 may be from the network's own in bf16, as a share of their spread."""


def use_kernels(network: Any, encoder: Any, score: Score, batch: Mapping[str, Tensor]) -> None:
    """Let a network attend, drop and read chunks our way, as far as that gives its own scores and gradients.

    Args:
        network: a classifier of Hugging Face, or one that looks like it, in evaluation mode, in float32 on a CPU.
        encoder: what attends in it.
        score: its scores of a batch, in order.
        batch: a few padded rows, of lengths that differ.
    """
    name = type(network).__name__
    use_cheap_dropout(network)
    use_products(network)
    plain = outcome(network, score, batch)

    def differs(install: Callable[[], None], read: Callable[[], Mapping[str, Any]]) -> str | None:
        use_ways(network, Ways.all("own"))
        try:
            install()
            return difference(outcome(network, score, read()), plain)
        except Exception as error:  # whatever a new release may have moved
            return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        finally:
            use_ways(network, None)

    before = encoder.config._attn_implementation
    if why := differs(lambda: use_cheap_attention(encoder), lambda: batch):
        log.warning("%s: our attention is not this architecture's (%s); PyTorch's is used, more slowly", name, why)
        if encoder.config._attn_implementation == NAME:
            encoder.set_attn_implementation(before)
    if why := differs(lambda: use_flat_encoder(network), lambda: _flat(batch, network)):
        log.warning("%s: reads texts with padding, more slowly: without it, %s", name, why)
        stop_reading_flat(network)


def _flat(batch: Mapping[str, Tensor], network: Any) -> Mapping[str, Any]:
    return flatten(batch, network) if reads_flat(network) else batch


def outcome(network: Any, score: Score, batch: Mapping[str, Any]) -> dict[str, Tensor]:
    """Scores, and the gradient of a weighted sum of them by every vector among the parameters.

    The gradient of a bias or a norm is that of the whole way from there to the scores, without memory for matrices.
    """
    vectors = {name: p for name, p in network.named_parameters() if p.dim() == 1 and p.requires_grad}
    device = next(network.parameters()).device.type
    with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device, enabled=False):
        scores = score(batch)
        found = {"scores": scores.detach()}
        if vectors and scores.requires_grad:
            weights = torch.arange(1.0, len(scores) + 1, device=scores.device).cos()
            gradients = torch.autograd.grad((scores * weights).sum(), list(vectors.values()), allow_unused=True)
            found |= {name: g for name, g in zip(vectors, gradients, strict=True) if g is not None}
    return found


def difference(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str | None:
    """What of one outcome is not the other's; None where they are the same but for rounding."""
    whole = sum(float(value.norm()) ** 2 for value in expected.values()) ** 0.5
    for name, value in expected.items():
        if name not in found:
            return f"there is no gradient of {name}"
        apart = float((found[name] - value).norm())
        if not apart <= APART * float(value.norm()) + ROUNDING * whole:
            what = "scores differ" if name == "scores" else f"the gradient of {name} differs"
            return f"{what} by {apart / max(float(value.norm()), 1e-30):.1%}"
    return None


def works_here(network: Any, score: Score, batch: Mapping[str, Any], kind: torch.dtype) -> str | None:
    """Why our attention cannot be used on the network's GPU, in the precision of its encoder; None where it can.

    Args:
        network: what reads flat chunks.
        score: its scores of a batch.
        batch: a flat one, on the GPU.
        kind: what the encoder computes in.
    """
    scores = {}
    try:
        for way in ("torch", "own"):
            use_ways(network, Ways.all(way))
            with torch.inference_mode(), torch.autocast("cuda", kind, enabled=kind != torch.float32):
                scores[way] = score(batch).float()
        apart = float((scores["own"] - scores["torch"]).abs().max())
        spread = float(scores["torch"].abs().max())
        return None if apart <= APART_BF16 * spread else f"scores differ by {apart:g} of {spread:g}"
    except Exception as error:  # a kernel that this GPU, or this release, does not have
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    finally:
        use_ways(network, None)
