"""The choice between two ways to the same numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rerank.kernels.flat import reads_flat
from rerank.kernels.implementations import Implementations, implementation_of, implementations_of
from rerank.models.text import part as kernels
from rerank.models.text.cross_encoder import CrossEncoder

MODES = [(True, True), (True, False), (False, False)]
"""Whether a network trains, and drops."""


@pytest.fixture
def model(tiny_model: Path) -> CrossEncoder:
    return CrossEncoder(str(tiny_model), query_length=8, document_length=24)


def test_a_model_takes_what_it_is_told(model: CrossEncoder) -> None:
    attention = model.network.bert.encoder.layer[0].attention.self
    assert reads_flat(model.network) and implementations_of(model.network) is None
    for way in ("torch", "own"):
        assert model.settle("fp32", way) == Implementations.all(way) == model.settle("fp32")
        assert [implementation_of(attention.train(mode), drops) for mode, drops in MODES] == [way] * 3


def test_each_mode_has_its_way(model: CrossEncoder) -> None:
    """In float32 ours is taken where weights are dropped, and nowhere else."""
    model.settle("fp32")
    attention = model.network.bert.encoder.layer[1].attention.self
    assert [implementation_of(attention.train(mode), drops) for mode, drops in MODES] == ["own", "torch", "torch"]


@pytest.mark.parametrize(("flags", "scoring"), [({"avx512_bf16"}, "own"), ({"avx512_bf16", "amx_bf16"}, "torch")])
def test_the_processor_decides_and_no_clock(
    model: CrossEncoder, flags: set[str], scoring: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "cpu_flags", lambda: flags)
    ways = model.settle("bf16")
    assert (ways.scoring, ways.training, ways.dropped, ways.dropout) == (scoring, "own", "own", "own")
    assert model.settle("fp32") != ways, "another type, another choice"
    assert model.settle("bf16") == ways


def test_the_choice_on_a_gpu_is_ours(model: CrossEncoder) -> None:
    assert model.part.implementations(torch.device("meta"), "bf16") == Implementations.all("own")
