"""Queries, keys and values by one product, as on a GPU, give the architecture's own scores and gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from rerank.kernels import products as one_product
from rerank.kernels.flat import KINDS
from rerank.kernels.products import LAID, by_one_product, weights_stay
from tests.close import gradients_of
from tests.kernels.flat import check_flat, network_of, padded, read

BATCHES = [[6, 9, 1], [3, 5]]


@pytest.fixture
def on_a_gpu() -> Iterator[mock.Mock]:
    with mock.patch("rerank.kernels.flat.by_one_product", lambda own, _: by_one_product(own, "cuda")):
        yield mock.patch.object(one_product, "_laid", wraps=one_product._laid)


@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_gradients_are_those_of_the_architecture(kind: str, on_a_gpu: Any) -> None:
    with on_a_gpu as laid:
        check_flat(network_of(kind), padded([6, 9, 1, 4]))
    assert laid.call_count == 2, "once in each layer"


@pytest.mark.parametrize("half", [False, True])
def test_chunks_of_a_pass_share_weights_and_their_gradients_add_up(half: bool, on_a_gpu: Any) -> None:
    """In one backward pass, and in one for each chunk; and the next pass has the next weights."""
    network = network_of("bert")
    optimizer = torch.optim.SGD(network.parameters(), 0.1)

    def passed(at_once: bool) -> tuple[dict[str, Tensor], int]:
        network.zero_grad(set_to_none=True)
        with weights_stay(), torch.autocast("cpu", enabled=half):
            with torch.no_grad():
                read(network, padded(BATCHES[0]))
            scores = [read(network, padded(lengths)).float().sum() for lengths in BATCHES]
            laid = len(LAID.get() or ())
        torch.stack(scores).sum().backward() if at_once else [score.backward() for score in scores]
        return gradients_of(network), laid

    for _ in range(2):
        with mock.patch("rerank.kernels.flat.by_one_product", lambda *_: False):
            expected, laid = passed(False)
        assert not laid
        whole = torch.cat([value.flatten() for value in expected.values()]).norm()
        for found, laid in (passed(False), passed(True)):
            assert laid == 2 * len(network.bert.encoder.layer)
            for name, gradient in found.items():
                assert (gradient - expected[name]).norm() < (0.01 if half else 1e-6) * whole, name
        optimizer.step()
