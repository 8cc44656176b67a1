"""Decoders in the trainer: adapters learn, a stopped run ends the same, gradients are cached."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.torch import load_file

from rerank import Decoder
from rerank.models.load import load_model
from tests.builders import make_decoder, make_lists, train
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
