"""Kernels that prove themselves on the network that they are put into."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.bert import modeling_bert
from transformers.models.distilbert import modeling_distilbert

from rerank.kernels.cpu_attention import NAME
from rerank.kernels.flat import reads_flat
from rerank.lists import Lists
from rerank.models.score import score_lists
from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import make_lists

LENGTHS: dict[str, Any] = {"query_length": 8, "document_length": 100}


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    return make_lists(tmp_path)


def plain(model: CrossEncoder, lists: Lists) -> np.ndarray:
    """The scores of the network's own forward pass, a padded pair at a time."""
    inputs = model.text_inputs(lists)
    inputs = getattr(inputs, "padded", inputs)
    found = []
    with torch.no_grad():
        for row in lists.row_numbers:
            batch = inputs.collate(np.array([row]), np.zeros(1, int))
            found.append(float(model.network(**batch).logits))
    return np.array(found)


class Louder(modeling_bert.BertSelfAttention):
    """Attention of another scale than it says."""

    def forward(self, *args: Any, **keys: Any) -> Any:
        before, self.scaling = self.scaling, 1.05 * self.scaling
        try:
            return super().forward(*args, **keys)
        finally:
            self.scaling = before


def test_an_architecture_that_computes_something_else_is_left_alone(
    lists: Lists, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usual = CrossEncoder(str(tiny_model), **LENGTHS)
    assert reads_flat(usual.network)
    monkeypatch.setattr(modeling_bert, "BertSelfAttention", Louder)
    with caplog.at_level(logging.WARNING, "rerank"):
        model = CrossEncoder(str(tiny_model), **LENGTHS)
    assert isinstance(model.network.bert.encoder.layer[0].attention.self, Louder)
    assert len(caplog.records) == 1 and "reads texts with padding" in caplog.text
    assert not reads_flat(model.network)
    found = score_lists(model, model.inputs(lists), lists, precision="fp32")
    np.testing.assert_allclose(found, plain(model, lists), atol=1e-5)
    assert np.abs(found - score_lists(usual, usual.inputs(lists), lists, precision="fp32")).max() > 1e-3


def test_attention_that_hands_over_something_else_is_pytorchs(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An architecture whose interface changed: ours fails, PyTorch's is taken."""
    from rerank.kernels import proof
    from tests.kernels.test_flat import network_of

    network = network_of("distilbert")
    batch = {"input_ids": torch.randint(2, 50, (2, 30)), "attention_mask": torch.ones(2, 30, dtype=torch.int64)}
    monkeypatch.setattr(modeling_distilbert.DistilBertSelfAttention, "forward", _without_scale(modeling_distilbert))
    proof.use_kernels(network, network, lambda b: network(**b).logits[:, 0], batch)
    assert "not this architecture's" in caplog.text
    assert network.config._attn_implementation == "sdpa" != NAME


def _without_scale(module: Any) -> Any:
    usual = module.DistilBertSelfAttention.forward

    def forward(self: Any, hidden_states: Any, attention_mask: Any = None, **keys: Any) -> Any:
        ours = self.config._attn_implementation == NAME
        return usual(self, hidden_states * (2.0 if ours else 1.0), attention_mask, **keys)

    return forward


def test_a_release_that_moved_something_only_costs_speed(
    lists: Lists, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rerank.kernels.flat.attend", lambda *_: torch.zeros(1).missing)
    model = CrossEncoder(str(tiny_model), **LENGTHS)
    assert "AttributeError" in caplog.text and not reads_flat(model.network)
    np.testing.assert_allclose(
        score_lists(model, model.inputs(lists), lists, precision="fp32"), plain(model, lists), atol=1e-5
    )


def test_what_is_right_says_nothing(tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    model = CrossEncoder(str(tiny_model), **LENGTHS)
    assert reads_flat(model.network) and model.network.config._attn_implementation == NAME
    assert not caplog.records
