"""Model folders that would be scored wrongly without a word are refused, and no code of theirs runs."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GPT2Config,
    GPT2Model,
    RobertaConfig,
    RobertaModel,
)

from rerank.errors import UserError
from rerank.models.folder import PACKAGED, find_model
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.pairs import PairTemplate
from tests.builders import make_lists, make_model
from tests.models.text.texts import PAIRS

TINY = {"vocab_size": 30522, "pad_token_id": 1}


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "model"))


def refused(folder: Path, match: str, **options: Any) -> None:
    with pytest.raises(UserError, match=match) as caught:
        CrossEncoder(str(folder), **options)
    assert "\n" not in str(caught.value)


def change(folder: Path, file: str, **values: Any) -> None:
    """Write other values into a JSON file."""
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_bytes()) | values))


def change_weights(folder: Path, without: str = " ", **more: torch.Tensor) -> None:
    """Leave out the weights that have this in their names, and add others."""
    path = folder / "model.safetensors"
    weights = {name: value for name, value in load_file(path).items() if without not in name}
    save_file(weights | more, path, metadata={"format": "pt"})


@pytest.mark.parametrize("head", ["hf", "cls"])
def test_cross_encoder_refuses_decoders(folder: Path, head: str) -> None:
    change(folder, "config.json", is_decoder=True)
    for kind in ("bert", "gpt2"):
        refused(folder, f"{kind} is a decoder, whose tokens see only what is before them", head=head)
        config = GPT2Config(n_embd=8, n_layer=1, n_head=1, n_positions=64, **TINY)
        GPT2Model(config).save_pretrained(folder)


def test_positions_of_roberta_begin_behind_the_padding(folder: Path) -> None:
    """66 positions hold 64 tokens, and one more would be an IndexError."""
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
def test_missing_heads_are_logged_and_missing_layers_refused(
    folder: Path, tmp_path: Path, head: Any, caplog: pytest.LogCaptureFixture
) -> None:
    change_weights(folder, without="pooler")
    model = CrossEncoder(str(folder), head=head, query_length=8, document_length=24)
    with caplog.at_level(logging.INFO, "rerank"):
        model.prepare(make_lists(tmp_path / "some"), 42)
    assert ("classifier.weight" if head == "hf" else "scorer.2.linear.weight") in caplog.text
    change(folder, "config.json", num_hidden_layers=1)
    refused(folder, "config.json is of a smaller model.*encoder.layer.1", head=head)
    change(folder, "config.json", num_hidden_layers=3)
    refused(folder, r"lacks 16 of the encoder's weights, such as .*encoder\.layer\.2", head=head)


def test_constants_of_older_versions_are_ignored_and_other_weights_refused(folder: Path) -> None:
    change_weights(folder, **{"embeddings.position_ids": torch.arange(8)[None]})
    CrossEncoder(str(folder))
    change_weights(folder, **{"encoder.layer.0.gate": torch.ones(1)})
    refused(folder, "without a place for 1 of the weights, such as encoder.layer.0.gate")


def test_load_does_not_run_code_beside_the_weights(folder: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    imports = "from pathlib import Path\nfrom transformers import BertConfig as Config, BertModel as Model\n"
    (folder / "mine.py").write_text(f"{imports}Path({str(ran)!r}).touch()\n")
    change(folder, "config.json", auto_map={"AutoConfig": "mine.Config", "AutoModel": "mine.Model"})
    change(folder, "tokenizer_config.json", auto_map={"AutoTokenizer": ["mine.Config", "mine.Config"]})
    CrossEncoder(str(folder), query_length=8, document_length=16)
    assert not ran.exists()


def make_encoder(kind: str, folder: Path, **settings: Any) -> Path:
    """Save a classifier of an architecture, with random weights and BERT's vocabulary."""
    tokenizer = AutoTokenizer.from_pretrained(make_model(folder))
    sizes: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 32, "vocab_size": len(tokenizer), "max_position_embeddings": 128}
    sizes |= {"type_vocab_size": 2, "initializer_range": 0.3, "num_labels": 1, "pad_token_id": 0}
    if kind == "xlnet":
        sizes = {"d_model": 32, "n_layer": 2, "n_head": 2, "d_inner": 32, "vocab_size": len(tokenizer), "num_labels": 1}
        sizes |= {"initializer_range": 0.3, "pad_token_id": 0}
    torch.manual_seed(0)
    network = AutoModelForSequenceClassification.from_config(AutoConfig.for_model(kind, **sizes | settings))
    network.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["fnet", "yoso", "canine", "xlnet"])
def test_encoders_that_read_padding_are_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=rf"scores of {kind} depend on padding"):
        CrossEncoder(str(make_encoder(kind, tmp_path / "m")), query_length=8, document_length=32)


@pytest.mark.parametrize("kind", ["deberta-v2", "electra"])
def test_scores_do_not_depend_on_batch_mates_when_padding_is_masked(kind: str, tmp_path: Path) -> None:
    model = CrossEncoder(str(make_encoder(kind, tmp_path / "m")), query_length=8, document_length=32)
    alone = np.concatenate([model.predict([pair], precision="fp32") for pair in PAIRS])
    assert np.std(alone) > 1e-4
    np.testing.assert_allclose(model.predict(PAIRS, precision="fp32"), alone, atol=1e-5)


def test_find_model_prefers_an_installed_package(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "packaged").mkdir()
    model = folder.rename(tmp_path / "packaged" / "model")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(PACKAGED, "original", "packaged")
    assert find_model("original") == model
