"""One attention for all architectures that leave the choice to Transformers' interface.

Of padded texts it is ours where that is faster, else PyTorch's. Of texts that lie end to end it is
:mod:`rerank.kernels.flat_attention`, with the windows, causal masks and heads that share keys of whoever asks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from rerank.kernels.cpu_attention import ELEMENTS, Attention, Run, is_faster
from rerank.kernels.dropout import threshold
from rerank.kernels.flat import NAME
from rerank.kernels.flat_attention import SEEN, AttentionCall, Sequences, attend

HARMLESS = {"is_causal", "sliding_window", "position_ids", "token_type_ids"}
HARMLESS |= {"output_attentions", "output_hidden_states", "return_dict"}
"""What Transformers says beside the mask, and the mask has already, or is read here."""


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
    """Attention as Transformers calls it; PyTorch's own where that is faster, or more is asked than is known here.

    Raises:
        NotImplementedError: of texts end to end, where there is no other.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    states, device = [query, key, value], query.device.type
    if torch.is_autocast_enabled(device):  # as PyTorch's own does
        states = [state.to(torch.get_autocast_dtype(device)) for state in states]
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    steps = threshold(dropout) if module.training else 0
    more = {name for name, said in others.items() if said is not None and said is not False} - HARMLESS
    causal = others.get("is_causal")
    causal = getattr(module, "is_causal", True) if causal is None else causal
    if (sequences := SEEN.get()) is not None:
        if more:
            raise NotImplementedError(f"attention with {', '.join(sorted(more))}")
        window = others.get("sliding_window")
        near = None if window is None else window - 1  # Transformers counts the token itself
        rate = dropout if module.training else 0.0
        q, k, v = (state[0].transpose(0, 1) for state in states)
        call = AttentionCall(q, k, v, sequences, scale, rate, False, near, causal, module.training)
        return attend(call)[None], None
    count, heads, length, _ = query.shape
    known = not causal and not more and _plain(states, attention_mask)
    if not (known and is_faster(states[0].dtype, heads * length * length, steps, module.training)):
        others |= {"dropout": dropout, "scaling": scaling}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **others)
    runs = Sequences.of([length] * count).runs(ELEMENTS // heads)
    masks = [_part(attention_mask, run) for run in runs]
    flat = (state.transpose(1, 2).flatten(0, 1) for state in states)
    return Attention.apply(*flat, runs, masks, scale, steps, False).unflatten(0, (count, length)), None


def _plain(states: list[Tensor], mask: Tensor | None) -> bool:
    """Whether every token attends to every token that a boolean mask lets it see, on a CPU, with heads of its own."""
    query, key, _ = states
    return (
        query.device.type == "cpu"
        and len({state.dtype for state in states}) == 1
        and query.shape == key.shape
        and (mask is None or (mask.dtype == torch.bool and mask.dim() == 4))
    )


def _part(mask: Tensor | None, run: Run) -> Tensor | None:
    return mask if mask is None or len(mask) == 1 else mask[run.number : run.number + run.count]


def use_attention(network: Any) -> bool:
    """Let a Transformers model attend by :func:`attention`, if its architecture leaves the choice; whether it does."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

    if network.config._attn_implementation == "sdpa":
        AttentionInterface.register(NAME, attention)
        AttentionMaskInterface.register(NAME, sdpa_mask)
        network.set_attn_implementation(NAME)
    return bool(network.config._attn_implementation == NAME)
