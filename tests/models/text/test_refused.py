"""Model folders that would be scored wrongly without a word: refused with a reason."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, GPT2Config, GPT2Model, RobertaConfig, RobertaModel

from rerank.errors import UserError
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.pairs import PairTemplate
from rerank.models.weights import PACKAGED, find_model
from tests.builders import make_lists

TINY = {"vocab_size": 30522, "pad_token_id": 1}


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def refused(folder: Path, match: str, **options: Any) -> None:
    with pytest.raises(UserError, match=match):
        CrossEncoder(str(folder), **options)


def change_weights(folder: Path, rename: Callable[[str], str | None]) -> None:
    """Give weights other names; None leaves one out."""
    path = folder / "model.safetensors"
    weights = {new: value for name, value in load_file(path).items() if (new := rename(name)) is not None}
    save_file(weights, path, metadata={"format": "pt"})


@pytest.mark.parametrize("head", ["hf", "cls"])
def test_cross_encoder_refuses_decoders(folder: Path, head: str) -> None:
    """A BERT that is made one, and GPT-2."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"is_decoder": True}))
    for kind in ("bert", "gpt2"):
        refused(folder, f"{kind} is a decoder, whose tokens see only what is before them", head=head)
        config = GPT2Config(n_embd=8, n_layer=1, n_head=1, n_positions=64, **TINY)
        GPT2Model(config).save_pretrained(folder)


def test_positions_of_roberta_begin_behind_the_padding(folder: Path) -> None:
    """Its positions begin behind the padding's: 66 of them hold 64 tokens, and one more would be an IndexError."""
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    RobertaModel(RobertaConfig(max_position_embeddings=66, type_vocab_size=1, **sizes, **TINY)).save_pretrained(folder)
    model = CrossEncoder(str(folder), query_length=8)
    refused(folder, "64 positions", query_length=8, document_length=model.room - 7)
    full = CrossEncoder(str(folder), query_length=8, document_length=model.room - 8)
    assert torch.isfinite(torch.from_numpy(full.predict([("heat " * 99, "flow " * 99)]))).all()


def test_tokenizer_without_a_template_for_pairs_is_refused(folder: Path) -> None:
    from tokenizers.processors import TemplateProcessing

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="$A", pair="$A $B:1", special_tokens=[])
    with pytest.raises(UserError, match="joins query and document without anything between them"):
        PairTemplate.of(tokenizer)


@pytest.mark.parametrize("head", ["hf", "cls"])
def test_fresh_weights_are_named(
    folder: Path, tmp_path: Path, head: Literal["hf", "cls"], caplog: pytest.LogCaptureFixture
) -> None:
    change_weights(folder, lambda name: None if "pooler" in name else name)
    model = CrossEncoder(str(folder), head=head, query_length=8, document_length=24)
    with caplog.at_level(logging.INFO, "rerank"):
        model.prepare(make_lists(tmp_path / "some"), 42)
    assert ("classifier.weight" if head == "hf" else "scorer.2.linear.weight") in caplog.text
    change_weights(folder, lambda name: None if name.endswith("embeddings.LayerNorm.weight") else name)
    refused(folder, r"lacks 1 of the encoder's weights, such as .*embeddings\.LayerNorm\.weight", head=head)


def test_find_model_prefers_an_installed_package(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "packaged").mkdir()
    model = folder.rename(tmp_path / "packaged" / "model")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PACKAGED, "original", "packaged")
    assert find_model("original") == model
