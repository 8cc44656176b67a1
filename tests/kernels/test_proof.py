"""Kernels that prove themselves on the network that they are put into."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from transformers.models.bert import modeling_bert
from transformers.models.distilbert import modeling_distilbert

from rerank.kernels import flat
from rerank.kernels.cpu_attention import Attention
from rerank.kernels.flat import NAME, flatten, reads_flat, stop_reading_flat
from rerank.kernels.implementations import Implementations, implementations_of
from rerank.kernels.precision import Precision
from rerank.kernels.proof import use_kernels, works_here
from rerank.lists import Lists
from rerank.models.scorer import score_lists
from rerank.models.text.cross_encoder import CrossEncoder
from tests.builders import make_model
from tests.kernels.flat import network_of, padded

LENGTHS: dict[str, Any] = {"query_length": 8, "document_length": 100}


def check_plain(model: CrossEncoder, lists: Lists) -> np.ndarray:
    """Fail where it does not score as the network's own forward pass, a padded pair at a time; returns the scores."""
    inputs, expected = model.text_inputs(lists), []
    assert not reads_flat(model.network)
    with torch.no_grad():
        for row in lists.row_numbers:
            batch = inputs.collate(np.array([row]), np.zeros(1, int))
            expected.append(float(model.network(**batch).logits))
    found = score_lists(model, inputs, lists, precision="fp32")
    np.testing.assert_allclose(found, expected, atol=1e-5)
    return found


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
    found = check_plain(model, lists)
    assert np.abs(found - score_lists(usual, usual.inputs(lists), lists, precision="fp32")).max() > 1e-3


def test_attention_that_hands_over_something_else_is_pytorchs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An architecture whose interface changed: ours fails, PyTorch's is taken."""
    network, usual = network_of("distilbert"), modeling_distilbert.DistilBertSelfAttention.forward

    def forward(self: Any, hidden_states: Any, *others: Any, **keys: Any) -> Any:
        ours = self.config._attn_implementation == NAME
        return usual(self, hidden_states * (2.0 if ours else 1.0), *others, **keys)

    stop_reading_flat(network)
    network.set_attn_implementation("sdpa")
    monkeypatch.setattr(modeling_distilbert.DistilBertSelfAttention, "forward", forward)
    use_kernels(network, network, lambda batch: network(**batch).logits[:, 0], padded([30, 30], types=False))
    assert "not this architecture's" in caplog.text
    assert network.config._attn_implementation == "sdpa" != NAME


def test_a_release_that_moved_something_only_costs_speed(
    lists: Lists, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rerank.kernels.flat.attend", lambda *_: torch.zeros(1).missing)
    model = CrossEncoder(str(tiny_model), **LENGTHS)
    assert "AttributeError" in caplog.text
    check_plain(model, lists)


def test_a_head_with_dropout_proves_itself_without_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """CEDR's, fresh and saved."""
    folder = make_model(tmp_path / "model", dropout=0.5)
    for name in (folder, tmp_path / "saved"):
        model = CrossEncoder(str(name), head="cls", **LENGTHS)
        assert reads_flat(model.network) and not [record for record in caplog.records if record.levelname == "WARNING"]
        model.save(tmp_path / "saved")


HALVES: list[Precision] = ["bf16", "fp16"]


def proved(model: CrossEncoder, precision: Precision = "bf16") -> str | None:
    """What the proof for a device says, on this one, whose own attention and PyTorch's are two ways as well."""
    batch = flatten(model.part.probe(model._loaded), model.network)
    return works_here(model.network, lambda batch: model.score(batch), batch, precision)


def misread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let our way attend to the tokens of other texts."""
    usual = flat.attend

    def attend(call: Any, way: Any) -> Any:
        others = call._replace(key=call.key.roll(5, 0), value=call.value.roll(5, 0))
        return usual(others if way == "own" else call, way)

    monkeypatch.setattr(flat, "attend", attend)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("precision", ["fp32", *HALVES])
def test_a_device_is_proved_in_evaluation_mode_and_nothing_stays_of_it(
    precision: Precision, dropout: float, tmp_path: Path
) -> None:
    model = CrossEncoder(str(make_model(tmp_path / "model", dropout=dropout)), **LENGTHS).train()
    before = torch.get_rng_state()
    assert proved(model, precision) is None
    assert all(module.training for module in model.modules())
    assert torch.equal(torch.get_rng_state(), before)
    assert implementations_of(model.network) is None
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not model.network.bert._forward_hooks


@pytest.mark.parametrize("precision", HALVES)
def test_scores_that_are_all_0_or_far_from_0_prove_nothing(
    precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(make_model(tmp_path / "model"))
    at_zero = CrossEncoder(folder, start=["bm25"], **LENGTHS)
    assert not at_zero.network.classifier.weight.any()
    biased = CrossEncoder(folder, **LENGTHS)
    torch.nn.init.constant_(biased.network.classifier.bias, 50.0)
    misread(monkeypatch)
    for model in (at_zero, biased):
        why = proved(model, precision)
        assert why is not None and "states differ" in why


@pytest.mark.parametrize(
    ("backward", "why"),
    [
        (Mock(side_effect=NotImplementedError("no kernel image")), "NotImplementedError: no kernel image"),
        (lambda ctx, gradient, usual=Attention.backward: usual(ctx, 2 * gradient), "the gradient of "),
    ],
    ids=["missing", "wrong"],
)
def test_a_backward_pass_that_fails_is_noticed(
    backward: Any, why: str, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = CrossEncoder(str(tiny_model), **LENGTHS)
    monkeypatch.setattr(Attention, "backward", staticmethod(backward))
    assert why in str(proved(model))


def test_dropout_that_is_missing_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As of FlashAttention 3; a network without dropout does not need it."""
    usual = flat.attend

    def attend(call: Any, way: Any) -> Any:
        if call.dropout and way == "own":
            raise RuntimeError("dropout_p must be 0")
        return usual(call, way)

    monkeypatch.setattr(flat, "attend", attend)
    for rate, why in ((0.0, None), (0.1, "RuntimeError: dropout_p must be 0")):
        model = CrossEncoder(str(make_model(tmp_path / str(rate), dropout=rate)), **LENGTHS)
        assert proved(model) == why


def test_what_a_device_cannot_do_is_pytorchs_with_one_warning(
    tiny_model: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The meta device has no numbers to compare."""
    model = CrossEncoder(str(tiny_model), **LENGTHS).to("meta")
    ways = model.part.implementations(model._loaded, torch.device("meta"), "bf16")
    assert ways == Implementations.all("torch")
    assert len(caplog.records) == 1 and "PyTorch's is used" in caplog.text
