from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BartConfig,
    BartModel,
    DistilBertConfig,
    DistilBertModel,
)

from rerank.errors import UserError
from rerank.lists import Lists
from rerank.models.scorer import score_lists
from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import make_lists, make_model
from tests.models.independent import check_independent
from tests.models.text.test_refused import make_encoder
from tests.models.text.texts import PAIRS, train_text


@pytest.fixture(params=["hf", "cls"])
def model(request: pytest.FixtureRequest, tiny_model: Path) -> CrossEncoder:
    torch.manual_seed(1)
    return CrossEncoder(str(tiny_model), head=request.param, query_length=8, document_length=24)


def test_deep_copy_is_independent(model: CrossEncoder) -> None:
    scores, other = model.predict(PAIRS), copy.deepcopy(model)
    assert not any(module.training for module in CrossEncoder(model.name, dropout=0.3).network.modules())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(other.predict(PAIRS), scores)
    assert not model.predict(PAIRS).any()


def test_document_length_fills_positions_of_a_trained_model(tiny_model: Path, tmp_path: Path) -> None:
    """128 positions: what sentence-transformers reads of a long document, we read."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_pretrained(tiny_model, num_labels=1).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path)
    theirs = sentence_transformers.CrossEncoder(str(tmp_path), activation_fn=torch.nn.Identity())
    ours = CrossEncoder(str(tmp_path))
    assert (ours.query_length, ours.document_length) == (125 // 4, 125 - 125 // 4)
    pairs = [("heat", "flow of heat " * 20), ("jet", "a jet")]
    np.testing.assert_allclose(ours.predict(pairs, precision="fp32"), theirs.predict(pairs), atol=1e-5)
    assert CrossEncoder(str(tiny_model)).document_length == 125 - 125 // 4, "256 do not fit"


def test_save_keeps_scores(model: CrossEncoder, tmp_path: Path) -> None:
    model.save(str(tmp_path / "new" / "best"))
    again = CrossEncoder(str(tmp_path / "new" / "best"))
    assert again.contract() == model.contract()
    assert again.missing == []
    np.testing.assert_array_equal(again.predict(PAIRS), model.predict(PAIRS))
    # A file that is mapped into memory has weights anywhere, and rounding goes by where they lie.
    assert {weight.data_ptr() % 64 for weight in again.network.parameters()} == {0}


def test_scores_do_not_depend_on_batch_mates_and_bf16_keeps_them_near(tiny_model: Path, lists: Lists) -> None:
    """Neither order nor budget matters; the head is in float32."""
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    exact = check_independent(model, lists, 1, 300)
    fast = score_lists(model, model.inputs(lists), lists, precision="bf16")
    np.testing.assert_allclose(fast, exact, atol=0.05 * float(np.std(exact)) + 0.02)
    assert not np.array_equal(fast, exact)
    as_bf16 = torch.from_numpy(fast).bfloat16().float().numpy()
    assert (fast != as_bf16).mean() > 0.9, "scores that bf16 can hold would tie"


def test_rank_orders_and_cuts(model: CrossEncoder) -> None:
    documents = [document for _, document in PAIRS]
    scores = model.predict([("heat", document) for document in documents])
    ranked = model.rank("heat", documents, top_k=3, return_documents=True)
    assert [r["corpus_id"] for r in ranked] == np.argsort(-scores, kind="stable")[:3].tolist()
    assert [r["text"] for r in ranked] == [documents[r["corpus_id"]] for r in ranked]
    assert model.predict([]).shape == (0,)


def test_dropout_is_set_everywhere(tiny_model: Path, tmp_path: Path) -> None:
    distilled, tokenizer = tmp_path / "distilled", AutoTokenizer.from_pretrained(tiny_model)
    config = DistilBertConfig(vocab_size=len(tokenizer), dim=32, n_layers=1, n_heads=2, hidden_dim=64)
    DistilBertModel(config).save_pretrained(distilled)
    tokenizer.save_pretrained(distilled)
    for rate in (0.0, 0.3):
        models = CrossEncoder(str(tiny_model), dropout=rate), CrossEncoder(str(distilled), head="cls", dropout=rate)
        for model in models:
            assert {module.p for module in model.modules() if isinstance(module, torch.nn.Dropout)} == {rate}


def test_models_that_are_missing_or_too_short_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    for name, match in [
        ("./nowhere/at/all", "no such model folder"),
        ("sentence-transformers/all-MiniLM-L6-v3", "did you mean"),
        (tmp_path, r"no config\.json"),
        (tiny_model, "128 positions"),
    ]:
        with pytest.raises(UserError, match=match):
            CrossEncoder(str(name), query_length=64, document_length=64)


def test_lone_surrogate_is_read_as_an_unknown_sign(tiny_model: Path) -> None:
    """JSON's escapes can spell it."""
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=16)
    scores = model.predict([("wing", json.loads('"\\ud800 flow"')), ("wing", "\ufffd flow")])
    np.testing.assert_allclose(scores[0], scores[1], atol=1e-6)


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
def test_token_types_are_given_to_networks_that_tell_sides_apart(tmp_path: Path, kind: str) -> None:
    """The tokenizer makes types for all; DistilBERT takes none, RoBERTa knows only type 0."""
    make_encoder(kind, tmp_path, type_vocab_size=1 if kind == "roberta" else 2)
    network = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    inputs = dict(AutoTokenizer.from_pretrained(tmp_path)(PAIRS, padding=True, return_tensors="pt"))
    assert inputs["token_type_ids"].any()
    if kind != "bert":
        del inputs["token_type_ids"]
    with torch.no_grad():
        theirs = network(**inputs).logits[:, 0].numpy()
    ours = CrossEncoder(str(tmp_path)).predict(PAIRS, precision="fp32")
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
