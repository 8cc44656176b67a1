"""Decoders in the trainer: adapters learn, a stopped run ends the same, gradients are cached."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from rerank import Decoder, Lists, LoRA
from rerank.kernels.memory import kept
from rerank.models.load import load_model
from rerank.training.forward import ChunkedForward, ScoringModule, backpropagate
from rerank.training.launch import make_accelerator
from tests.builders import make_decoder, make_lists, train
from tests.close import gradients_of
from tests.training.helpers import assert_same, metrics, stopping_at


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_decoder(tmp_path_factory.mktemp("training") / "model")


def words(folder: Path, model: Path, output: str) -> list[str]:
    told = ["--data=ListsData", f"--data.train={folder / 'lists'}", "--data.validation_fraction=0.2", "--tracker=[]"]
    told += ["--model=Decoder", f"--model.name={model}"]
    told += [
        "--model.document_length=16",
        "--model.lora.rank=4",
        "--model.lora.dropout=0.1",
        "--loss=SoftmaxCE",
        "--precision=fp32",
    ]
    told += ["--optimization.encoder_lr=0.01", "--epochs=3", "--steps_per_epoch=4", "--batch_size=3"]
    return [*told, "--checkpoint_every=3", "--monitor=nDCG", "--gradient=cached", f"--output={folder / output}"]


def test_adapters_learn_and_resume_bit_for_bit(decoder: Path, tmp_path: Path) -> None:
    make_lists(tmp_path)
    train(words(tmp_path, decoder, "whole"))
    found = [line["loss"] for line in metrics(tmp_path / "whole") if "loss" in line]
    assert np.mean(found[-4:]) < 0.95 * np.mean(found[:4])
    with stopping_at(8):
        train(words(tmp_path, decoder, "stopped"))
    saved = load_file(sorted((tmp_path / "stopped" / "checkpoints").glob("step-*"))[-1] / "model.safetensors")
    assert saved and all("lora" in name for name in saved), "a checkpoint holds what is trained"
    train(words(tmp_path, decoder, "stopped"))
    assert metrics(tmp_path / "stopped") == metrics(tmp_path / "whole")
    assert_same(*(load_file(tmp_path / run / "best" / "adapter_model.safetensors") for run in ("whole", "stopped")))
    best = load_model(tmp_path / "stopped" / "best", interpolate=False)
    card = (tmp_path / "stopped" / "best" / "README.md").read_text(encoding="utf-8")
    assert isinstance(best, Decoder) and "from rerank import Decoder" in card


@pytest.mark.parametrize("head", ["yes_no", "hf"])
def test_cached_gradient_of_decoder_equals_full_in_constant_memory(head: str, tmp_path: Path) -> None:
    folder = make_decoder(tmp_path / "model", head=head)
    lists: Lists = make_lists(tmp_path, [40])
    model = Decoder(str(folder), lora=LoRA(rank=2), document_length=16)
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    inputs, found, peaks = model.inputs(lists), {}, {}
    for cached in (False, True):
        for count in (10, 40):
            model.zero_grad(set_to_none=True)
            accelerator = make_accelerator("fp32")
            pairs = ChunkedForward(accelerator, ScoringModule(model), inputs, np.arange(count), np.zeros(1, int), 256)
            with kept(model) as graphs:
                backpropagate(
                    cached, pairs, lambda s: (s * torch.arange(len(s)).cos()).sum() + s.logsumexp(0), last=True
                )
            peaks[cached, count] = graphs.peak
        found[cached] = gradients_of(model)
    assert found[False] and all("lora" in name or "score" in name for name in found[False])
    torch.testing.assert_close(found[True], found[False], rtol=1e-4, atol=1e-5)
    assert peaks[True, 40] < 1.2 * peaks[True, 10] < peaks[False, 40] / 2
