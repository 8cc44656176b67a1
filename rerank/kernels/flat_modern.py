"""ModernBERT's encoder over the tokens of a chunk end to end: rotary positions, layers that see all or what is near.

Of the last layer only what reaches the score is computed: for a head that reads the CLS vector its row of each text,
for one that reads the mean of all states (ModernBERT-base's own) every row.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from rerank.kernels.by_layer import called
from rerank.kernels.flat_attention import SEEN, AttentionCall, Sequences, attend
from rerank.kernels.implementations import implementation_of

MODERN = ("modernbert",)
"""Architectures made of ModernBERT's layers: ModernBERT, Ettin, gte-reranker-modernbert."""


def read_modern(base: Any, input_ids: Tensor | None = None, **given: Any) -> Any:
    """States of the CLS tokens or, if it ``reads_mean``, the means of all, ``[n, 1, H]``, where the input is flat."""
    from transformers.modeling_outputs import BaseModelOutput

    if (sequences := SEEN.get()) is None:
        return type(base).forward(base, input_ids=input_ids, **given)
    hidden = base.embeddings(input_ids=input_ids)
    kinds = {layer.attention_type for layer in base.layers}
    rotations = {kind: [part[0] for part in base.rotary_emb(hidden, given["position_ids"], kind)] for kind in kinds}
    hidden = hidden[0]
    for layer in base.layers:
        first = not base.reads_mean and layer is base.layers[-1]
        hidden = called(_layer, layer, hidden, rotations[layer.attention_type], sequences, first)
    hidden = base.final_norm(hidden)
    states = sequences.mean(hidden) if base.reads_mean else hidden[: len(sequences.lengths)]
    return BaseModelOutput(last_hidden_state=states[:, None])


def _layer(layer: Any, hidden: Tensor, rotation: list[Tensor], sequences: Sequences, first: bool) -> Tensor:
    from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

    own, device, (cos, sin) = layer.attn, hidden.device.type, rotation
    states = layer.attn_norm(hidden)
    states = states.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else states  # cast once
    size = own.head_dim
    if first:
        weight, bias, width = own.Wqkv.weight, own.Wqkv.bias, hidden.shape[1]
        others = F.linear(states, weight[width:], None if bias is None else bias[width:])
        key, value = others.unflatten(1, (2, -1, size)).unbind(1)
        hidden, asked = hidden[sequences.asked], states[sequences.asked]
        query = F.linear(asked, weight[:width], None if bias is None else bias[:width]).unflatten(1, (-1, size))
        key, _ = apply_rotary_pos_emb(key, key, cos, sin)
        query, _ = apply_rotary_pos_emb(query, query, cos[sequences.asked], sin[sequences.asked])
    else:
        query, key, value = own.Wqkv(states).unflatten(1, (3, -1, size)).unbind(1)
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
    dropout = own.attention_dropout if own.training else 0.0
    window = own.config.sliding_window if layer.attention_type == "sliding_attention" else None
    call = AttentionCall(query, key, value, sequences, size**-0.5, dropout, first, window)
    seen = attend(call, implementation_of(own, dropout > 0))
    hidden = hidden + own.out_drop(own.Wo(seen.flatten(1)))
    return hidden + layer.mlp(layer.mlp_norm(hidden))
