"""What is saved scores elsewhere as it does here: by transformers and by sentence-transformers; tied weights, too."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BartConfig, BartModel

from rerank.models.text.cross_encoder import CrossEncoder
from rerank.training.checkpoint import check_checkpoint
from tests.builders import make_lists, make_model, train

WORDS = ["wing", "lift", "engine", "flow", "plate", "heat", "shock", "layer", "boundary", "of", "the", "a", "in"]


def pairs(words: int) -> list[tuple[str, str]]:
    rng = random.Random(words)
    return [
        (" ".join(rng.choices(WORDS, k=3)), " ".join(rng.choices(WORDS, k=rng.randint(1, words)))) for _ in range(64)
    ]


def transformers_scores(folder: Path, given: list[tuple[str, str]]) -> np.ndarray:
    """As the model's card says, without any length of ours."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        inputs = tokenizer(given, padding=True, truncation=True, return_tensors="pt")
        return model(**inputs).logits[:, 0].numpy()


def sentence_transformers_scores(folder: Path, given: list[tuple[str, str]]) -> np.ndarray:
    cross_encoder = pytest.importorskip("sentence_transformers").CrossEncoder
    return np.asarray(cross_encoder(str(folder), device="cpu").predict(given))


@pytest.mark.parametrize("elsewhere", [transformers_scores, sentence_transformers_scores])
def test_pairs_score_the_same_elsewhere_and_long_ones_as_near_as_the_card_says(tmp_path: Path, elsewhere) -> None:  # type: ignore[no-untyped-def]
    model = CrossEncoder(str(make_model(tmp_path / "model")), query_length=8, document_length=24)
    model.save(tmp_path / "saved")
    short, long = pairs(10), pairs(60)
    ours = model.text_scores(short, precision="fp32")
    np.testing.assert_allclose(elsewhere(tmp_path / "saved", short), ours, atol=1e-5)
    ours = model.text_scores(long, precision="fp32")
    found = np.abs(elsewhere(tmp_path / "saved", long) - ours).max()
    assert found == pytest.approx(model.largest_difference(long), abs=1e-5)
    again = CrossEncoder(str(tmp_path / "saved"))
    assert (again.room, again.total) == (model.room, model.total), "it can be trained again with longer documents"
    np.testing.assert_allclose(again.text_scores(long, precision="fp32"), ours, atol=1e-5)


def test_the_card_of_a_training_says_how_far_others_are(tmp_path: Path) -> None:
    train(_words(tmp_path, make_model(tmp_path / "model")))
    card = (tmp_path / "run/best/README.md").read_text()
    assert "of the 16 training pairs with the longest documents no score differs by more than" in " ".join(card.split())


def test_tied_weights_are_saved_and_found_again(tmp_path: Path) -> None:
    """BART's encoder and decoder share their embeddings, which safetensors refuses to write as they are."""
    folder = make_model(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    sep = tokenizer.sep_token_id
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in SIZES.items()}
    tokens = {"bos_token_id": tokenizer.cls_token_id, "pad_token_id": tokenizer.pad_token_id, "eos_token_id": sep}
    config = BartConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=128,
        d_model=32,
        decoder_start_token_id=sep,
        dropout=0.0,
        **sizes,
        **tokens,
    )
    BartModel(config).save_pretrained(folder)
    words = [*_words(tmp_path, folder), "--checkpoint_every=1"]
    train(words)
    check_checkpoint(max((tmp_path / "run/checkpoints").iterdir()))
    (tmp_path / "run/measures.json").unlink()
    train([*words])
    model = CrossEncoder(str(tmp_path / "run/best"))
    assert model.network.model.encoder.embed_tokens.weight is model.network.model.decoder.embed_tokens.weight


SIZES = {"layers": 1, "attention_heads": 2, "ffn_dim": 32}


def _words(tmp_path: Path, model: Path) -> list[str]:
    lists = make_lists(tmp_path).store.folder
    words = ["--data=ListsData", f"--data.train={lists}", "--model=CrossEncoder", f"--model.name={model}"]
    words += ["--model.query_length=8", "--model.document_length=24", "--loss=ListNet", "--epochs=1", "--tracker=[]"]
    return [*words, "--precision=fp32", f"--output={tmp_path / 'run'}"]
