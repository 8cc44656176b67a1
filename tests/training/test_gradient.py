"""Ways to take the gradient: the same numbers, in more or less memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from rerank.collections import open_collection
from rerank.errors import UserError
from rerank.features.letor import letor_lists
from rerank.lists import Lists, build_lists
from rerank.lists.sampling import Full
from rerank.losses import DirectMetric, ListNet, PairwiseHinge
from rerank.losses.base import Loss
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.networks import MLP
from rerank.relaxations import SmoothI
from rerank.training.accumulate import MemoryLimits
from rerank.training.batches import Batches
from tests.builders import make_model, random_run, write_collection, write_features
from tests.training.helpers import accumulator_of, assert_equal, by_two, gradients

LENGTHS = {"query_length": 8, "document_length": 24}
LOSS = DirectMetric("nDCG@10", SmoothI())


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Lists:
    """Lists of 1 to 150 documents."""
    folder = tmp_path_factory.mktemp("gradient")
    name = write_collection(folder / "collection", queries=7, documents=160)
    return build_lists(open_collection(name), random_run(name, [150, 1, 2, 40, 150, 3, 97]), folder / "lists")


@pytest.fixture
def model(tiny_model: Path) -> CrossEncoder:
    torch.manual_seed(0)
    return CrossEncoder(str(tiny_model), **LENGTHS)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("loss", "options"),
    [
        (LOSS, {"token_budget": 300}),
        (PairwiseHinge(), {"token_budget": 300}),
        (LOSS, {"micro_batch_size": 2, "token_budget": 1000}),
    ],
)
@pytest.mark.parametrize("gradient", ["cached", "auto"])
def test_gradient_equals_that_of_the_whole_graph(
    model: CrossEncoder, lists: Lists, loss: Loss, gradient: str, options: dict[str, int]
) -> None:
    whole = gradients(model, lists, loss)
    found = gradients(model, lists, loss, gradient=gradient, full_tokens=1500, **options)
    assert found[0] == pytest.approx(whole[0], rel=1e-5)
    assert_equal(found[1], whole[1])


@pytest.mark.parametrize(("columns", "gradient"), [(None, "full"), ("bm25", "cached")])
def test_gradient_of_two_processes_equals_that_of_one(
    columns: str | None, gradient: str, tiny_model: Path, lists: Lists, tmp_path: Path
) -> None:
    model = CrossEncoder(str(tiny_model), residual_columns=columns, **LENGTHS)  # type: ignore[arg-type]
    for parameter in model.parameters():  # the last layer of a residual model starts at zero
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)
    loss, whole = gradients(model, lists, LOSS)
    options = {"micro_batch_size": 2, "gradient": gradient, "token_budget": 300}
    found = by_two(tmp_path, lambda process: gradients(model, lists, LOSS, **options))
    assert not any(isinstance(one, str) for one in found), found
    for value, gradient_found in found:
        assert value == pytest.approx(loss, rel=1e-5)
        assert_equal(gradient_found, whole)


def test_cached_gradient_repeats_dropout(tmp_path: Path, lists: Lists) -> None:
    dropping = make_model(tmp_path, dropout=0.1)
    model = CrossEncoder(str(dropping), **LENGTHS)  # type: ignore[arg-type]
    whole = gradients(model, lists, LOSS, micro_batch_size=7, token_budget=300)
    state = torch.get_rng_state()
    found = gradients(model, lists, LOSS, micro_batch_size=7, token_budget=300, gradient="cached")
    assert torch.equal(torch.get_rng_state(), state)
    assert_equal(found[1], whole[1])
    still = gradients(CrossEncoder(str(dropping), dropout=0.0, **LENGTHS), lists, LOSS)  # type: ignore[arg-type]
    assert found[0] != pytest.approx(still[0], rel=1e-3), "there is dropout"


class Hungry(CrossEncoder):
    """Asks for more memory than there is when it is given more than 250 tokens."""

    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        if batch["input_ids"].numel() > self.__dict__.setdefault("room", 250):
            torch.empty(2**60, dtype=torch.uint8)
        return super().score(batch)


@pytest.mark.parametrize("gradient", ["cached", "full", "auto"])
def test_accumulator_halves_chunks_when_memory_runs_out(
    model: CrossEncoder, tiny_model: Path, lists: Lists, gradient: str
) -> None:
    whole = gradients(model, lists, LOSS)
    hungry = Hungry(str(tiny_model), **LENGTHS)  # type: ignore[arg-type]
    hungry.load_state_dict(model.state_dict())
    found = gradients(hungry, lists, LOSS, gradient=gradient, token_budget=1000)
    assert found[0] == pytest.approx(whole[0], rel=1e-5)
    assert_equal(found[1], whole[1])
    hungry.room = 5
    with pytest.raises(UserError, match="set gradient: cached" if gradient == "full" else "shorten the documents"):
        gradients(hungry, lists, LOSS, gradient=gradient)


def _unused_after(folder: Path) -> dict[str, Tensor]:
    """Train a network for three steps with a parameter that no score depends on."""
    lists, model = letor_lists(write_features(folder / "train.txt")), MLP(hidden=[4])
    model.prepare(lists, 42)
    model.unused = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    step = accumulator_of(model, lists, ListNet(), MemoryLimits(300))
    for groups in Batches(lists, np.arange(len(lists)), Full(), 4, 3, 42).epoch(0):
        step.accumulate(groups, 1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def test_unused_parameters_do_not_decay_in_two_processes(tmp_path: Path) -> None:
    """A gradient of zeros would let AdamW's decay move it; one process leaves it without a gradient."""
    alone = _unused_after(tmp_path)
    assert alone["unused"].tolist() == [1, 1, 1]
    for found in by_two(tmp_path, lambda process: _unused_after(tmp_path / str(process))):
        found["layers.2.bias"] = alone["layers.2.bias"]  # no gradient but rounding, of which Adam makes whole steps
        torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-4)
        assert found["unused"].tolist() == [1, 1, 1]
