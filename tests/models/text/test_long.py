"""Documents beyond the model's positions, read in chunks."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rerank.collections import open_collection
from rerank.errors import UserError
from rerank.lists import Lists, build_lists
from rerank.models.load import load_model
from rerank.models.scorer import score_lists
from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import WORDS, make_model, random_run, with_positions, write_collection
from tests.close import check_close, check_gradients, gradients_of
from tests.models.independent import check_independent

POSITIONS, QUERY, DOCUMENT = 40, 6, 100
CAPACITY = POSITIONS - 3 - QUERY


@pytest.fixture(scope="module")
def short_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT whose tokenizer allows few positions."""
    return with_positions(make_model(tmp_path_factory.mktemp("models") / "short", hidden=16), POSITIONS)


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Lists:
    """Documents of 1 to 160 words: some fit, some take up to four chunks, some are cut."""
    folder = tmp_path_factory.mktemp("long")
    name = write_collection(folder / "collection", queries=4, documents=24)
    corpus = folder / "collection" / "corpus.jsonl"
    rng = random.Random(1)
    texts = [" ".join(rng.choices(WORDS, k=rng.choice([1, 20, 30, 60, 90, 160]))) for _ in range(24)]
    corpus.write_text("".join(json.dumps({"_id": f"d{i}", "title": "", "text": t}) + "\n" for i, t in enumerate(texts)))
    return build_lists(open_collection(name), random_run(name, [9, 1, 12, 5]), folder / "lists")


def model_of(folder: Path, long: Any, head: Any = "cls", **options: Any) -> CrossEncoder:
    torch.manual_seed(2)
    lengths = {"query_length": QUERY, "document_length": DOCUMENT} | options
    return CrossEncoder(str(folder), head=head, long=long, **lengths).eval()


def pieces(model: CrossEncoder, text: str) -> list[int]:
    return model.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]


def rows_by_hand(model: CrossEncoder, query: str, document: str) -> list[dict[str, torch.Tensor]]:
    """One row per chunk, built from the ids of special tokens."""
    cls, sep = model.tokenizer.cls_token_id, model.tokenizer.sep_token_id
    asked, ids = pieces(model, query)[:QUERY], pieces(model, document)[:DOCUMENT]
    count = max(1, math.ceil(len(ids) / CAPACITY))
    size = math.ceil(len(ids) / count)
    rows = []
    for i in range(count):
        chunk = ids[i * size : (i + 1) * size]
        row = {"input_ids": torch.tensor([[cls, *asked, sep, *chunk, sep]])}
        if model.template.types is not None:
            row["token_type_ids"] = torch.tensor([[0] * (len(asked) + 2) + [1] * (len(chunk) + 1)])
        rows.append(row)
    return rows


def pairs_of(lists: Lists) -> list[tuple[str, str]]:
    frame = lists.to_dataframe()
    return list(zip(frame["query"], frame["text"], strict=True))


def test_cls_mean_is_the_head_on_the_mean_of_cls_vectors(short_model: Path, lists: Lists) -> None:
    """Scores and gradients against a loop over chunks that calls transformers' own modules."""
    model = model_of(short_model, "cls_mean")
    network: Any = model.network
    assert model.head_parameters() == {"network.scorer.2.linear.weight", "network.scorer.2.linear.bias"}
    expected = []
    for query, document in pairs_of(lists):
        vectors = [network.encoder(**row).last_hidden_state[:, :1] for row in rows_by_hand(model, query, document)]
        mean = torch.stack(vectors).mean(0)
        expected.append(network.scorer[-1].linear(mean[:, 0])[0, 0])
    torch.stack(expected).square().sum().backward()
    theirs = gradients_of(model)
    model.zero_grad(set_to_none=True)
    inputs = model.inputs(lists)
    batch = inputs.collate(lists.row_numbers, lists.offsets[:-1])
    assert {int(n) for n in batch["chunks"]} == {1, 2, 3, 4}
    scores = model.score(batch)
    check_close(scores, torch.stack(expected))
    scores.square().sum().backward()
    check_gradients(gradients_of(model), theirs)


def test_max_is_the_score_of_the_best_chunk(short_model: Path, lists: Lists) -> None:
    model = model_of(short_model, "max", "hf")
    expected = []
    for query, document in pairs_of(lists):
        with torch.no_grad():
            scores = [model.network(**row).logits.item() for row in rows_by_hand(model, query, document)]
        expected.append(max(scores))
    found = score_lists(model, model.inputs(lists), lists, precision="fp32")
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.predict(pairs_of(lists)), expected, rtol=0.1, atol=0.1)  # bf16 where it is fast


def test_scores_depend_on_neither_order_nor_batch_mates(short_model: Path, lists: Lists) -> None:
    model = model_of(short_model, "cls_mean")
    assert check_independent(model, lists, 1, 150).shape == (lists.size,), "one score per pair, not per chunk"


@pytest.mark.parametrize(("long", "head"), [("max", "hf"), ("cls_mean", "cls")])
def test_save_keeps_the_reading_of_long_documents(short_model: Path, tmp_path: Path, long: str, head: str) -> None:
    """A document that fits scores as with ``truncate``."""
    cut, model = model_of(short_model, "truncate", head, document_length=CAPACITY), model_of(short_model, long, head)
    rng = random.Random(3)
    fitting = [("wing flow", " ".join(rng.choices(WORDS, k=k))) for k in (0, 1, 5, CAPACITY - 6)]
    assert max(len(pieces(cut, document)) for _, document in fitting) <= CAPACITY
    np.testing.assert_array_equal(model.predict(fitting), cut.predict(fitting))
    model.save(tmp_path)
    again: Any = load_model(tmp_path)
    assert again.contract() == model.contract()
    assert (again.long, again.document_length) == (long, DOCUMENT)
    pairs = [*fitting, ("wing", "laminar flow " * 60)]
    np.testing.assert_allclose(again.predict(pairs), model.predict(pairs), atol=1e-6)


def test_lengths_and_heads_that_do_not_fit_are_refused(short_model: Path) -> None:
    for long, query_length, match in [
        ("truncate", QUERY, "max reads longer"),
        ("mean", QUERY, "expected 'truncate', 'max'"),
        ("max", POSITIONS, "40 positions"),
    ]:
        with pytest.raises(UserError, match=match):
            model_of(short_model, long, query_length=query_length)
    assert CrossEncoder(str(short_model), long="max").document_length == 800
    with pytest.raises(UserError, match=r"choose model\.head cls"):
        model_of(short_model, "cls_mean", "hf")


def test_saved_model_keeps_its_positions(tiny_model: Path, tmp_path: Path) -> None:
    """A saved tokenizer says how much the model reads, the contract how much there is room for."""
    CrossEncoder(str(tiny_model), query_length=8, document_length=16).save(tmp_path / "short")
    model = CrossEncoder(str(tmp_path / "short"), long="max", document_length=100)
    model.save(tmp_path / "long")
    again = load_model(tmp_path / "long")
    assert isinstance(again, CrossEncoder) and again.positions == model.positions > 100
    pairs = [("wing flow", "wing flow pressure heat shock layer " * 12)]
    assert again.predict(pairs) == model.predict(pairs)
