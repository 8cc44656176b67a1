"""Attention within texts that lie end to end, for architectures that leave the choice to Transformers' interface."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rerank.kernels.flat import NAME
from rerank.kernels.flat_attention import SEEN, AttentionCall, attend

HARMLESS = {"is_causal", "sliding_window", "position_ids", "token_type_ids"}
HARMLESS |= {"output_attentions", "output_hidden_states", "return_dict"}
"""Arguments of Transformers that change nothing, or are read here."""


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Compute attention as Transformers calls it: of padded texts PyTorch's own.

    Raises:
        NotImplementedError: arguments that are not known for texts end to end.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if (sequences := SEEN.get()) is None:
        others |= {"dropout": dropout, "scaling": scaling}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **others)
    if more := {name for name, said in others.items() if said is not None and said is not False} - HARMLESS:
        raise NotImplementedError(f"attention with {', '.join(sorted(more))}")
    states, device = [query, key, value], query.device.type
    if torch.is_autocast_enabled(device):  # as PyTorch's own does
        states = [state.to(torch.get_autocast_dtype(device)) for state in states]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    causal = others.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    window = others.get("sliding_window")
    near = None if window is None else window - 1  # Transformers counts the token itself
    rate = dropout if module.training else 0.0
    q, k, v = (state[0].transpose(0, 1) for state in states)
    call = AttentionCall(q, k, v, sequences, scale, rate, False, near, causal, module.training)
    return attend(call)[None], None


def use_attention(network: Any) -> bool:
    """Let a Transformers model use :func:`attention`; tell if its architecture leaves the choice."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    if network.config._attn_implementation == "sdpa":
        AttentionInterface.register(NAME, attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        network.set_attn_implementation(NAME)
    return bool(network.config._attn_implementation == NAME)
