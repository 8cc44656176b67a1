"""Networks over the tokens of a chunk end to end, without padding.

A cross-encoder's score depends on the CLS vector alone. So nothing is computed that does not reach it: no padding, and
of the last layer only the keys and values of the other tokens. This saves 10 of BERT's 12 products there: a seventh of
what scoring costs with 6 layers, a fourteenth with 12. A head that reads the mean of all states (ModernBERT-base's own)
needs every row of it. A decoder's own code reads the chunk, whatever the architecture: attention alone has to know
where texts begin (:func:`attention`), and positions count anew in each.
"""

from __future__ import annotations

from types import MethodType
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rerank.errors import UserError
from rerank.kernels.flat_attention import SEEN, AttentionCall, Sequences, attend

OWN_CODE = ("albert", "data2vec-text", "distilbert", "ernie", "roberta-prelayernorm", "xlm-roberta-xl")
"""Architectures whose own layers read a flat chunk, since they attend by Transformers' interface."""

NAME = "rerank"
"""The name under which Transformers finds :func:`attention`."""

HARMLESS = {"is_causal", "sliding_window", "position_ids", "token_type_ids"}
HARMLESS |= {"output_attentions", "output_hidden_states", "return_dict"}
"""Arguments of Transformers that change nothing, or are read here."""

SEQUENCES = "sequences"
"""Key of a flat batch: where its rows begin."""


def read_modern(base: Any, input_ids: Tensor | None = None, **given: Any) -> Any:
    """Compute the states of the CLS tokens or, if ``reads_mean``, the means of all, ``[n, 1, H]``, of flat input."""
    from transformers.modeling_outputs import BaseModelOutput

    if (sequences := SEEN.get()) is None:
        return type(base).forward(base, input_ids=input_ids, **given)
    hidden = base.embeddings(input_ids=input_ids)
    kinds = {layer.attention_type for layer in base.layers}
    rotations = {kind: [part[0] for part in base.rotary_emb(hidden, given["position_ids"], kind)] for kind in kinds}
    hidden = hidden[0]
    for layer in base.layers:
        first = not base.reads_mean and layer is base.layers[-1]
        hidden = _modern_layer(layer, hidden, rotations[layer.attention_type], sequences, first)
    hidden = base.final_norm(hidden)
    states = sequences.mean(hidden) if base.reads_mean else hidden
    return BaseModelOutput(last_hidden_state=states[:, None])


def _modern_layer(layer: Any, hidden: Tensor, rotation: list[Tensor], sequences: Sequences, first: bool) -> Tensor:
    from transformers.models.modernbert.modeling_modernbert import apply_rotary_pos_emb

    own, device, (cos, sin) = layer.attn, hidden.device.type, rotation
    states = layer.attn_norm(hidden)
    states = states.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else states  # cast once
    size = own.head_dim
    if first:
        weight, bias, width = own.Wqkv.weight, own.Wqkv.bias, hidden.shape[1]
        others = F.linear(states, weight[width:], None if bias is None else bias[width:])
        key, value = others.unflatten(1, (2, -1, size)).unbind(1)
        hidden, asked = hidden[sequences.first], states[sequences.first]
        query = F.linear(asked, weight[:width], None if bias is None else bias[:width]).unflatten(1, (-1, size))
        key, _ = apply_rotary_pos_emb(key, key, cos, sin)
        query, _ = apply_rotary_pos_emb(query, query, cos[sequences.first], sin[sequences.first])
    else:
        query, key, value = own.Wqkv(states).unflatten(1, (3, -1, size)).unbind(1)
        query, key = apply_rotary_pos_emb(query, key, cos, sin)
    dropout = own.attention_dropout if own.training else 0.0
    window = own.config.sliding_window if layer.attention_type == "sliding_attention" else None
    seen = attend(
        AttentionCall(query, key, value, sequences, size**-0.5, dropout, first, window, training=own.training)
    )
    hidden = hidden + own.out_drop(own.Wo(seen.flatten(1)))
    return hidden + layer.mlp(layer.mlp_norm(hidden))


