"""The average of models is a model whose weights are the average, and it is made of nothing that differs otherwise."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

from rerank import Lists
from rerank.errors import UserError
from rerank.models.average import average_models
from rerank.models.load import load_model
from rerank.models.text.adapter import LoRA
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.decoder import Decoder
from tests.builders import make_decoder, make_model
from tests.models.text.texts import draw_trained

SHARES = [0.2, 0.3, 0.5]


def encoders(folder: Path, count: int, lists: Lists, **settings: object) -> list[Path]:
    """Cross-encoders of one architecture, each with weights of its own."""
    base, made = make_model(folder / "base"), []
    for seed in range(count):
        model = CrossEncoder(str(base), query_length=8, document_length=24, **settings)  # type: ignore[arg-type]
        model.prepare(lists, seed)
        draw_trained(model, seed)
        made.append(folder / f"model{seed}")
        model.save(made[-1])
    return made


def check_mean(
    found: Mapping[str, Tensor], states: Sequence[Mapping[str, Tensor]], shares: Sequence[float], rtol: float = 1e-6
) -> None:
    for name, value in found.items():
        if value.is_floating_point():
            expected = sum(share * state[name].double() for share, state in zip(shares, states, strict=True))
            torch.testing.assert_close(value.double(), expected, rtol=rtol, atol=rtol / 10)


def test_a_published_model_starts_from_nothing(tmp_path: Path, lists: Lists) -> None:
    (start,), published = encoders(tmp_path, 1, lists, start="bm25"), encoders(tmp_path / "published", 1, lists)[0]
    (published / "rerank.json").unlink()
    average_models([start, published], [0.75, 0.25], tmp_path / "average")
    (weight,), (found,) = (
        load_model(folder).contract()["start"]["weights"] for folder in (start, tmp_path / "average")
    )
    assert found == pytest.approx(0.75 * weight)


@pytest.mark.parametrize("start", [None, "bm25"])
def test_the_weights_are_the_mean_of_the_weights(tmp_path: Path, start: str | None, lists: Lists) -> None:
    folders = encoders(tmp_path, 3, lists, start=start)
    average_models(folders, SHARES, tmp_path / "average")
    average_models(folders, None, tmp_path / "equal")
    states = [load_model(folder).state_dict() for folder in folders]  # type: ignore[attr-defined]
    check_mean(load_model(tmp_path / "equal").state_dict(), states, [1 / 3] * 3)  # type: ignore[attr-defined]
    model = load_model(tmp_path / "average")
    check_mean(model.state_dict(), states, SHARES)  # type: ignore[attr-defined]
    assert model.contract() == load_model(folders[0]).contract() | {
        key: model.contract()[key] for key in ("start",) if start
    }


@pytest.mark.parametrize("head", ["yes_no", "hf"])
def test_adapters_add_the_mean_of_what_they_add(tmp_path: Path, head: str) -> None:
    base, folders = make_decoder(tmp_path / "base", head=head), []
    for seed, rank in enumerate((2, 3, 4)):
        model = Decoder(str(base), template="qwen3-reranker", lora=LoRA(rank=rank, alpha=2 + seed))
        draw_trained(model, seed)
        folders.append(tmp_path / f"adapter{seed}")
        model.save(folders[-1])
    average_models(folders, SHARES, tmp_path / "average")
    states = []
    for folder in [tmp_path / "average", *folders]:
        model = Decoder.load(folder)
        model.merge()
        states.append(model.state_dict())
    check_mean(states[0], states[1:], SHARES, rtol=1e-5)


@pytest.mark.parametrize("name", ["rank_pattern", "alpha_pattern", "use_dora"])
def test_adapters_that_add_something_else_are_refused(tmp_path: Path, name: str) -> None:
    model = Decoder(str(make_decoder(tmp_path / "base")), template="qwen3-reranker", lora=LoRA(rank=2))
    for folder in (tmp_path / "one", tmp_path / "two"):
        model.save(folder)
        (folder / "rerank.json").unlink()  # as peft saves them
    path = tmp_path / "two" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: True if name == "use_dora" else {"q_proj": 4}}))
    with pytest.raises(UserError, match=f"two: adapters with {name} are not averaged"):
        average_models([tmp_path / "one", tmp_path / "two"], None, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_adapters_of_embeddings_are_refused(tmp_path: Path) -> None:
    base, lora = make_decoder(tmp_path / "base"), LoRA(rank=2, targets=["embed_tokens", "q_proj"])
    for name in ("one", "two"):
        Decoder(str(base), template="qwen3-reranker", lora=lora).save(tmp_path / name)
    with pytest.raises(UserError, match="one: adapters with adapted embeddings are not averaged"):
        average_models([tmp_path / "one", tmp_path / "two"], None, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_differs_is_refused_in_a_line(tmp_path: Path, lists: Lists) -> None:
    first, second = encoders(tmp_path, 2, lists)
    (longer,) = encoders(tmp_path / "other", 1, lists, long="max")
    wide = CrossEncoder(str(make_model(tmp_path / "wide", hidden=64)), query_length=8, document_length=24)
    wide.prepare(lists, 0)
    wide.save(tmp_path / "w")
    for folders, weights, match in [
        ([first], None, "two or more"),
        ([first, second], [1.0], "one for each of the 2 models"),
        ([first, second], [0.5, 0.6], "whose sum is 1"),
        ([first, second], [-0.5, 1.5], "at least 0"),
        ([first, longer], None, "long is 'max', not 'truncate'"),
        ([first, tmp_path / "w"], None, "models of one architecture"),
    ]:
        with pytest.raises(UserError, match=match) as caught:
            average_models(folders, weights, tmp_path / "out")
        assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_a_share_of_one_is_the_model_to_the_bit(tmp_path: Path, lists: Lists) -> None:
    folders = encoders(tmp_path, 2, lists)
    average_models(folders, [1, 0], tmp_path / "again")
    assert (load_model(tmp_path / "again").predict(lists) == load_model(folders[0]).predict(lists)).all()
