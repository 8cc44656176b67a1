"""State of an interrupted run: safetensors and JSON, complete or absent."""

from __future__ import annotations

import math
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from rerank.errors import UserError, one_line
from rerank.models.weights import copied
from rerank.storage.files import atomic_folder, read_json, write_json
from rerank.training.run_folder import CHECKPOINTS
from rerank.training.step import MemoryLimits, Step

KEEP = 2
"""Checkpoints kept: the newest, and one to fall back on."""

STATE = "state.json"


@dataclass
class State:
    """Where a run stands. Random numbers are not in it: each step seeds them from (seed, step, process)."""

    epoch: int = 0
    epoch_step: int = 0
    step: int = 0
    best: float | None = None  # the monitor of the best epoch; None before the first validation
    best_epoch: int = 0
    loss_sum: float = 0.0
    lists: int = 0
    dead: int = 0
    skipped: int = 0
    metrics_lines: int = 0
    limits: MemoryLimits = field(default_factory=MemoryLimits)

    def add(self, done: Step) -> None:
        self.step += 1
        self.epoch_step += 1
        self.loss_sum += done.loss
        self.lists += done.lists
        self.dead += done.dead
        self.skipped += not done.lists

    def end_epoch(self) -> None:
        self.epoch += 1
        self.epoch_step = self.lists = self.dead = self.skipped = 0
        self.loss_sum = 0.0


def save_checkpoint(run: Path, state: State, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write ``checkpoints/step-N`` beside its place, rename it there, and drop older ones."""
    from safetensors.torch import save_file

    folder = run / CHECKPOINTS / f"step-{state.step:08d}"
    with atomic_folder(folder, replace=True) as temporary:
        save_file(copied(_changing(model)), str(temporary / "model.safetensors"))
        held = optimizer.state_dict()["state"]
        moments = {f"{index}.{name}": value for index, values in held.items() for name, value in values.items()}
        save_file(copied(moments), str(temporary / "optimizer.safetensors"))
        write_json(temporary / STATE, asdict(state))
    for old in sorted(folder.parent.glob("step-*"))[:-KEEP]:
        shutil.rmtree(old)


def load_checkpoint(run: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> State | None:
    """Load the newest checkpoint into model and optimizer; None where there is none."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    folders = sorted((run / CHECKPOINTS).glob("step-*"))
    if not folders:
        return None
    folder = folders[-1]
    before = f"from {folders[-2].name}" if len(folders) > 1 else "from the start"
    try:
        values, weights = read_json(folder / STATE), load_file(str(folder / "model.safetensors"))
        moments = load_file(str(folder / "optimizer.safetensors"))
    except (UserError, OSError, SafetensorError) as error:
        raise UserError(
            f"{folder}: damaged checkpoint ({one_line(error)}); remove this folder to resume {before}"
        ) from error
    known, limits = asdict(State()).keys(), values.get("limits", {})
    same_keys = values.keys() == known and {*limits} == {*asdict(MemoryLimits())}
    if not same_keys or _shapes(weights) != _shapes(_changing(model)):
        raise UserError(
            f"{folder}: the checkpoint of another version of rerank or of what it builds on; use the versions in "
            f"{run / 'provenance.json'}, or remove {run} to train anew"
        )
    state = State(**{name: values[name] for name in known} | {"limits": MemoryLimits(**limits)})
    model.load_state_dict(weights, strict=False)
    check_weights(model, str(folder))
    per_parameter: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in moments.items():
        index, name = key.split(".", 1)
        per_parameter.setdefault(int(index), {})[name] = value.clone()  # not the mapped file
    optimizer.load_state_dict(optimizer.state_dict() | {"state": per_parameter})
    return state


def check_weights(model: torch.nn.Module, where: str) -> None:
    """Refuse weights, running means among them, that are not finite, or so large that their norm is not."""
    changing = (value for value in _changing(model).values() if value.is_floating_point())
    norm = sum(float(torch.linalg.vector_norm(value, dtype=torch.float32)) for value in changing)
    if not math.isfinite(norm):
        raise UserError(
            f"{where}: the weights are not finite (their norm is {norm:g}); "
            "lower optimization.encoder_lr and head_lr, and train anew in another folder"
        )


def _changing(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """What training changes of a model: buffers that are saved, and parameters that are not frozen."""
    frozen = {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}
    return {name: value for name, value in model.state_dict().items() if name not in frozen}


def _shapes(weights: dict[str, torch.Tensor]) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in weights.items()}
