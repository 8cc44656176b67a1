"""Architectures whose scores depend on padding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from rerank.errors import UserError
from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import WORDS, make_model

PAIRS = [("wing", "heat"), ("wing heat", " ".join(WORDS[:20])), ("flow", "jet"), ("flow jet", " ".join(WORDS[4:24]))]


def make(kind: str, folder: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(make_model(folder))
    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "vocab_size": len(tokenizer), "max_position_embeddings": 128}
    sizes |= {"type_vocab_size": 2, "initializer_range": 0.3, "num_labels": 1, "pad_token_id": 0}
    if kind == "xlnet":
        sizes = {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 32, "vocab_size": len(tokenizer), "num_labels": 1}
        sizes |= {"initializer_range": 0.3, "pad_token_id": 0}
    if kind == "mobilebert":
        sizes |= {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16}
    if kind == "convbert":
        sizes |= {"embedding_size": 32, "num_groups": 1}
    torch.manual_seed(0)
    network = AutoModelForSequenceClassification.from_config(AutoConfig.for_model(kind, **sizes))
    if kind == "mobilebert":  # whose trained checkpoints have a vector for padding
        torch.nn.init.normal_(network.get_input_embeddings().weight)
    network.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["fnet", "convbert", "mobilebert", "yoso", "canine", "xlnet"])
def test_encoders_that_read_padding_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"scores of {kind} depend on padding"):
        CrossEncoder(str(make(kind, tmp_path / "m")), query_length=8, document_length=32)


@pytest.mark.parametrize("kind", ["deberta-v2", "electra"])
def test_scores_do_not_depend_on_batch_mates_when_padding_is_masked(kind: str, tmp_path: Path) -> None:
    model = CrossEncoder(str(make(kind, tmp_path / "m")), query_length=8, document_length=32)
    alone = np.concatenate([model.predict([pair], precision="fp32") for pair in PAIRS])
    assert np.std(alone) > 1e-4
    np.testing.assert_allclose(model.predict(PAIRS, precision="fp32"), alone, atol=1e-5)
