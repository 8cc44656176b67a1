"""What an architecture tells about itself: positions, token types, the direction it reads in."""

from __future__ import annotations

import inspect
from typing import Any

FROM_PADDING = frozenset(
    [
        *("camembert", "data2vec-text", "esm", "ibert", "layoutlmv3", "longformer", "luke", "markuplm", "mpnet"),
        *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    ]
)
"""Architectures that count positions from behind the padding's, so that RoBERTa's 514 positions hold 512 tokens."""


def positions_of(config: Any, tokenizer: Any) -> int:
    """Tokens that fit a sequence: the model's positions, or what its tokenizer allows."""
    positions = getattr(config, "max_position_embeddings", None) or 10**9
    if config.model_type in FROM_PADDING:
        positions -= (config.pad_token_id or 0) + 1
    return min(positions, tokenizer.model_max_length)


def is_decoder(config: Any) -> bool:
    """Whether it reads from left to right: its first token has seen nothing, and its last one may be padding."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED

    causal = config.model_type in CAUSAL and config.model_type not in MASKED
    return (getattr(config, "is_decoder", False) or causal) and not getattr(config, "is_encoder_decoder", False)


def knows_types(network: Any) -> bool:
    """Whether a model tells the two sides apart by token types (BERT does, DistilBERT and RoBERTa do not)."""
    encoder = getattr(network, network.base_model_prefix)
    return (
        getattr(encoder.config, "type_vocab_size", 0) > 1
        and "token_type_ids" in inspect.signature(encoder.forward).parameters
    )


def changes_itself(config: Any) -> bool:
    """Whether a forward pass rewrites buffers or settings of the network, as in a few architectures."""
    rope = str(getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None))
    return config.model_type in ("big_bird", "funnel") or "dynamic" in rope or "longrope" in rope
