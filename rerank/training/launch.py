"""Set up Accelerate: processes, precision, accumulation and trackers, from the configuration and the launcher."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, cast

import psutil
import torch

from rerank.errors import UserError, one_line
from rerank.kernels.precision import Precision, on_cpu, resolve
from rerank.scoring.shared import PATIENCE
from rerank.training.accumulate import MemoryLimits

if TYPE_CHECKING:
    from accelerate import Accelerator
    from accelerate.utils import FullyShardedDataParallelPlugin

    from rerank.training.config import TrainConfig


def make_accelerator(precision: Precision, folder: Path | None = None, trackers: Sequence[str] = ()) -> Accelerator:
    """Join the processes that were launched together, for one training run.

    Raises:
        UserError: a tracker is not installed, or Accelerate cannot do what is asked.
    """
    from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs
    from accelerate.state import AcceleratorState
    from accelerate.tracking import filter_trackers

    AcceleratorState._reset_state()  # an earlier run of this process may have had another precision
    try:
        if len(filter_trackers(list(trackers), str(folder))) < len(trackers):
            raise UserError(f"tracker: not all of {', '.join(trackers)} are installed")
        accelerator = Accelerator(
            cpu=on_cpu(),
            mixed_precision="no" if precision == "fp32" else precision,
            log_with=list(trackers) or None,
            project_dir=None if folder is None else str(folder),
            step_scheduler_with_optimizer=False,
            fsdp_plugin=sharding(),
            kwargs_handlers=[
                InitProcessGroupKwargs(timeout=PATIENCE),
                DistributedDataParallelKwargs(find_unused_parameters=True),
            ],
        )
    except (ValueError, ImportError, RuntimeError) as error:
        raise UserError(f"accelerate: {one_line(error)}") from error
    accelerator.gradient_accumulation_steps = 1  # or its backward would divide by an exported number of steps
    return accelerator


def sharding() -> FullyShardedDataParallelPlugin | None:
    """Read from the launcher how weights are divided among GPUs; None if every process holds the whole model.

    The encoder computes in half precision under autocast, as it does unsharded, so that weights stay in float32.

    Raises:
        UserError: DeepSpeed, Megatron-LM, the first version of FSDP, or no GPU.
    """
    from accelerate.utils import FullyShardedDataParallelPlugin, parse_flag_from_env
    from torch.distributed.fsdp import MixedPrecisionPolicy

    for name in ("DeepSpeed", "Megatron_LM"):
        if parse_flag_from_env(f"ACCELERATE_USE_{name.upper()}"):
            raise UserError(
                f"accelerate launch: {name} is not supported, because its engine takes over the backward passes; "
                "use --use_fsdp --fsdp_version 2 to divide a model among GPUs"
            )
    if not parse_flag_from_env("ACCELERATE_USE_FSDP"):
        return None
    if os.environ.get("FSDP_VERSION", "1") != "2":
        raise UserError("accelerate launch: FSDP version 1 is not supported; give --fsdp_version 2")
    if on_cpu():
        raise UserError("accelerate launch: FSDP needs GPUs, and there are none; leave --use_fsdp out")
    if parse_flag_from_env("FSDP_ACTIVATION_CHECKPOINTING"):
        raise UserError("accelerate launch: --fsdp_activation_checkpointing is not supported; set gradient: cached")
    return FullyShardedDataParallelPlugin(
        auto_wrap_policy="NO_WRAP",  # our kernels read the weights of several layers at once
        cpu_ram_efficient_loading=False,  # every process reads the model
        mixed_precision_policy=MixedPrecisionPolicy(),
    )


def chosen_precision(configured: Precision, bf16: bool = True) -> tuple[Precision, str]:
    """Choose the precision from the configuration, or else from the launcher, and say why.

    ``accelerate launch`` exports "no" if nothing was asked for, so that "no" leaves the choice to ``auto``.
    """
    switch = os.environ.get("ACCELERATE_MIXED_PRECISION", "no").lower()
    if switch == "fp8":
        raise UserError("accelerate launch: --mixed_precision fp8 is not supported; use bf16, fp16 or no")
    if switch != "no" and configured not in ("auto", switch):
        raise UserError(
            f"precision: {configured} contradicts accelerate launch --mixed_precision {switch}; give one of them"
        )
    device = torch.device("cpu" if on_cpu() else torch.accelerator.current_accelerator() or "cpu")
    chosen, why = resolve(configured if switch == "no" else cast("Precision", switch), device, bf16)
    source = "precision" if switch == "no" else "accelerate launch --mixed_precision"
    if chosen == "fp16" and device.type == "cpu":
        raise UserError(f"{source}: fp16 needs a GPU, and there is none; use bf16 or fp32")
    return chosen, why if switch == "no" else source


def micro_batch_size(config: TrainConfig, processes: int) -> int | None:
    """Return the lists per micro-batch, as configured or from the launcher's number of accumulation steps.

    Raises:
        UserError: both are given.
    """
    if (steps := launched_accumulation_steps()) is None:
        return config.micro_batch_size
    if config.micro_batch_size is not None:
        raise UserError(
            f"micro_batch_size: {config.micro_batch_size} contradicts accelerate launch "
            f"--gradient_accumulation_steps {steps}; give one of them"
        )
    return max(1, -(-config.batch_size * config.sampler.queries // (processes * steps)))


def launched_accumulation_steps() -> int | None:
    """Find ``--gradient_accumulation_steps`` of ``accelerate launch``; None if it was not given.

    Accelerate exports the switch to DeepSpeed only, so that it is read from the command line of the launcher, which is
    our parent process.
    """
    if "ACCELERATE_MIXED_PRECISION" not in os.environ:
        return None
    try:
        parent = psutil.Process().parent()
        words = [] if parent is None else [word for line in parent.cmdline() for word in line.split("=", 1)]
    except psutil.Error:
        return None
    for word, value in pairwise(words):
        if word.replace("-", "_") == "__gradient_accumulation_steps":
            return int(value)
    return None


def describe_batch(processes: int, lists: int, micro: int | None, budget: int, precision: str) -> str:
    """Describe how a batch is divided.

    >>> describe_batch(2, 8, 2, 2048, "bf16")
    '2 processes × 2 micro-batches × 2 lists = 8 lists per step, bf16'
    >>> describe_batch(1, 16, None, 2048, "fp32")
    '1 process × micro-batches of up to 2048 tokens = 16 lists per step, fp32'
    """
    who = f"{processes} process{'es' if processes > 1 else ''}"
    if micro is None:
        return f"{who} × micro-batches of up to {budget} tokens = {lists} lists per step, {precision}"
    each = -(-lists // processes)
    size = min(micro, each)
    steps = -(-each // size)
    return (
        f"{who} × {steps} micro-batch{'es' if steps > 1 else ''} × {size} list{'s' if size > 1 else ''} "
        f"{'=' if processes * steps * size == lists else '≥'} {lists} lists per step, {precision}"
    )


def agree(limits: MemoryLimits, accelerator: Accelerator) -> None:
    """Take the least of the memory limits that the processes found, so that all of them cut batches alike."""
    mine = torch.tensor([[limits.token_budget, limits.full_tokens]], device=accelerator.device)
    limits.token_budget, limits.full_tokens = accelerator.gather(mine).amin(dim=0).tolist()
