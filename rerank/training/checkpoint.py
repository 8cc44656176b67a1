"""Checkpoints of an interrupted run: Accelerate's state, in folders that are complete or absent."""

from __future__ import annotations

import math
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rerank.errors import UserError
from rerank.models.folder import copied
from rerank.storage.files import flush_folder
from rerank.training.accumulate import MemoryLimits, StepResult
from rerank.training.results import Measured
from rerank.training.run_folder import CHECKPOINTS

if TYPE_CHECKING:
    from accelerate import Accelerator

WEIGHTS = "model.safetensors"
"""File of the model's weights in a checkpoint."""


@dataclass
class State:
    """Progress of a run, registered with Accelerate. Each step seeds random numbers from (seed, step, process)."""

    epoch: int = 0
    epoch_step: int = 0
    step: int = 0
    best: float | None = None  # the monitor of the best epoch; None before the first validation
    best_epoch: int = 0
    loss_sum: float = 0.0
    skipped: int = 0
    logged: int = 0  # bytes of metrics.jsonl
    limits: MemoryLimits = field(default_factory=MemoryLimits)
    start: dict[str, Measured] = field(default_factory=dict)  # the model before its first step, by split
    precision: str = ""  # of the encoder, as it was resolved

    def add(self, done: StepResult) -> None:
        self.step += 1
        self.epoch_step += 1
        self.loss_sum += done.loss
        self.skipped += not done.lists

    def end_epoch(self) -> None:
        self.epoch += 1
        self.epoch_step = self.skipped = 0
        self.loss_sum = 0.0

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)

    def load_state_dict(self, values: dict[str, Any]) -> None:
        start = {split: Measured(**found) for split, found in values["start"].items()}
        vars(self).update(values | {"limits": MemoryLimits(**values["limits"]), "start": start})


def register_state(accelerator: Accelerator, scorer: torch.nn.Module, state: State) -> None:
    """Have Accelerate save and load the run's progress and, of the model, what training changes."""
    from safetensors.torch import load_file, save_file

    def save(models: list[Any], weights: list[Any], folder: str) -> None:
        if accelerator.is_main_process and not accelerator.is_fsdp2:  # else Accelerate has saved the model
            save_file(copied(trained_weights(scorer)), f"{folder}/{WEIGHTS}")
        weights.clear()  # Accelerate saves no others

    def load(models: list[Any], folder: str) -> None:
        if accelerator.is_fsdp2:  # Accelerate has loaded the model
            return
        saved = load_file(f"{folder}/{WEIGHTS}")
        if saved.keys() != trained_weights(scorer).keys():
            raise UserError(f"{folder}: has the weights of another version; train anew, with another output")
        scorer.load_state_dict(saved, strict=False)
        check_weights(scorer, folder)
        models.clear()

    accelerator.register_for_checkpointing(state)
    accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)


def save_checkpoint(accelerator: Accelerator, run: Path, step: int) -> None:
    """Write ``checkpoints/step-N`` beside its place, rename it when complete, and drop older ones."""
    folder = run / CHECKPOINTS / f"step-{step:08d}"
    temporary = folder.with_name(f".{folder.name}.tmp")
    accelerator.save_state(str(temporary))
    accelerator.wait_for_everyone()
    if accelerator.is_main_process:
        flush_folder(temporary)
        if folder.exists():  # of a run that was stopped at this step before
            folder.rename(folder.with_name(f".{folder.name}.old"))
        temporary.rename(folder)
        shutil.rmtree(folder.with_name(f".{folder.name}.old"), ignore_errors=True)
        for old in sorted(folder.parent.glob("step-*"))[:-2]:  # the newest, and one to fall back on
            shutil.rmtree(old)
    accelerator.wait_for_everyone()


def load_checkpoint(accelerator: Accelerator, run: Path) -> bool:
    """Load the newest checkpoint into what Accelerate prepared and registered; False if there is none."""
    from accelerate.utils.constants import SCALER_NAME

    if accelerator.is_main_process:
        for left in (run / CHECKPOINTS).glob(".step-*"):  # by a run that was killed while it wrote
            shutil.rmtree(left)
    accelerator.wait_for_everyone()
    newest = max((run / CHECKPOINTS).glob("step-*"), default=None)
    if newest:
        scaler = accelerator.scaler
        if not (newest / SCALER_NAME).exists():  # it was not written in fp16
            accelerator.scaler = None
        accelerator.load_state(str(newest))
        accelerator.scaler = scaler
    return newest is not None


def trained_weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Select what training changes of a model: buffers that are saved, and parameters that are not frozen."""
    frozen = {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}
    return {name: value for name, value in model.state_dict().items() if name not in frozen}


def check_weights(model: torch.nn.Module, where: str) -> None:
    """Raise if trained weights or running statistics are not finite, or their norm is not."""
    changing = (value for value in trained_weights(model).values() if value.is_floating_point())
    norm = sum(float(torch.linalg.vector_norm(value, dtype=torch.float32)) for value in changing)
    if not math.isfinite(norm):
        raise UserError(
            f"{where}: the weights are not finite (their norm is {norm:g}); "
            "lower optimization.encoder_lr and head_lr, and train anew in another folder"
        )
