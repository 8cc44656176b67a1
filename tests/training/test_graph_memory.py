"""What a token's graph keeps: as measured by a forward pass, on the meta device, and by adding up the states."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from rerank.kernels import cpu_attention
from rerank.kernels.flat import reads_flat
from rerank.lists import Lists
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.training.forward import graph_bytes

HIDDEN, MIDDLE = 64, 160


def made(kind: str, layers: int, tiny_model: Path, folder: Path) -> CrossEncoder:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    sizes: dict[str, Any] = {"hidden_size": HIDDEN, "intermediate_size": MIDDLE, "num_attention_heads": 2}
    sizes |= {f"{name}_token_id": 0 for name in ("pad", "cls", "sep", "bos", "eos")}
    config = AutoConfig.for_model(
        kind, num_labels=1, vocab_size=len(tokenizer), num_hidden_layers=layers, max_position_embeddings=128, **sizes
    )
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model = CrossEncoder(str(folder), dropout=0.0, query_length=8, document_length=64)
    assert reads_flat(model.network)
    return model.train()


def cost(model: CrossEncoder, lists: Lists) -> float:
    each, _ = graph_bytes(model, model.inputs(lists), lists, np.arange(len(lists)), "fp32")
    return each


def test_weights_that_are_cast_once_cost_no_token(lists: Lists, tiny_model: Path, tmp_path: Path) -> None:
    """Under autocast the graph holds a copy of each matrix in bf16, however many tokens there are."""
    model = made("bert", 4, tiny_model, tmp_path)
    each, at_once = graph_bytes(model, model.inputs(lists), lists, np.arange(len(lists)), "bf16")
    matrices = sum(p.numel() for n, p in model.named_parameters() if p.ndim == 2 and "embedding" not in n)
    assert at_once == pytest.approx(2 * matrices, rel=0.2)
    assert each < cost(model, lists)


def test_layer_of_bert_keeps_its_states(
    lists: Lists, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its input; queries, keys, values and what they see; twice a sum and its norm; the middle before and after GELU.

    The last norm's output is the next layer's input.
    """
    monkeypatch.setattr(cpu_attention, "FASTER", (torch.float32,))  # PyTorch's attention keeps a copy of its output
    less, more = (cost(made("bert", n, tiny_model, tmp_path / str(n)), lists) for n in (2, 3))
    assert more - less == pytest.approx(4 * (8 * HIDDEN + 2 * MIDDLE), rel=0.05)
