"""A model whose weights are divided among processes trains as a whole one; here on CPUs, where only tests shard."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator, PartialState
from accelerate.utils import DistributedType
from safetensors.torch import load_file
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from rerank.collections import open_collection
from rerank.errors import UserError
from rerank.lists import Lists, build_lists
from rerank.losses import DirectMetric
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.relaxations import SmoothI
from rerank.training import launch, trainer
from rerank.training.accumulate import GradientAccumulator, MemoryLimits, ScoringModule
from rerank.training.batches import Targets
from tests.builders import random_run, train, write_collection
from tests.close import gradients_of
from tests.training.helpers import assert_equal, assert_near, by_two, gradients, stopping_at, whole_batch

LENGTHS = {"query_length": 8, "document_length": 24}
LOSS = DirectMetric("nDCG@10", SmoothI())


def sharded(accelerator: Accelerator) -> Accelerator:
    """Make an accelerator of several processes on CPUs shard, as it would on GPUs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ACCELERATE_USE_FSDP", "true")
        patch.setenv("FSDP_VERSION", "2")
        patch.setattr(launch, "on_cpu", lambda: False)
        accelerator.state.fsdp_plugin = launch.sharding()
    accelerator.state.distributed_type = PartialState().distributed_type = DistributedType.FSDP
    return accelerator


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Lists:
    """Lists of 3 to 150 documents, which make one micro-batch of one process and many of the other."""
    folder = tmp_path_factory.mktemp("sharding")
    name = write_collection(folder / "collection", queries=7, documents=160)
    return build_lists(open_collection(name), random_run(name, [150, 3, 20, 30, 7, 3, 12]), folder / "lists")


def gradients_of_two(model: CrossEncoder, lists: Lists, gradient: Any) -> Any:
    accelerator = launch.make_accelerator("fp32")
    optimizer = torch.optim.AdamW(model.parameters())
    forward, _ = sharded(accelerator).prepare(ScoringModule(model), optimizer)
    assert isinstance(forward, FSDPModule)
    model.train()
    inputs, limits = model.inputs(lists), MemoryLimits(300)
    step = GradientAccumulator(accelerator, forward, inputs, Targets(lists, LOSS), limits, 1, gradient)
    value = step.accumulate(whole_batch(lists), 1).loss
    found = gradients_of(model)
    return value, {name: part.full_tensor() if isinstance(part, DTensor) else part for name, part in found.items()}


@pytest.mark.parametrize(("columns", "gradient"), [(None, "full"), ("bm25", "cached")])
def test_gradient_of_two_processes_with_unequal_lists_is_that_of_one(
    columns: str | None, gradient: str, tiny_model: Path, lists: Lists, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = CrossEncoder(str(tiny_model), residual_columns=columns, **LENGTHS)  # type: ignore[arg-type]
    for parameter in model.parameters():  # the last layer of a residual model starts at zero
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)
    whole = gradients(model, lists, LOSS)
    model.zero_grad(set_to_none=True)
    both = by_two(tmp_path, lambda process: gradients_of_two(model, lists, gradient))
    assert not any(isinstance(one, str) for one in both), both
    for value, found in both:
        assert value == pytest.approx(whole[0], rel=1e-5)
        assert_equal(found, whole[1])


def test_sharded_run_resumes_and_ends_as_one_process(tiny_model: Path, lists: Lists, tmp_path: Path) -> None:
    words = ["--loss=SmoothINDCG", "--epochs=2", "--batch_size=3", "--checkpoint_every=2", "--tracker=[]"]
    words += ["--precision=fp32", "--data.validation_fraction=0.3"]
    words += ["--data=ListsData", f"--data.train={lists.store.folder}", "--model=CrossEncoder"]
    words += [f"--model.name={tiny_model}", "--model.query_length=8", "--model.document_length=24"]
    train([*words, f"--output={tmp_path / 'one'}"])

    def shards(process: int) -> int:
        make = trainer.make_accelerator

        def made(*arguments: Any) -> Accelerator:
            return sharded(make(*arguments))

        trainer.make_accelerator = made
        again = [*words, f"--output={tmp_path / 'two'}"]
        with stopping_at(4):
            train(again)
        train(again)
        return len(list((tmp_path / "two" / "checkpoints").glob("step-*")))

    assert by_two(tmp_path, shards) == [2, 2]
    one, two = (load_file(tmp_path / run / "best" / "model.safetensors") for run in ("one", "two"))
    assert_near(two, one)
    assert "resuming at step 2" in (tmp_path / "two" / "log.txt").read_text()
    assert "fp32, sharded" in (tmp_path / "two" / "log.txt").read_text()


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"ACCELERATE_USE_FSDP": "true"}, "FSDP version 1 is not supported; give --fsdp_version 2"),
        ({"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}, "FSDP needs GPUs, and there are none"),
        (
            {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2", "FSDP_ACTIVATION_CHECKPOINTING": "true"},
            "--fsdp_activation_checkpointing is not supported; set gradient: cached",
        ),
        ({"ACCELERATE_USE_DEEPSPEED": "true"}, "DeepSpeed is not supported"),
        ({"ACCELERATE_USE_MEGATRON_LM": "true"}, "Megatron_LM is not supported"),
    ],
)
def test_sharding_raises_when_it_cannot_be_had(
    variables: dict[str, str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setitem(os.environ, name, value)
    monkeypatch.setattr(launch, "on_cpu", lambda: "needs GPUs" in said)
    with pytest.raises(UserError, match=said):
        launch.sharding()
