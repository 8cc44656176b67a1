"""Gradients of one batch, results of two processes, and files of runs, for tests of training to compare."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from accelerate import PartialState
from accelerate.state import AcceleratorState
from safetensors.torch import load_file
from torch.multiprocessing.spawn import start_processes

from rerank.lists import Lists
from rerank.lists.sampling import Full
from rerank.losses.base import Loss
from rerank.models.scorer import Scorer
from rerank.training.accumulate import UNLIMITED, GradientAccumulator, MemoryLimits, ScoringModule
from rerank.training.batches import Batches, ListSample, Targets
from rerank.training.launch import make_accelerator
from tests.close import gradients_of
from tests.forked import ranks


def whole_batch(lists: Lists) -> list[ListSample]:
    """All lists, those without relevant documents included, as one batch."""
    return next(Batches(lists, np.arange(len(lists)), Full(), len(lists), None, seed=0).epoch(0))


def accumulator_of(
    model: Scorer, lists: Lists, loss: Loss, limits: MemoryLimits, precision: Any = "fp32", **options: Any
) -> GradientAccumulator:
    """Build the accumulator of a training run over these lists."""
    accelerator = make_accelerator(precision)
    accelerator.state.device = next(model.parameters()).device  # on a GPU's machine, a CPU's gradient too
    forward = accelerator.prepare(ScoringModule(model))
    return GradientAccumulator(accelerator, forward, model.inputs(lists), Targets(lists, loss), limits, **options)


def gradients(model: Scorer, lists: Lists, loss: Loss, **options: Any) -> tuple[float, dict[str, torch.Tensor]]:
    """Compute the loss and the gradient of one batch of all lists, ``share`` of the run being over."""
    share = options.pop("share", 0.0)
    limits = MemoryLimits(options.pop("token_budget", 8192), options.pop("full_tokens", UNLIMITED))
    model.zero_grad(set_to_none=True)
    model.train()
    accumulator = accumulator_of(model, lists, loss, limits, **options)
    value = accumulator.accumulate(whole_batch(lists), 1, share).loss
    return value, gradients_of(model)


class Stopped(Exception):
    """Ends a training where it is."""


@contextmanager
def stopping_at(step: int) -> Iterator[None]:
    """End training within the block before it takes this step, without a checkpoint of that moment, as if killed."""
    accumulate = GradientAccumulator.accumulate

    def stop(self: GradientAccumulator, groups: list[ListSample], number: int, *rest: Any) -> Any:
        if number == step:
            raise Stopped
        return accumulate(self, groups, number, *rest)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(GradientAccumulator, "accumulate", stop)
        yield


def by_two(folder: Path, work: Callable[[int], Any]) -> list[Any]:
    """Run ``work(process)`` in two processes that meet; give the results, or the messages of errors."""
    start_processes(_meet, (folder, work, ranks(2)), nprocs=2, start_method="fork")
    return [torch.load(folder / f"done-{process}", weights_only=False) for process in range(2)]


def _meet(process: int, folder: Path, work: Callable[[int], Any], variables: list[dict[str, str]]) -> None:
    os.environ.update(variables[process])
    AcceleratorState._reset_state(reset_partial_state=True)
    PartialState(cpu=True)
    try:
        done = work(process)
    except Exception as error:
        done = f"{type(error).__name__}: {error}"
    torch.save(done, folder / f"done-{process}")
    dist.barrier()  # they are still in step: no message waits
    dist.destroy_process_group()


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Compare each parameter's gradient to 1e-5 of its length; those that are zero but for rounding, to 1e-6 of all."""
    assert found.keys() == expected.keys()
    whole = torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= 1e-5 * gradient.norm() + 1e-6 * whole, name


def weights(run: Path) -> dict[str, torch.Tensor]:
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    states = torch.load(newest / "optimizer.bin", weights_only=True)["state"]
    moments = {f"moment {i}.{name}": value for i, state in states.items() for name, value in state.items()}
    return {name: value.clone() for name, value in (load_file(newest / "model.safetensors") | moments).items()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    """Compare bit for bit."""
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def assert_same_runs(one: Path, other: Path) -> None:
    """Compare last checkpoints, best models, logs and results; nothing may be half-written."""
    assert_same(weights(one), weights(other))
    assert_same(*(load_file(run / "best" / "model.safetensors") for run in (one, other)))
    assert metrics(one) == metrics(other)
    assert (one / "results.json").read_text() == (other / "results.json").read_text()
    assert not [path for path in one.rglob("*") if path.name.endswith((".tmp", "-old"))]


def assert_near(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], last: str = "classifier.bias") -> None:
    """Compare as far as float32 sums in another order, and Adam after them, allow.

    The biases of keys and of the last layer have no gradient (neither softmax nor nDCG sees a shift) but rounding
    errors, which Adam makes into steps of full length; moments of other parameters are compared through the weights
    that they moved.
    """
    assert one.keys() == other.keys()
    for name in one:
        if not name.startswith("moment") and not name.endswith(("key.bias", last)):
            torch.testing.assert_close(one[name], other[name], rtol=1e-3, atol=2e-4, msg=name)


def metrics(run: Path) -> list[dict[str, object]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timing = ("lists/s", "documents/s", "seconds")
    return [{key: value for key, value in line.items() if key not in timing} for line in lines]
