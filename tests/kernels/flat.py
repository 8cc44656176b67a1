"""Small networks that read flat chunks, and what their scores and gradients are held to."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification

from rerank.kernels.flat import OWN_CODE, SEQUENCES, flatten, rows, use_flat_encoder
from rerank.kernels.interface import use_attention
from tests.close import check_close, check_gradients, gradients_of


def network_of(kind: str, layers: int = 2, dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 24}
    sizes |= {"embedding_size": 8, "vocab_size": 50, "max_position_embeddings": 40, "type_vocab_size": 2, "dim": 16}
    sizes |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout, "n_layers": 1, "n_heads": 2}
    config = AutoConfig.for_model(kind, num_labels=1, initializer_range=0.3, pad_token_id=1, **sizes)
    network = AutoModelForSequenceClassification.from_config(config).eval()
    if kind in OWN_CODE:
        assert use_attention(network)
    use_flat_encoder(network)
    return network


def read(network: Any, batch: dict[str, Tensor]) -> Tensor:
    flat = flatten(batch, network)
    sequences = flat.pop(SEQUENCES)
    with rows(sequences):
        return network(**flat).logits[:, 0]


def check_flat(network: Any, batch: dict[str, Tensor]) -> None:
    """Scores and gradients of flat chunks in float32, next to those of the architecture itself in float64."""
    exact = copy.deepcopy(network).double()
    weight = torch.arange(1.0, len(batch["input_ids"]) + 1).cos()
    found = []
    for model, scores in ((network, read(network, batch)), (exact, exact(**batch).logits[:, 0])):
        model.zero_grad(set_to_none=True)
        (scores * weight).sum().backward()
        found.append((scores, gradients_of(model)))
    check_close(found[0][0], found[1][0], "scores", least=1.0)
    check_gradients(found[0][1], found[1][1])


def check(ours: Tensor, theirs: Tensor, tensors: list[Tensor]) -> None:
    check_close(ours, theirs)
    weight = torch.arange(ours.numel(), dtype=ours.dtype).view_as(ours).cos()
    one, other = (
        dict(zip("qkv", torch.autograd.grad((output * weight).sum(), tensors), strict=True))
        for output in (ours, theirs)
    )
    check_gradients(one, other)
