"""Layers that are computed again in the backward pass: the same gradients, dropout included, from less memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rerank.kernels.by_layer import keep_inputs_alone
from rerank.kernels.memory import kept
from rerank.lists import Lists
from rerank.losses import ListNet
from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import make_model
from tests.close import check_gradients, gradients_of
from tests.kernels import test_flat_decoder as decoders
from tests.kernels import test_flat_modern as modern
from tests.kernels.flat import network_of, padded, read
from tests.training.helpers import assert_equal, gradients

BATCH, UNTYPED = padded([6, 9, 1, 4]), padded([6, 9, 1, 4], types=False)
MAKE: dict[str, Callable[[], tuple[Any, dict[str, Tensor], int]]] = {
    "bert": lambda: (network_of("bert", 4, 0.2), BATCH, 0),
    "distilbert": lambda: (network_of("distilbert", dropout=0.2), BATCH, 0),
    "ernie": lambda: (network_of("ernie", 4, 0.2), BATCH, 0),
    "modernbert": lambda: (modern.network_of("cls"), UNTYPED, 0),
    "qwen3": lambda: (decoders.flat_network("qwen3, near")[0], decoders.alike(2), 2),
}
"""Networks, what they read, and how many tokens of it are shared."""


@pytest.mark.parametrize("kind", MAKE)
def test_gradients_are_those_of_the_whole_graph(kind: str) -> None:
    (network, batch, shared), found = MAKE[kind](), []
    network.train()
    for again in (False, True):
        assert not again or (keep_inputs_alone(network) and not keep_inputs_alone(network))
        network.zero_grad(set_to_none=True)
        torch.manual_seed(5)
        with kept(network) as count:
            scores = read(network, batch, shared)
        size = count.bytes
        scores.square().sum().backward()
        found.append((scores.detach(), gradients_of(network), size))
    assert found[0][0].equal(found[1][0])
    check_gradients(found[1][1], found[0][1])
    assert found[1][2] < 0.7 * found[0][2]


class Large(CrossEncoder):
    """Without memory for the whole graph of a single document."""

    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        if torch.is_grad_enabled() and not self.network.is_gradient_checkpointing:
            raise torch.OutOfMemoryError("out of memory")
        return super().score(batch)


def test_a_step_for_whose_documents_memory_is_too_small(
    tmp_path: Path, lists: Lists, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_model(tmp_path / "model")
    whole, large = (kind(str(folder), query_length=8, document_length=24) for kind in (CrossEncoder, Large))
    large.load_state_dict(whole.state_dict())
    expected, found = (
        gradients(model, lists, ListNet(), gradient="cached", token_budget=64) for model in (whole, large)
    )
    assert "compute each layer again" in caplog.text
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert_equal(found[1], expected[1])
