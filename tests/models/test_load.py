"""Model folders are read by a class of ours from a table, never by one that the folder imports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from rerank.errors import UserError
from rerank.features.normalise import Normaliser, QueryZScore, find_normaliser
from rerank.lists import Lists
from rerank.models.folder import hash_model, read_contract
from rerank.models.load import load_model
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.storage.files import write_json


class Mine(CrossEncoder):
    """A user's model."""


class Doubled(Normaliser):
    """A user's normaliser."""


@pytest.fixture
def saved(tmp_path: Path, tiny_model: Path) -> Path:
    CrossEncoder(str(tiny_model), query_length=8, document_length=24).save(tmp_path / "model")
    return tmp_path / "model"


def test_load_names_a_damaged_contract(saved: Path) -> None:
    (saved / "rerank.json").write_text("{")
    with pytest.raises(UserError, match=r"rerank\.json: cannot be read"):
        load_model(saved)


def test_hash_depends_on_prompts_and_lengths(saved: Path) -> None:
    hashes = [hash_model(saved)]
    for file in ("config_sentence_transformers.json", "sentence_bert_config.json"):
        write_json(saved / file, {"max_seq_length": 16})
        hashes.append(hash_model(saved))
    assert len({*hashes}) == 3


def test_load_refuses_classes_of_others(saved: Path, tiny_model: Path) -> None:
    Mine(str(tiny_model), query_length=8, document_length=24).save(saved)
    with pytest.raises(UserError, match=rf"class: {__name__}\.Mine is not one of ours.*Mine\.load\('{saved}'\)"):
        load_model(saved)
    assert isinstance(Mine.load(saved), Mine)
    write_json(saved / "rerank.json", read_contract(saved) | {"class": "Standardise"})
    with pytest.raises(UserError, match="class: Standardise is not one of ours"):
        load_model(saved)
    assert find_normaliser(f"{__name__}.Doubled") is Doubled, "which this module has imported"
    for path in ("subprocess.Popen", "antigravity.Doubled", "rerank.features.normalise.Nothing", "CrossEncoder"):
        with pytest.raises(UserError, match="not one of ours"):
            find_normaliser(path)
    assert find_normaliser("QueryZScore") is QueryZScore
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    ("file", "match"), [("tokenizer.json", "without a tokenizer"), ("model.safetensors", ""), ("config.json", "")]
)
def test_load_refuses_a_folder_without_a_file(saved: Path, file: str, match: str) -> None:
    (saved / file).unlink()
    with pytest.raises((UserError, OSError), match=f"{saved}.*{match}"):
        load_model(saved)


@pytest.mark.parametrize("head", ["hf", "cls"])
def test_fresh_weights_follow_from_the_seed_alone(head: str, lists: Lists, tiny_model: Path) -> None:
    def drawn(*seeds: int) -> dict[str, Tensor]:
        model = CrossEncoder(str(tiny_model), head=head, query_length=8, document_length=24)
        for seed in seeds:
            model.prepare(lists, seed)
        return model.state_dict()

    def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
        return all(torch.equal(one[name], other[name]) for name in one)

    state = torch.get_rng_state()
    before, other = drawn(42), drawn(7)
    assert torch.equal(torch.get_rng_state(), state), "the state of the process is untouched"
    torch.manual_seed(5)
    assert same(drawn(), before), "before any training the seed is 42"
    assert same(drawn(42, 7), other) and not same(other, before)
    if head == "hf":  # what `torch.manual_seed(7)` before loading gave in version 1
        torch.manual_seed(7)
        plain = AutoModelForSequenceClassification.from_pretrained(tiny_model, num_labels=1)
        assert torch.equal(plain.classifier.weight, other["network.classifier.weight"])
