"""ModernBERT without padding gives the scores and gradients of Transformers' padded forward pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from rerank.kernels.flat import reads_flat, use_flat_encoder
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.modules import ModularNetwork, cls_modules
from tests.kernels import flat
from tests.kernels.flat import check_flat, padded
from tests.models.text.texts import PAIRS

LENGTHS = st.lists(st.integers(1, 14), min_size=1, max_size=9)
WINDOW = 3


SETTINGS: dict[str, Any] = {f"{name}_token_id": 2 for name in ("bos", "eos", "cls", "sep")}
SETTINGS["local_attention"] = 2 * WINDOW


def network_of(head: str, layers: int = 3, every: int = 3) -> Any:
    pooling = "mean" if head == "our cls" else head  # which our head does not look at
    settings = SETTINGS | {"classifier_pooling": pooling, "global_attn_every_n_layers": every}
    network = flat.network_of("modernbert", layers, **settings)
    if head == "our cls":
        network = ModularNetwork(network.model, cls_modules(network.config.hidden_size, 0.0, 0.02), {}).eval()
        use_flat_encoder(network)
    return network


HEADS = ("cls", "mean", "our cls")
LAYERS = {"last sees near": (3, 3), "last sees all": (4, 3), "all": (3, 1)}
NETWORKS = [
    pytest.param(head, *LAYERS[layers], id=f"{head}, {layers}", marks=() if i == j else pytest.mark.slow)
    for i, head in enumerate(HEADS)
    for j, layers in enumerate(LAYERS)
]


@pytest.mark.parametrize(("head", "layers", "every"), NETWORKS)
@given(lengths=LENGTHS)
def test_flat_modernbert_equals_transformers(head: str, layers: int, every: int, lengths: list[int]) -> None:
    check_flat(network_of(head, layers, every), padded(lengths, types=False))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_cross_encoder_scores_as_transformers(pooling: str, tiny_model: Path, tmp_path: Path) -> None:
    """A saved model keeps its scores, too."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    settings = SETTINGS | {"vocab_size": len(tokenizer), "pad_token_id": 0, "classifier_pooling": pooling}
    flat.network_of("modernbert", 4, **settings).save_pretrained(tmp_path / "base")
    tokenizer.save_pretrained(tmp_path / "base")
    model = CrossEncoder(str(tmp_path / "base"))
    assert reads_flat(model.network)
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "base").eval()
    queries, documents = map(list, zip(*PAIRS, strict=True))
    batch = tokenizer(queries, documents, padding=True, return_tensors="pt", return_token_type_ids=False)
    with torch.no_grad():
        expected = theirs(**batch).logits[:, 0].numpy()
    found = model.predict(PAIRS, precision="fp32")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    model.save(tmp_path / "saved")
    np.testing.assert_array_equal(CrossEncoder(str(tmp_path / "saved")).predict(PAIRS, precision="fp32"), found)
