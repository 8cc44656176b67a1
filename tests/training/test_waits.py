"""A step's host does not wait for the device before the step's end, counted where there is no GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rerank import losses
from rerank.lists import Lists
from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import make_lists, make_model
from tests.conftest import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
from count_kernels import Count, count_step


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Lists:
    return make_lists(tmp_path_factory.mktemp("waits"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), dropout=0.1)


def test_waits_are_seen() -> None:
    values = torch.zeros(3, device="meta")
    with Count() as count:
        values.sum().item()
        values.cpu()
        torch.zeros(3).to("meta")
        torch.zeros(3).to("meta", non_blocking=True)
        torch.ones(3).sum().item()  # on the CPU
    assert count.waits == ["a number", "a copy to the host", "a copy from the host"]
    assert count.kernels["sum"] == 1


@pytest.mark.parametrize("mode", ["full", "cached"])
@pytest.mark.parametrize(
    "name", ["SmoothINDCG", "ApproxNDCG", "NeuralNDCG", "LambdaLoss", "RankNet", "ListMLE", "ListNet"]
)
def test_a_step_waits_once_at_its_end(name: str, mode: str, lists: Lists, folder: Path) -> None:
    model: Any = CrossEncoder(str(folder), query_length=8, document_length=24).train()
    loss = losses.load_all()[name]()
    kernels, waits, within = count_step(model, model.inputs(lists), lists, loss, 300, mode)
    assert kernels["_flash_attention_forward"] >= kernels["_flash_attention_backward"] > 1
    assert waits[:within] == [], "within the step"
    assert len(waits) == within + 1, "all numbers of the step in one copy"


def test_larger_chunks_are_fewer_kernels(lists: Lists, folder: Path) -> None:
    counted = []
    for budget in (300, 100_000):
        model: Any = CrossEncoder(str(folder), query_length=8, document_length=24).train()
        kernels, *_ = count_step(model, model.inputs(lists), lists, losses.ListNet(), budget)
        counted.append(sum(kernels.values()))
    assert counted[1] < 0.3 * counted[0]
