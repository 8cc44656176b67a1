"""Tests that need a GPU; ``pytest -m gpu``, or with little more than torch and Transformers what
``scripts/gpu_evidence.py`` runs: nothing here is from the hub.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rerank.kernels.flat_attention import AttentionCall, Sequences, attend
from rerank.lists import Lists
from rerank.lists.tokens import Tokens
from rerank.losses import DirectMetric
from rerank.models.load import load_model
from rerank.models.scorer import score_lists
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.pairs import PairInputs
from rerank.relaxations import SmoothI
from scripts.bench.models import random_model
from tests.builders import train
from tests.training.helpers import gradients

pytestmark = pytest.mark.gpu
LOSS = DirectMetric("nDCG@10", SmoothI())


def make_model(folder: Path, dropout: float = 0.0) -> Path:
    """A BERT of two tiny layers with random weights, and a vocabulary of a few words."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
    return Path(random_model("MiniLM-L6", folder, initializer_range=0.2, **sizes, **rates))


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    return make_model(tmp_path / "tiny")


def test_scores_on_the_gpu_are_those_of_the_cpu(lists: Lists, tiny_model: Path) -> None:
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    inputs = model.inputs(lists)
    expected = score_lists(model, inputs, lists, precision="fp32")
    model.to("cuda")
    np.testing.assert_allclose(score_lists(model, inputs, lists, precision="fp32"), expected, rtol=1e-3, atol=1e-3)
    spread = float(np.std(expected))
    np.testing.assert_allclose(score_lists(model, inputs, lists, precision="bf16"), expected, atol=0.1 * spread)


def test_gradients_on_the_gpu_are_those_of_the_cpu(lists: Lists, tiny_model: Path) -> None:
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    _, here = gradients(model, lists, LOSS, micro_batch_size=3)
    _, there = gradients(model.to("cuda"), lists, LOSS, micro_batch_size=3)
    torch.testing.assert_close(there, here, rtol=1e-2, atol=1e-4, check_device=False)


@pytest.mark.parametrize(("window", "causal"), [(None, True), (40, True), (40, False)])
def test_windows_causal_masks_and_heads_that_share_keys(window: int | None, causal: bool) -> None:
    """FlashAttention in bf16, gradients too, next to attention of padded texts in float32."""
    sequences = Sequences.of([300, 7, 1, 128, 131]).to(torch.device("cuda"))
    torch.manual_seed(0)
    states = [torch.randn(567, heads, 64, device="cuda").bfloat16().requires_grad_() for heads in (8, 2, 2)]
    weights, found = torch.randn(567, 8, 64, device="cuda"), []
    for given in (states, [state.float() for state in states]):
        seen = attend(AttentionCall(*given, sequences, 0.125, 0.0, False, window, causal))
        found.append([seen, *torch.autograd.grad((seen * weights).sum(), states)])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one.float(), other.float(), rtol=0.05, atol=0.02 * float(other.detach().abs().max()))


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_chunks_without_padding_agree_with_the_architecture_itself(tmp_path: Path, dropout: float) -> None:
    """In bf16 by PyTorch's kernel for sequences of varying length, dropout of its weights included."""
    model = CrossEncoder(str(make_model(tmp_path / "model", dropout=dropout)), query_length=8, document_length=24)
    model.to("cuda").train()
    ids = [np.arange(2000, 2000 + n) for n in (5, 24, 1, 9, 24, 17)]
    rows = np.arange(len(ids))
    inputs = model.token_inputs(Tokens.of(ids, ids), rows, rows)
    apart = PairInputs(Tokens.of(ids, ids), rows, rows, model.template)
    assert isinstance(inputs, PairInputs) and inputs.network is not None
    flat, padded = (
        {name: value.to("cuda") for name, value in side.collate(rows, rows).items()} for side in (inputs, apart)
    )
    found = []
    for batch in (flat, padded):
        torch.manual_seed(0)
        model.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            scores = torch.stack([model.score(batch) for _ in range(1 if not dropout else 1000)]).mean(0)
        scores.square().sum().backward()
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        found.append((scores.detach(), gradient))
    spread = float(found[1][0].std())
    assert float((found[0][0] - found[1][0]).abs().max()) < (0.5 if dropout else 0.05) * spread
    assert float((found[0][1] - found[1][1]).norm()) < (0.5 if dropout else 0.05) * float(found[1][1].norm())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_cached_gradient_repeats_dropout(lists: Lists, tmp_path: Path, precision: str) -> None:
    """Compare with the gradient of the whole graph on the device, whose random numbers are its own."""
    torch.manual_seed(0)
    model = CrossEncoder(str(make_model(tmp_path / "model", dropout=0.1)), query_length=8, document_length=24)
    model.to("cuda").train()
    found = {}
    for mode in ("full", "cached"):
        options = {"token_budget": 200, "micro_batch_size": len(lists), "precision": precision, "gradient": mode}
        _, taken = gradients(model, lists, LOSS, **options)
        found[mode] = torch.cat([gradient.flatten() for gradient in taken.values()])
    tolerance = 1e-5 if precision == "fp32" else 2e-2
    assert (found["cached"] - found["full"]).norm() <= tolerance * found["full"].norm()


def test_training_runs_in_bf16(lists: Lists, tiny_model: Path, tmp_path: Path) -> None:
    for needed in ("jsonargparse", "ir_measures"):
        pytest.importorskip(needed)
    words = ["--data=ListsData", f"--data.train={lists.store.folder}", "--model=CrossEncoder", "--model.query_length=8"]
    words += [f"--model.name={tiny_model}", "--model.document_length=24", "--loss=SmoothINDCG", "--epochs=5"]
    measures = train([*words, f"--output={tmp_path / 'run'}"])
    assert 0 < measures["validation"]["nDCG@10"] <= 1
    assert "precision bf16" in (tmp_path / "run" / "log.txt").read_text()
    assert next(load_model(tmp_path / "run" / "best").parameters()).is_cuda
