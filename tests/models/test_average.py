"""Averages of weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rerank import Lists, average_weights
from rerank.errors import UserError
from rerank.models.contract import add_to_contract, read_contract
from rerank.models.load import load_model, write_ranker
from rerank.models.text.adapter import LoRA
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.decoder import Decoder
from rerank.models.vectors.mlp import MLP
from rerank.scoring.in_sample import remember, shared_queries
from tests.builders import make_decoder, make_model
from tests.models.text.texts import draw_trained

WEIGHTS = [0.2, 0.3, 0.5]


def cross_encoders(folder: Path, count: int, lists: Lists, **settings: object) -> list[Path]:
    """Cross-encoders of one architecture with different weights."""
    base, made = make_model(folder / "base"), []
    for seed in range(count):
        model = CrossEncoder(str(base), query_length=8, document_length=24, **settings)  # type: ignore[arg-type]
        model.prepare(lists, seed)
        draw_trained(model, seed)
        made.append(folder / f"model{seed}")
        model.save(made[-1])
    return made


def networks(folder: Path, count: int, lists: Lists) -> list[Path]:
    """Networks with batch norm, whose buffers are not all floats."""
    made = [folder / f"network{seed}" for seed in range(count)]
    for seed, place in enumerate(made):
        model = MLP(hidden=[4], columns=["bm25"], batch_norm="before")
        model.prepare(lists, seed)
        model.save(place)
    return made


@pytest.mark.parametrize(("make", "weights"), [(cross_encoders, WEIGHTS), (networks, None)])
def test_average_weights_computes_the_mean(
    make: object, weights: list[float] | None, tmp_path: Path, lists: Lists
) -> None:
    folders = make(tmp_path, 3, lists)  # type: ignore[operator]
    average_weights(folders, tmp_path / "average", weights)
    states = [load_model(folder).state_dict() for folder in folders]  # type: ignore[attr-defined]
    average = load_model(tmp_path / "average")
    for name, value in average.state_dict().items():  # type: ignore[attr-defined]
        parts = zip(weights or [1 / 3] * 3, states, strict=True)
        expected = sum(share * state[name].double() for share, state in parts) if value.is_floating_point() else 0
        torch.testing.assert_close(value.double(), torch.as_tensor(expected).double(), rtol=1e-6, atol=1e-7)
    assert average.contract() == load_model(folders[0]).contract()


def test_average_weights_joins_training_queries_and_drops_interpolation(tmp_path: Path, lists: Lists) -> None:
    folders = cross_encoders(tmp_path, 2, lists)
    for number, folder in enumerate(folders):
        add_to_contract(folder, remember(lists.select([number])))
    write_ranker(folders[0], {"bm25": 0.5}, 0.5, tmp_path / "mixed")
    average_weights([tmp_path / "mixed", folders[1]], tmp_path / "average")
    assert shared_queries(lists, tmp_path / "average") == lists.query_ids[:2]
    assert "interpolation" not in read_contract(tmp_path / "average")


def test_average_weights_rejects_models_that_differ(tmp_path: Path, lists: Lists) -> None:
    first, second = cross_encoders(tmp_path, 2, lists)
    (longer,) = cross_encoders(tmp_path / "longer", 1, lists, long="max")
    decoder = Decoder(str(make_decoder(tmp_path / "decoder")), lora=LoRA(rank=2))
    decoder.save(tmp_path / "adapter")
    for folders, weights, match in [
        ([first], None, "two or more models"),
        ([first, second], [1.0], "a weight for each"),
        ([first, second], [0.5, 0.6], "in sum 1"),
        ([first, longer], None, "long differs from"),
        ([tmp_path / "adapter", tmp_path / "adapter"], None, r"merge\(\) adapters"),
    ]:
        with pytest.raises(UserError, match=match):
            average_weights(folders, tmp_path / "out", weights)
        assert not (tmp_path / "out").exists()
