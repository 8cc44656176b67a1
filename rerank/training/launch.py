"""The processes that train together."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.errors import UserError
from rerank.kernels.precision import on_cpu

if TYPE_CHECKING:
    from accelerate import Accelerator


def launched(names: list[str], folder: Path) -> Accelerator:
    """This process among those that were launched together.

    Args:
        names: the trackers.
        folder: the run folder, where they log to.

    Raises:
        UserError: a tracker that cannot be used.
    """
    from accelerate import Accelerator

    try:
        accelerator = Accelerator(cpu=on_cpu(), log_with=names or None, project_dir=str(folder))
    except ValueError as error:
        raise UserError(f"tracker: {str(error).splitlines()[0]}") from error
    if len(accelerator.log_with) < len(names):
        raise UserError(f"tracker: not all of {', '.join(names)} are installed")
    return accelerator


def check_launcher() -> None:
    """Refuse what shards a model: its processes have to make equally many passes, and ours need not."""
    for name in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        if os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() in ("1", "true"):
            raise UserError(
                f"accelerate launch: {name} is not supported: its processes have to make equally many passes, and "
                "lists are of any length. Let every process hold the model (configs/accelerate/gpus.yaml, "
                "machines.yaml); where memory is short, say gradient: cached or model.lora, or take a smaller model"
            )
