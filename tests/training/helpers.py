"""What tests of training compare: gradients of one batch, what two processes give, and what runs leave."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.multiprocessing.spawn import start_processes

from rerank.lists import Lists
from rerank.lists.sampling import Full
from rerank.losses.base import Loss
from rerank.models.scorer import Scorer
from rerank.training.batches import Batches, ListSample
from rerank.training.step import Gradients, MemoryLimits
from tests.close import gradients_of


def whole_batch(lists: Lists) -> list[ListSample]:
    """All lists, those without relevant documents included, as one batch."""
    return next(Batches(lists, np.arange(len(lists)), Full(), len(lists), None, seed=0).epoch(0))


def gradients(model: Scorer, lists: Lists, loss: Loss, **options: object) -> tuple[float, dict[str, torch.Tensor]]:
    """The loss and the gradient of one batch of all lists; ``share`` is how much of the training is behind it."""
    share, precision = options.pop("share", 0.0), options.pop("precision", "fp32")
    limits = MemoryLimits(options.pop("token_budget", 8192), options.pop("full_tokens", None))  # type: ignore[arg-type]
    model.zero_grad(set_to_none=True)
    model.train()
    torch.manual_seed(1)
    accumulator = Gradients(model, model.inputs(lists), lists, loss, precision, limits, **options)  # type: ignore[arg-type]
    value = accumulator.accumulate(whole_batch(lists), 1, share).loss
    return value, gradients_of(model)


class Stopped(Exception):
    """Ends a training where it is."""


@contextmanager
def stopping_at(step: int) -> Iterator[None]:
    """What is trained within ends before it takes this step, without a checkpoint of that moment, as if killed."""
    accumulate = Gradients.accumulate

    def stop(self: Gradients, groups: list[ListSample], number: int, *rest: Any) -> Any:
        if number == step:
            raise Stopped
        return accumulate(self, groups, number, *rest)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(Gradients, "accumulate", stop)
        yield


def by_two(folder: Path, work: Callable[[int], Any]) -> list[Any]:
    """What ``work(process)`` gives, or what it says where it fails, in each of two processes that meet."""
    start_processes(_meet, (folder, work), nprocs=2, start_method="fork")
    return [torch.load(folder / f"done-{process}") for process in range(2)]


def _meet(process: int, folder: Path, work: Callable[[int], Any]) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=process, world_size=2)
    try:
        done = work(process)
    except Exception as error:
        done = f"{type(error).__name__}: {error}"
    torch.save(done, folder / f"done-{process}")
    dist.barrier()  # they are still in step: no message waits
    dist.destroy_process_group()


def assert_equal(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    """Every parameter's gradient to 1e-5 of its length; those that are zero but for rounding, to 1e-6 of all."""
    assert found.keys() == expected.keys()
    whole = torch.stack([gradient.norm() for gradient in expected.values()]).norm()
    for name, gradient in expected.items():
        assert (found[name] - gradient).norm() <= 1e-5 * gradient.norm() + 1e-6 * whole, name


def weights(run: Path) -> dict[str, torch.Tensor]:
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    moments = {f"moment {name}": value for name, value in load_file(newest / "optimizer.safetensors").items()}
    return {name: value.clone() for name, value in (load_file(newest / "model.safetensors") | moments).items()}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    """Bit for bit."""
    torch.testing.assert_close(one, other, rtol=0, atol=0)


def assert_same_runs(one: Path, other: Path) -> None:
    """Weights of the last checkpoint and of the best model, what was logged and measured; and nothing half-written."""
    assert_same(weights(one), weights(other))
    assert_same(*(load_file(run / "best" / "model.safetensors") for run in (one, other)))
    assert metrics(one) == metrics(other)
    assert (one / "measures.json").read_text() == (other / "measures.json").read_text()
    assert not [path for path in one.rglob("*") if path.name.endswith((".tmp", "-old"))]


def assert_near(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor], last: str = "classifier.bias") -> None:
    """To what float32 sums in another order, and Adam after them, allow.

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
