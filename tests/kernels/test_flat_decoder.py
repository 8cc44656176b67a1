"""Decoders without padding, next to Hugging Face's own forward passes over padded texts."""

from __future__ import annotations

import copy
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor

from rerank.kernels import flat_attention
from rerank.kernels.flat import NAME, can_share, reads_flat, use_flat_decoder
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
    """A network that reads flat chunks, and its architecture's own in float64."""
    name, settings = KINDS[kind]
    network = network_of(name, **SIZES | settings)
    exact = copy.deepcopy(network).double()
    use_flat_decoder(network)
    assert network.config._attn_implementation == NAME
    network.forward = MethodType(_classify, network)
    return network, exact


def alike(shared: int) -> dict[str, Tensor]:
    """Rows whose first tokens are the same."""
    batch = padded(LENGTHS, types=False, pad=0)
    batch["input_ids"][:, :shared] = batch["input_ids"][:1, :shared]
    return batch


@pytest.mark.parametrize("shared", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_gradients_are_those_of_the_architecture(kind: str, shared: int) -> None:
    network, exact = flat_network(kind)
    assert reads_flat(network) and can_share(network)
    check_flat(network, alike(shared), exact, shared)


def test_dropout_in_training_shares_nothing() -> None:
    network, _ = flat_network("qwen3")
    assert can_share(network.train())
    network.config.attention_dropout = 0.1
    assert not can_share(network) and can_share(network.eval())


def test_gradients_of_shared_texts_are_summed_in_float32() -> None:
    """In bf16 256 + 1 is 256."""
    states = torch.zeros(2, 1, 1, dtype=torch.bfloat16, requires_grad=True)
    picked = flat_attention._Picked.apply(states, torch.tensor([0, *[1] * 300]))
    (gradient,) = torch.autograd.grad(picked.sum(), states)
    assert gradient.flatten().tolist() == [1, 300]
