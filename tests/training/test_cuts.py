"""The gradient of a batch does not depend on how the batch is cut, for every kind of model."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rerank.lists import Lists
from rerank.losses import DirectMetric
from rerank.models.scorer import Scorer
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.relaxations import SmoothI
from tests.training.helpers import assert_equal, by_two, gradients

LOSS = DirectMetric("nDCG@10", SmoothI())


@pytest.fixture(params=["plain", "residual"])
def model(request: pytest.FixtureRequest, tiny_model: Path) -> Scorer:
    torch.manual_seed(0)
    start = "bm25" if request.param == "residual" else None
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24, start=start)
    for parameter in model.parameters():  # the last layer of a residual model starts at zero
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)
    return model


@pytest.mark.parametrize("gradient", ["full", "cached"])
def test_gradient_of_two_processes_is_that_of_one(model: Scorer, lists: Lists, gradient: str, tmp_path: Path) -> None:
    loss, whole = gradients(model, lists, LOSS)
    options = {"micro_batch_size": 2, "gradient": gradient, "token_budget": 300}
    found = by_two(tmp_path, lambda process: gradients(model, lists, LOSS, **options))
    assert not any(isinstance(one, str) for one in found), found
    for value, gradient_found in found:
        assert value == pytest.approx(loss, rel=1e-5)
        assert_equal(gradient_found, whole)
