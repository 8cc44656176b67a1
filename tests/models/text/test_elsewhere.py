"""Saved models score alike in transformers and sentence-transformers; tied weights, too."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BartConfig,
    BartModel,
)

from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import WORDS, make_lists, make_model
from tests.models.text.texts import train_text

SHORT = WORDS[:9]
"""Words of one piece each."""


def pairs(words: int) -> list[tuple[str, str]]:
    rng = random.Random(words)
    counts = [(3, rng.randint(1, words)) for _ in range(64)]
    return [(" ".join(rng.choices(SHORT, k=n)), " ".join(rng.choices(SHORT, k=m))) for n, m in counts]


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
def test_token_types_are_given_to_networks_that_tell_sides_apart(tmp_path: Path, kind: str) -> None:
    """The tokenizer makes types for all; DistilBERT takes none, RoBERTa knows only type 0."""
    tokenizer = AutoTokenizer.from_pretrained(make_model(tmp_path))
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    sizes |= {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id, "max_position_embeddings": 128}
    sizes |= {"type_vocab_size": 1 if kind == "roberta" else 2, "initializer_range": 0.5, "num_labels": 1}
    torch.manual_seed(0)
    network = AutoModelForSequenceClassification.from_config(AutoConfig.for_model(kind, **sizes)).eval()
    network.save_pretrained(tmp_path)
    given = pairs(10)
    inputs = dict(tokenizer(given, padding=True, return_tensors="pt"))
    assert inputs["token_type_ids"].any()
    if kind != "bert":
        del inputs["token_type_ids"]
    with torch.no_grad():
        theirs = network(**inputs).logits[:, 0].numpy()
    ours = CrossEncoder(str(tmp_path)).predict(given, precision="fp32")
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)  # theirs may be 1.6e-5 from float64


def test_tied_weights_are_saved_and_found_again(tmp_path: Path) -> None:
    """BART's encoder and decoder share their embeddings, which safetensors refuses to write as they are."""
    folder = make_model(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sep = tokenizer.sep_token_id
    layers = {"layers": 1, "attention_heads": 2, "ffn_dim": 32}
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in layers.items()}
    sizes |= {"vocab_size": len(tokenizer), "max_position_embeddings": 128, "d_model": 32}
    tokens = {"bos_token_id": tokenizer.cls_token_id, "pad_token_id": tokenizer.pad_token_id, "eos_token_id": sep}
    config = BartConfig(dropout=0.0, decoder_start_token_id=sep, **sizes, **tokens)
    BartModel(config).save_pretrained(folder)
    make_lists(tmp_path)
    for _ in range(2):  # the second resumes
        run = train_text(tmp_path / "lists", folder, tmp_path / "run", "--precision=fp32", "--checkpoint_every=1")
        (run / "results.json").unlink()
    model = CrossEncoder(str(run / "best"))
    assert model.network.model.encoder.embed_tokens.weight is model.network.model.decoder.embed_tokens.weight
