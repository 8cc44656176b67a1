"""Decoders without padding give the scores and gradients of Transformers' padded forward pass."""

from __future__ import annotations

import copy
from types import MethodType
from typing import Any

import pytest

from rerank.kernels.flat import NAME, reads_flat, use_flat_decoder
from rerank.models.text.decoder import _classify
from tests.kernels.flat import check_flat, network_of, padded

WINDOW = 5
NEAR: dict[str, Any] = {"sliding_window": WINDOW}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("qwen3", {}),
    "qwen3, near": ("qwen3", NEAR | {"use_sliding_window": True, "max_window_layers": 1}),
    "qwen2": ("qwen2", {}),
    "llama": ("llama", {}),
    "mistral, near": ("mistral", NEAR),
    "gemma": ("gemma", {}),
    "gemma3, near": ("gemma3_text", NEAR),
    "phi3, near": ("phi3", NEAR),
    "olmo2": ("olmo2", {}),
}
LENGTHS = [12, 3, 9, 12, 4]


SIZES = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "pad_token_id": 0}
SIZES |= {"eos_token_id": 2, "bos_token_id": 1}


def flat_network(kind: str) -> tuple[Any, Any]:
    """Return a network that reads flat chunks, and the original one in float64."""
    name, settings = KINDS[kind]
    network = network_of(name, **SIZES | settings)
    exact = copy.deepcopy(network).double()
    use_flat_decoder(network)
    assert network.config._attn_implementation == NAME
    network.forward = MethodType(_classify, network)
    return network, exact


@pytest.mark.parametrize("kind", KINDS)
def test_flat_decoders_equal_transformers(kind: str) -> None:
    network, exact = flat_network(kind)
    assert reads_flat(network)
    check_flat(network, padded(LENGTHS, types=False, pad=0), exact)
