"""A step's host does not wait for the device before the step's end, counted where there is no GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer, ModernBertConfig, ModernBertForSequenceClassification

from rerank import losses
from rerank.features.letor import letor_lists
from rerank.lists import Lists
from rerank.models.text.adapter import LoRA
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.decoder import Decoder
from rerank.models.vectors.attention import SelfAttention
from rerank.models.vectors.mlp import MLP, ListMLP
from scripts.bench.count_kernels import Count, count_step
from tests.builders import make_decoder, make_model, write_features


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model"), dropout=0.1)


@pytest.mark.parametrize(
    "wait",
    [
        lambda there: float(there.sum()),
        lambda there: there[0].item(),
        lambda there: bool(there.any()),
        lambda there: there.cpu(),
        lambda there: there.to("cpu", torch.float64),
        lambda there: torch.zeros(3).to(there.device),
        lambda there: torch.from_numpy(np.zeros(3)).to(there.device),
        lambda there: there.copy_(torch.zeros(3)),
        lambda there: torch.tensor([1.0], device=there.device),
        lambda there: torch.as_tensor(np.zeros(2), device=there.device),
        lambda there: torch.asarray([1], device=there.device),
        lambda there: there.new_tensor([2.0, 3.0]),
        lambda there: there[[0, 1]],
        lambda there: there[np.array([0, 1])],
        lambda there: there.expand(4, 3)[:, [1]],
    ],
)
def test_every_kind_of_wait_is_seen_once(wait: Callable[[torch.Tensor], object]) -> None:
    with Count() as count:
        wait(torch.zeros(3, device="meta"))
    assert len(count.waits) == 1


def test_what_waits_for_nothing_is_not_counted() -> None:
    there = torch.zeros(3, device="meta")
    with Count() as count:
        torch.zeros(3).to("meta", non_blocking=True)
        torch.ones(3).sum().item()  # on the CPU
        torch.tensor([1, 2])
        there[1:].sum()
        there[torch.zeros(2, dtype=torch.long, device="meta")]
        torch.zeros(4)[[1, 2]]
    assert count.waits == [] and count.kernels["sum"] == 1


@pytest.mark.parametrize("mode", ["full", "cached"])
@pytest.mark.parametrize(
    "name", ["SmoothINDCG", "ApproxNDCG", "NeuralNDCG", "LambdaLoss", "RankNet", "ListMLE", "ListNet"]
)
def test_a_step_waits_once_at_its_end(name: str, mode: str, lists: Lists, folder: Path) -> None:
    model: Any = CrossEncoder(str(folder), query_length=8, document_length=24, dropout=0.0).train()
    loss = losses.load_all()[name]()
    kernels, waits, within = count_step(model, model.inputs(lists), lists, loss, 300, mode)
    assert kernels["_varlen_attn"] >= kernels["_varlen_attn_backward"] > 1
    assert waits[:within] == [], "within the step"
    assert len(waits) == within + 1, "all numbers of the step in one copy"


@pytest.mark.parametrize("long", ["max", "sum", "cls_mean"])
def test_chunks_of_long_documents_come_together_without_a_wait(long: Any, lists: Lists, folder: Path) -> None:
    lengths = {"query_length": 8, "document_length": 240}
    model: Any = CrossEncoder(str(folder), head="cls" if long == "cls_mean" else None, long=long, **lengths).train()
    _, waits, within = count_step(model, model.inputs(lists), lists, losses.ListNet(), 300)
    assert waits[:within] == []


def test_a_mean_of_states_is_taken_without_a_wait(lists: Lists, tiny_model: Path, tmp_path: Path) -> None:
    """ModernBERT's own head."""
    ids = {f"{name}_token_id": 0 for name in ("pad", "cls", "sep", "bos", "eos")}
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 2}
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    config = ModernBertConfig(classifier_pooling="mean", num_labels=1, vocab_size=len(tokenizer), **sizes, **ids)
    ModernBertForSequenceClassification(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    model: Any = CrossEncoder(str(tmp_path / "model"), query_length=8, document_length=24).train()
    _, waits, within = count_step(model, model.inputs(lists), lists, losses.ListNet(), 300)
    assert waits[:within] == []


@pytest.mark.parametrize("template", ["plain", "qwen3-reranker"])
@pytest.mark.parametrize("lora", [None, LoRA(rank=2)])
def test_a_decoder_waits_for_nothing(template: str, lora: LoRA | None, lists: Lists, tmp_path: Path) -> None:
    """With a common beginning that is there once, too."""
    folder = make_decoder(tmp_path / "model")
    model: Any = Decoder(str(folder), template=template, lora=lora, query_length=8, document_length=24).train()
    kernels, waits, within = count_step(model, model.inputs(lists), lists, losses.ListNet(), 1000)
    assert waits[:within] == [] and kernels["_varlen_attn_backward"] > 1


@pytest.mark.parametrize("make", [lambda: ListMLP(hidden=[8]), lambda: SelfAttention(8, 16), lambda: MLP(hidden=[8])])
def test_networks_over_features_wait_for_nothing(make: Callable[[], Any], tmp_path: Path) -> None:
    lists = letor_lists(write_features(tmp_path / "train.txt"))
    model = make()
    model.prepare(lists, 42)
    inputs = model.inputs(lists)
    inputs.values = inputs.values.to("meta")
    kernels, waits, within = count_step(model.train(), inputs, lists, losses.ListNet(), 40)
    assert waits[:within] == [] and len(waits) == within + 1 and kernels


def test_larger_chunks_are_fewer_kernels(lists: Lists, folder: Path) -> None:
    counted = []
    for budget in (300, 100_000):
        model: Any = CrossEncoder(str(folder), query_length=8, document_length=24).train()
        kernels, *_ = count_step(model, model.inputs(lists), lists, losses.ListNet(), budget)
        counted.append(sum(kernels.values()))
    assert counted[1] < 0.3 * counted[0]