KINDS = ("bert", "camembert", "electra", "roberta", "xlm-roberta")
"""Architectures whose encoders are made of BERT's layers, and whose heads read the CLS vector alone."""


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
        UserError: arguments that are not supported without padding.
    """
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if (sequences := SEEN.get()) is None:
        others |= {"dropout": dropout, "scaling": scaling}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **others)
    if more := {name for name, said in others.items() if said is not None and said is not False} - HARMLESS:
        raise UserError(
            f"model: its attention needs {', '.join(sorted(more))}, which is not supported; name another model"
        )
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


def use_flat_encoder(network: Any, reads: str | None = "cls") -> None:
    """Let a network read chunks without padding wherever :data:`SEEN` has one; otherwise it stays what it was.

    ``reads`` names what the head reads: the state of ``cls``, the ``mean`` of all states, or anything else (None).
    """
    base = getattr(network, network.base_model_prefix)  # methods are bound, so that a deep copy has its own
    use_attention(network if hasattr(network, "set_attn_implementation") else base)
    if reads is None:
        return
    if network.config.model_type in KINDS and not network.config.is_decoder:
        reader, forward = base.encoder, cast(Any, _encode)
    elif network.config.model_type == "modernbert":  # ModernBERT, Ettin, gte-reranker-modernbert
        reads = getattr(network.config, "classifier_pooling", "cls") if hasattr(network, "head") else reads
        reader, forward = base, read_modern
    elif network.config.model_type in OWN_CODE and base.config._attn_implementation == NAME:
        reader, forward = base.transformer if hasattr(base, "transformer") else base.encoder, _read_own
    else:
        return
    reader.reads_mean = reads == "mean"
    reader.forward = MethodType(forward, reader)
    network.reads_flat = True


def use_flat_decoder(network: Any) -> None:
    """Let a decoder read chunks without padding, if it uses :func:`attention`."""
    if use_attention(network):
        network.base_model.forward = MethodType(_read_lasts, network.base_model)
        network.reads_flat = True


def reads_flat(network: Any) -> bool:
    """Tell if a network reads chunks without padding."""
    return getattr(network, "reads_flat", False)


def lay(tokens: dict[str, Tensor], places: Tensor, lengths: Tensor, network: Any) -> dict[str, Any]:
    """Make the input of a network that reads rows end to end: ids and positions ``[1, T]``, and :class:`Sequences`.

    Args:
        tokens: the ids, and token types if there are any, ``[T]``.
        places: the place of each token in its row, ``[T]``.
        lengths: tokens of each row.
        network: the network.
    """
    sequences = Sequences.of(lengths.tolist())
    embeddings: Any = getattr(getattr(network, network.base_model_prefix), "embeddings", None)
    if hasattr(embeddings, "create_position_ids_from_input_ids"):  # RoBERTa's begin behind the padding's, and skip it
        real = tokens["input_ids"].ne(embeddings.padding_idx)
        count = real.cumsum(0)
        before = (count - real.long())[sequences.first].repeat_interleave(lengths)
        places = (count - before) * real + embeddings.padding_idx
    flat = tokens | {"position_ids": places}
    return {name: value[None] for name, value in flat.items()} | {SEQUENCES: sequences}


def on_cpu(network: Any) -> bool:
    """Tell if a network computes on a CPU."""
    return next(network.parameters()).device.type == "cpu"


def _encode(encoder: Any, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Any:
    from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

    if (sequences := SEEN.get()) is None:
        return type(encoder).forward(encoder, hidden_states, *args, **kwargs)
    hidden = hidden_states[0]
    for layer in encoder.layer:
        hidden = _layer(layer, hidden, sequences, layer is encoder.layer[-1] and not encoder.reads_mean)
    states = sequences.mean(hidden) if encoder.reads_mean else hidden
    return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=states[:, None])


def _read_lasts(base: Any, input_ids: Tensor | None = None, **given: Any) -> Any:
    """Compute a decoder's states of the last tokens, ``[n, 1, H]``, of flat input."""
    if (sequences := SEEN.get()) is None:
        return type(base).forward(base, input_ids=input_ids, **given)
    assert input_ids is not None
    # A mask that is made already: Transformers would look at the positions to make one, and the host wait for it.
    mask = torch.empty(1, 1, 1, 1, dtype=torch.bool, device=input_ids.device)
    given |= {"attention_mask": mask, "use_cache": False}
    output = type(base).forward(base, input_ids=input_ids, **given)
    output.last_hidden_state = output.last_hidden_state[0, sequences.last][:, None]
    return output


def _read_own(layers: Any, *args: Any, **given: Any) -> Any:
    """Compute an encoder's states of the CLS tokens, ``[n, 1, H]``, of flat input with its own code."""
    output = type(layers).forward(layers, *args, **given)
    if (sequences := SEEN.get()) is not None:
        hidden = output.last_hidden_state[0]
        states = sequences.mean(hidden) if layers.reads_mean else hidden[sequences.first]
        output.last_hidden_state = states[:, None]
    return output


def _layer(layer: Any, hidden: Tensor, sequences: Sequences, cls_only: bool) -> Tensor:
    own = layer.attention.self
    device, heads = hidden.device.type, (own.num_attention_heads, own.attention_head_size)
    states = hidden.to(torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else hidden  # cast once
    asked = sequences.first if cls_only else None
    found = own.query(states if asked is None else states[asked]), own.key(states), own.value(states)
    query, key, value = (each.unflatten(1, heads) for each in found)
    hidden = hidden if asked is None else hidden[asked]
    dropout = own.dropout.p if own.training else 0.0
    seen = attend(AttentionCall(query, key, value, sequences, own.scaling, dropout, cls_only, training=own.training))
    return layer.feed_forward_chunk(layer.attention.output(seen.flatten(1), hidden))
