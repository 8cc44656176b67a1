"""Our kernels prove themselves on the network that they are put into: a new release of its library can only cost speed.

Scores and gradients of a small random batch are compared with those of the network as its library made it. Where they
differ, or ours fail, there is one warning, and the network stays what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rerank.errors import one_line
from rerank.kernels.dropout import use_cheap_dropout
from rerank.kernels.flat import NAME, flatten, reads_flat, stop_reading_flat, use_flat_decoder, use_flat_encoder
from rerank.kernels.implementations import Implementation, Implementations, use_implementations
from rerank.kernels.interface import use_attention
from rerank.kernels.precision import Precision, autocast
from rerank.progress import log

Score = Callable[[Mapping[str, Any]], Tensor]
"""The scores of a collated batch."""

Read = Callable[[], Mapping[str, Any]]
"""Gives the batch, padded or flat, once the network reads it."""

APART, ROUNDING = 1e-2, 1e-6
"""How far a gradient may be from the network's own: a share of its own length, and of that of all of them."""

APART_HALF, ROUNDING_HALF = 0.2, 4e-3
"""The same in bf16 and fp16, and how far states may be, as a share of their spread. (Of MiniLM and random networks in
bf16: up to 0.06 by other kernels, above 1 where they read other tokens.)"""


def use_kernels(network: Any, encoder: Any, score: Score, batch: Mapping[str, Tensor]) -> None:
    """Let a network attend, drop and read chunks our way, as far as that gives its own scores and gradients.

    The network is in evaluation mode, in float32 on a CPU; the encoder is what attends in it. The batch is of a few
    padded rows, of lengths that differ.
    """
    name = type(network).__name__
    use_cheap_dropout(network)
    plain, before = outcome(network, score, batch), encoder.config._attn_implementation
    if why := _differs(network, score, lambda: use_attention(encoder), lambda: batch, plain):
        log.warning("%s: our attention is not this architecture's (%s); PyTorch's is used, more slowly", name, why)
        if encoder.config._attn_implementation == NAME:
            encoder.set_attn_implementation(before)
    flat = [lambda: flatten(batch, network) if reads_flat(network) else batch]
    _prove_flat(network, score, lambda: use_flat_encoder(network), flat, plain)


def use_flat_kernels(network: Any, score: Score, batch: Mapping[str, Tensor], shared: int) -> None:
    """Let a decoder read chunks without padding, as :func:`use_kernels` does; rows begin with ``shared`` tokens."""
    plain, before = outcome(network, score, batch), network.config._attn_implementation
    if not use_attention(network):
        return
    flat = [lambda: flatten(batch, network), lambda: flatten(batch, network, shared)]
    _prove_flat(network, score, lambda: use_flat_decoder(network), flat, plain)
    if not reads_flat(network):
        network.set_attn_implementation(before)


def _prove_flat(
    network: Any, score: Score, install: Callable[[], object], flat: Sequence[Read], plain: Mapping[str, Tensor]
) -> None:
    for read in flat:
        if why := _differs(network, score, install, read, plain):
            log.warning("%s: reads texts with padding, more slowly: without it, %s", type(network).__name__, why)
            stop_reading_flat(network)
            return


def _differs(
    network: Any, score: Score, install: Callable[[], object], read: Read, plain: Mapping[str, Tensor]
) -> str | None:
    """Why what is installed does not give the network's own outcome of a batch; None where it does."""
    use_implementations(network, Implementations.all("own"))
    try:
        install()
        return difference(outcome(network, score, read()), plain)
    except Exception as error:  # whatever a new release may have moved
        return f"{type(error).__name__}: {one_line(error)}"
    finally:
        use_implementations(network, None)


def outcome(network: Any, score: Score, batch: Mapping[str, Any], precision: Precision = "fp32") -> dict[str, Tensor]:
    """Scores, and the gradient of a weighted sum of them by every vector among the parameters.

    The gradient of a bias or a norm is that of the whole way from there to the scores, without memory for matrices.
    """
    vectors = {name: p for name, p in network.named_parameters() if p.dim() == 1 and p.requires_grad}
    with torch.inference_mode(False), torch.enable_grad(), autocast(precision, next(network.parameters()).device):
        scores = score(batch)
        found = {"scores": scores.detach()}
        if vectors and scores.requires_grad:
            weights = torch.arange(1.0, scores.numel() + 1, device=scores.device).cos().view_as(scores)
            gradients = torch.autograd.grad((scores * weights).sum(), list(vectors.values()), allow_unused=True)
            found |= {name: g for name, g in zip(vectors, gradients, strict=True) if g is not None}
    return found


def difference(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], apart: float = APART, rounding: float = ROUNDING
) -> str | None:
    """What of one outcome is not the other's; None where they are the same but for rounding."""
    whole = sum(float(value.norm()) ** 2 for value in expected.values()) ** 0.5
    for name, value in expected.items():
        if name not in found:
            return f"there is no gradient of {name}"
        off = float((found[name] - value).norm())
        if not off <= apart * float(value.norm()) + rounding * whole:
            what = "scores differ" if name == "scores" else f"the gradient of {name} differs"
            return f"{what} by {off / max(float(value.norm()), 1e-30):.1%}"
    return None


def works_here(network: Any, score: Score, batch: Mapping[str, Any], precision: Precision) -> str | None:
    """Why our attention cannot be used where the network is, in the precision of its encoder; None where it can.

    The last states, and gradients of them, are compared with those by PyTorch's attention, in evaluation mode: scores
    may be 0 for all texts, or all far from 0. With dropout there is nothing to compare with, but it has to run. The
    batch is a flat one; the network's mode and torch's random numbers stay as they are.
    """
    training, device = network.training, next(network.parameters()).device
    read: list[Tensor] = []
    encoder = getattr(network, network.base_model_prefix)
    hook = encoder.register_forward_hook(lambda module, given, output: read.append(output.last_hidden_state))

    def states(batch: Mapping[str, Any]) -> Tensor:
        score(batch)
        return read.pop()[:, 0].float()

    def computed(way: Implementation) -> dict[str, Tensor]:
        use_implementations(network, Implementations.all(way))
        return outcome(network, states, batch, precision)

    try:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            network.eval()
            theirs, ours = computed("torch"), computed("own")
            expected = theirs.pop("scores")
            off, spread = (float(x.norm()) for x in (ours["scores"] - expected, expected - expected.mean(0)))
            if not off <= APART_HALF * spread:
                return f"states differ by {off:g} of {spread:g}"
            if why := difference(ours, theirs, APART_HALF, ROUNDING_HALF):
                return why
            network.train()
            if not all(bool(value.isfinite().all()) for value in computed("own").values()):
                return "with dropout its numbers are not finite"
        return None
    except Exception as error:  # a kernel that this GPU, or this release, does not have
        return f"{type(error).__name__}: {one_line(error)}"
    finally:
        hook.remove()
        network.train(training)
        use_implementations(network, None)
