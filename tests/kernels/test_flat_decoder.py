"""Decoders with a sliding window give without padding the scores and gradients of Transformers' padded forward pass."""

from __future__ import annotations

import copy
from types import MethodType
from typing import Any

import pytest

from rerank.kernels.flat import NAME, reads_flat, use_flat_decoder
from rerank.models.text.decoder import _classify
from tests.kernels.flat import check_flat, network_of, padded

KINDS: dict[str, dict[str, Any]] = {
    "qwen3": {"use_sliding_window": True, "max_window_layers": 1},
    "mistral": {},
    "gemma3_text": {},
    "phi3": {},
}
LENGTHS = [12, 3, 9, 12, 4]
SIZES: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4, "sliding_window": 5}
SIZES |= {"pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1}


def flat_network(kind: str) -> tuple[Any, Any]:
    """Return a network that reads flat chunks, and the original one in float64."""
    network = network_of(kind, **SIZES | KINDS[kind])
    exact = copy.deepcopy(network).double()
    use_flat_decoder(network)
    assert network.config._attn_implementation == NAME
    network.forward = MethodType(_classify, network)
    return network, exact


@pytest.mark.parametrize("kind", KINDS)
def test_flat_decoders_with_a_window_equal_transformers(kind: str) -> None:
    network, exact = flat_network(kind)
    assert reads_flat(network)
    check_flat(network, padded(LENGTHS, types=False, pad=0), exact)
