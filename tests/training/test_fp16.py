"""Training in float16, whose largest number is 65504: the loss is scaled, and a step that overflows is done again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from rerank.errors import UserError
from rerank.features.letor import letor_lists
from rerank.lists import Lists
from rerank.losses import ListNet
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.mlp import MLP
from rerank.training.step import Gradients, MemoryLimits, Step
from tests.builders import make_model, write_features
from tests.training.helpers import whole_batch


def taken(folder: Path, lists: Lists, precision: str, **options: Any) -> tuple[Step, torch.Tensor, Gradients]:
    model = CrossEncoder(str(folder), query_length=8, document_length=24).train()
    gradients = Gradients(model, model.inputs(lists), lists, ListNet(), precision, MemoryLimits(300, **options))  # type: ignore[arg-type]
    torch.manual_seed(0)
    done = gradients.accumulate(whole_batch(lists), 1)
    return done, torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]), gradients


def test_a_step_that_overflows_is_done_again_with_half_the_scale(lists: Lists, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model", dropout=0.1)
    usual, gradient, found = taken(folder, lists, "fp16", loss_scale=1024.0)
    assert found.limits.loss_scale == 1024 and found.limits.since_overflow == 1
    large, again, found = taken(folder, lists, "fp16", loss_scale=2.0**40)
    assert found.limits.loss_scale < 2.0**40 and found.limits.since_overflow == 1
    assert large == usual, "with the dropout of the first time"
    assert (again - gradient).norm() < 0.02 * gradient.norm()
    _, exact, _ = taken(make_model(tmp_path / "still"), lists, "fp32")
    _, half, _ = taken(tmp_path / "still", lists, "fp16")
    assert (half - exact).norm() < 0.05 * exact.norm()


def test_a_step_that_is_done_again_counts_once_for_batch_norm(tmp_path: Path) -> None:
    lists = letor_lists(write_features(tmp_path / "train.txt"))
    found = []
    for scale in (1.0, 2.0**60):
        torch.manual_seed(0)
        model = MLP("1024", hidden=[8])
        model.prepare(lists, 1)
        limits = MemoryLimits(300, loss_scale=scale)
        Gradients(model.train(), model.inputs(lists), lists, ListNet(), "fp16", limits).accumulate(
            whole_batch(lists), 1
        )
        found.append({name: buffer.clone() for name, buffer in model.named_buffers()})
    assert limits.loss_scale < 2.0**60 and {int(b) for name, b in found[1].items() if "tracked" in name} == {1}
    torch.testing.assert_close(found[1], found[0])


def test_a_gradient_that_is_infinite_without_a_scale_stops(lists: Lists, tmp_path: Path) -> None:
    folder = make_model(tmp_path / "model")
    model = CrossEncoder(str(folder), query_length=8, document_length=24).train()
    next(model.parameters()).register_hook(lambda gradient: gradient / 0)
    gradients = Gradients(model, model.inputs(lists), lists, ListNet(), "fp16", MemoryLimits(300, loss_scale=2.0))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="not finite at step 7"):
        gradients.accumulate(whole_batch(lists), 7)
