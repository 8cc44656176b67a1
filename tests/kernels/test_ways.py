"""The choice between two ways to the same numbers."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import torch

from rerank.kernels import measured
from rerank.kernels.flat import reads_flat
from rerank.kernels.measured import faster, measure
from rerank.kernels.products import works
from rerank.kernels.ways import Ways, way_of, ways_of
from rerank.models.text.cross_encoder import CrossEncoder

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RERANK_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_the_faster_way_is_taken_and_remembered(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {name: {"own": 1.0, "torch": 2.0} for name in ("scoring", "training", "dropped")}
    monkeypatch.setattr(measured, "measure", lambda *_: times | {"dropout": {"own": 2.0, "torch": 1.0}})
    expected = Ways("own", "own", "own", "torch")
    assert faster(2, 16, torch.float32, CPU) == expected
    monkeypatch.setattr(measured, "measure", lambda *_: pytest.fail("measured again"))
    assert faster(2, 16, torch.float32, CPU) == expected
    (file,) = (home / "kernels").glob("*.json")
    about = json.loads(file.read_text())["about"]
    assert about["heads"] == 2 and about["torch"] == torch.__version__ and about["processor"]
    with pytest.raises(pytest.fail.Exception):
        faster(4, 16, torch.float32, CPU)  # other shapes
    file.write_text("{")
    with pytest.raises(pytest.fail.Exception):
        faster(2, 16, torch.float32, CPU)  # a damaged file counts for nothing


def test_a_cache_that_cannot_be_written_costs_time_only(home: Path) -> None:
    home.write_text("a file")
    assert isinstance(faster(1, 4, torch.float32, CPU), Ways)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_both_ways_are_measured_and_random_numbers_stay(kind: torch.dtype) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    found = measure(2, 8, kind, CPU)
    assert torch.equal(torch.get_rng_state(), before)
    products = {"products"} if kind == torch.bfloat16 and works() else set()
    assert found.keys() == {"scoring", "training", "dropped", "dropout"} | products
    for times in found.values():
        assert times.keys() == {"own", "torch"} and all(0 < value < 60_000 for value in times.values())


def test_a_measurement_stops_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two calls of each way at least, and no further round after a tenth of a second."""
    calls: list[str] = []
    measured._times(lambda way: (calls.append(way), time.sleep(0.06))[0], CPU)  # type: ignore[func-returns-value]
    assert calls == ["own", "torch", "own", "torch"]


def test_a_model_takes_what_it_is_told(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "measure", lambda *_: pytest.fail("measured"))
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    assert reads_flat(model.network) and ways_of(model.network) is None
    assert model.settle("fp32", "torch") == Ways.all("torch")
    assert way_of(model.network.bert.encoder.layer[0].attention.self, False) == "torch"
    told = Ways("torch", "own", "torch", "own")
    assert model.settle("fp32", kept=told) == told == model.settle("fp32")
    attention = model.network.bert.encoder.layer[1].attention.self
    assert [way_of(attention.train(mode), drops) for mode, drops in ((True, True), (True, False), (False, False))] == [
        *("torch", "own", "torch")
    ]
