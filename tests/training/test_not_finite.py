"""Numbers that are not finite end training in their step, in every process, and are never saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from safetensors.torch import load_file
from torch import Tensor

from rerank import losses
from rerank.errors import UserError
from rerank.features.letor import letor_lists
from rerank.lists import Lists
from rerank.losses.base import Loss
from rerank.models.scorer import score_lists
from rerank.models.vectors.networks import MLP
from rerank.scoring.shared import score_shared
from rerank.training.accumulate import MemoryLimits
from rerank.training.checkpoint import State, load_checkpoint, register_state, save_checkpoint
from rerank.training.launch import make_accelerator
from tests.builders import train, write_features
from tests.losses import kinds
from tests.training.helpers import accumulator_of, by_two, whole_batch

REFUSED = r"a score, or the loss, is not finite at step 3; lower optimization\.encoder_lr and head_lr"


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    return letor_lists(write_features(tmp_path / "train.txt"))


def network(lists: Lists, kind: Callable[..., MLP] = MLP) -> MLP:
    model = kind(hidden=[4])
    model.prepare(lists, 42)
    return model


def ruined(lists: Lists) -> MLP:
    """A network with a weight that is not a number."""
    model = network(lists)
    with torch.no_grad():
        next(model.parameters())[0, 0] = torch.nan
    return model


def step(model: MLP, lists: Lists, loss: Loss, **options: Any) -> Callable[[], Any]:
    accumulator = accumulator_of(model, lists, loss, MemoryLimits(300), **options)
    return partial(accumulator.accumulate, whole_batch(lists), 3)


KINDS = {name: kind for name, kind in kinds.LOSSES.items() if name != "DirectMetric"}
KINDS |= {name: lambda kind=kind: losses.DirectMetric("nDCG", kind()) for name, kind in kinds.RELAXATIONS.items()}


@pytest.mark.parametrize("name", KINDS)
def test_accumulate_raises_for_scores_that_are_not_finite(name: str, lists: Lists) -> None:
    """Some have a finite value for such scores."""
    with pytest.raises(UserError, match=REFUSED):
        step(ruined(lists), lists, KINDS[name]())()


class Steep(losses.ListNet):
    """Has a finite value, and a gradient that is not."""

    def per_list(self, scores: Tensor, *rest: Any) -> Tensor:
        value: Tensor = super().per_list(scores, *rest)
        return value + (scores * 0).abs().sqrt().sum(dim=1)  # the root's slope at 0 is infinite, times 0


def test_trainer_raises_for_a_gradient_that_is_not_finite(lists: Lists, tmp_path: Path) -> None:
    """Clipping it, to a norm of NaN, would not show it."""
    lists.save(tmp_path / "lists")
    words = ["--data=ListsData", f"--data.train={tmp_path / 'lists'}", "--model=MLP", "--data.validation_fraction=0"]
    words += ["--loss=tests.training.test_not_finite.Steep", f"--output={tmp_path / 'run'}", "--tracker=[]"]
    with pytest.raises(UserError, match="the gradient is not finite at step 1; lower optimization"):
        train(words)


@pytest.mark.parametrize(("loss", "batch", "share"), [("TwinSigmoidNDCG", 2, 0), ("SmoothINDCG", 100, 0.3)])
def test_trainer_saves_no_model_when_rates_are_too_high(
    loss: str, batch: int, share: float, lists: Lists, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    words = ["--data=ListsData", f"--data.train={tmp_path / 'lists'}", f"--data.validation_fraction={share}"]
    lists.save(tmp_path / "lists")
    words += ["--model=MLP", f"--loss={loss}", "--optimization.head_lr=1e38", "--epochs=3", f"--output={run}"]
    for _ in range(2):  # the same command again ends in the same way
        with pytest.raises(UserError, match=r"finite.*lower optimization\.encoder_lr and head_lr"):
            train([*words, f"--batch_size={batch}", "--checkpoint_every=1", "--tracker=[]"])
        assert not (run / "results.json").exists() and (run / "best").exists() == (share > 0), "that is the start"
        for file in [*run.glob("checkpoints/*/model.safetensors"), *run.glob("best/model.safetensors")]:
            assert all(value.isfinite().all() for value in load_file(file).values())


def saved(model: torch.nn.Module, folder: Path, step: int = 3) -> Accelerator:
    """Write a checkpoint, and give an accelerator that is ready to load it."""
    accelerator = make_accelerator("fp32")
    register_state(accelerator, model, State(step=step))
    save_checkpoint(accelerator, folder, step)
    return accelerator


def test_load_checkpoint_raises_for_weights_that_are_not_finite(lists: Lists, tmp_path: Path) -> None:
    accelerator = saved(ruined(lists), tmp_path)
    with pytest.raises(UserError, match=r"step-00000003: .*the weights are not finite .*lower .*train anew"):
        load_checkpoint(accelerator, tmp_path)


def test_score_lists_raises_for_scores_that_are_not_finite(lists: Lists) -> None:
    model = ruined(lists)
    with pytest.raises(UserError, match=f"{lists.size} of {lists.size} scores are not finite"):
        score_lists(model, model.inputs(lists), lists, precision="fp32")
    scores = np.zeros(lists.size)
    scores[3] = np.nan
    with pytest.raises(UserError, match=f"scores: 1 of {lists.size} are not a number"):
        lists.run(scores)


def test_trees_raise_for_a_gradient_that_is_not_finite(lists: Lists, tmp_path: Path) -> None:
    lists.save(tmp_path / "lists")
    words = ["--data=ListsData", f"--data.train={tmp_path / 'lists'}", "--data.validation_fraction=0"]
    words += ["--model=LightGBM", "--loss=tests.training.test_not_finite.Steep", f"--output={tmp_path / 'run'}"]
    with pytest.raises(UserError, match=r"the gradient is not finite at tree 1, scores from .*lower model\.learning_"):
        train(words)
    assert not (tmp_path / "run" / "best").exists()


class Failing(MLP):
    """The second process gets a score of NaN, no memory, or an error; the first nothing."""

    how = ""

    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        if self.how == "nan":
            return super().score(batch) * torch.nan
        if self.how == "memory":
            torch.empty(2**60, dtype=torch.uint8)
        if self.how == "bug":
            raise AssertionError
        return super().score(batch)


@pytest.mark.parametrize(
    ("do", "how", "said"),
    [
        ("step", "nan", "finite"),  # a process that raises in a step is ended by the launcher, with all others
        ("scores", "nan", "finite"),
        ("scores", "memory", "out of memory"),
        ("scores", "bug", "process 1: AssertionError"),
    ],
)
def test_processes_raise_together_when_one_fails(do: str, how: str, said: str, lists: Lists, tmp_path: Path) -> None:
    def work(process: int) -> None:
        model = network(lists, Failing)
        model.how = how if process else ""
        if do == "step":
            step(model, lists, losses.ListNet())()
        else:
            score_shared(model, lists, precision="fp32", budget=None)

    first, second = by_two(tmp_path, work)
    assert first.startswith("UserError: ") and said in first
    assert second == ("AssertionError: " if how == "bug" else first)
