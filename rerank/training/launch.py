"""Set up Accelerate: processes, precision, accumulation and trackers, from the configuration and the launcher."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import torch
import yaml

from rerank.errors import UserError, one_line
from rerank.kernels.precision import Precision, on_cpu, resolve
from rerank.progress import log
from rerank.scoring.together import check_gpus
from rerank.training.accumulate import MemoryLimits

if TYPE_CHECKING:
    from accelerate import Accelerator

    from rerank.training.config import TrainConfig

PATIENCE = timedelta(hours=2)
"""How long a process waits for another, which may be the only one to measure and to write."""

UNLIMITED = 1 << 62
"""Stands for any number of tokens when processes agree on the least."""

MIXED_PRECISION = {"fp32": "no", "bf16": "bf16", "fp16": "fp16"}
"""Accelerate's name of each precision."""


def make_accelerator(
    config: TrainConfig, folder: Path, trackers: list[str], bf16: bool, find_unused: bool
) -> tuple[Accelerator, str]:
    """Join the processes that were launched together; give the accelerator and why it has its precision.

    Raises:
        UserError: the configuration and a switch of the launcher contradict each other, a tracker is not installed, or
            Accelerate cannot do what is asked.
    """
    check_gpus()
    precision, why = chosen_precision(config.precision, bf16)
    for name in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        if os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() in ("1", "true"):
            raise UserError(
                f"accelerate launch: {name} is not supported: its processes have to make equally many passes, and "
                "lists are of any length; start processes that hold the whole model (configs/accelerate/gpus.yaml), "
                "and if memory is short, set gradient: cached or model.lora"
            )
    return start_accelerator(precision, folder, trackers, find_unused), why


def start_accelerator(
    precision: Precision, folder: Path | None = None, trackers: Sequence[str] = (), find_unused: bool = True
) -> Accelerator:
    """Join the processes that were launched together, for one training run.

    Raises:
        UserError: a tracker is not installed, or Accelerate cannot do what is asked.
    """
    from accelerate import Accelerator, DistributedDataParallelKwargs, InitProcessGroupKwargs
    from accelerate.state import AcceleratorState
    from accelerate.tracking import filter_trackers

    AcceleratorState._reset_state()  # an earlier run of this process may have had another precision
    try:
        installed = filter_trackers(list(trackers), str(folder))
        if len(installed) < len(trackers):
            raise UserError(f"tracker: not all of {', '.join(trackers)} are installed")
        return Accelerator(
            cpu=on_cpu(),
            mixed_precision=MIXED_PRECISION[precision],
            log_with=list(trackers) or None,
            project_dir=None if folder is None else str(folder),
            step_scheduler_with_optimizer=False,
            kwargs_handlers=[
                InitProcessGroupKwargs(timeout=PATIENCE),
                DistributedDataParallelKwargs(find_unused_parameters=find_unused),
            ],
        )
    except (ValueError, ImportError, RuntimeError) as error:
        raise UserError(f"accelerate: {one_line(error)}") from error


def chosen_precision(configured: Precision, bf16: bool = True) -> tuple[Precision, str]:
    """Choose the precision from the configuration, or else from the launcher, and say why.

    ``accelerate launch`` exports "no" if nothing was asked for, so that "no" leaves the choice to ``auto``.
    """
    switch = os.environ.get("ACCELERATE_MIXED_PRECISION", "no").lower()
    if switch == "fp8":
        raise UserError("accelerate launch: --mixed_precision fp8 is not supported; use bf16, fp16 or no")
    if switch == "no":
        device = torch.device("cpu" if on_cpu() else torch.accelerator.current_accelerator() or "cpu")
        return resolve(configured, device, bf16)
    if configured not in ("auto", switch):
        raise UserError(
            f"precision: {configured} contradicts accelerate launch --mixed_precision {switch}; give one of them"
        )
    return resolve(switch, torch.device("cpu"))[0], "accelerate launch --mixed_precision"  # type: ignore[arg-type]


def micro_batch_size(config: TrainConfig, processes: int) -> int | None:
    """Give the lists per micro-batch that the configured or launched number of accumulation steps asks for.

    Raises:
        UserError: ``micro_batch_size`` is configured as well, or configuration and launcher differ.
    """
    launched, configured = launched_accumulation_steps(), config.gradient_accumulation_steps
    if launched is not None and configured not in (None, launched):
        raise UserError(
            f"gradient_accumulation_steps: {configured} contradicts accelerate launch "
            f"--gradient_accumulation_steps {launched}; give one of them"
        )
    steps = configured or launched
    if steps is None:
        return config.micro_batch_size
    if config.micro_batch_size is not None:
        raise UserError(
            f"micro_batch_size: {config.micro_batch_size} and gradient_accumulation_steps: {steps} both cut the batch; "
            "give one of them"
        )
    return max(1, -(-config.batch_size * config.sampler.queries // (processes * steps)))


def launched_accumulation_steps() -> int | None:
    """Find ``--gradient_accumulation_steps`` of ``accelerate launch``; None if it was not given.

    Accelerate exports the switch to DeepSpeed only, so that it is read from the launcher's command line: the launcher
    is our parent process.
    """
    if "ACCELERATE_MIXED_PRECISION" not in os.environ:
        return None
    try:
        parent = psutil.Process().parent()
        words = parent.cmdline() if parent is not None else []
    except psutil.Error:
        return None
    for name in ("--gradient_accumulation_steps", "--gradient-accumulation-steps"):
        for number, word in enumerate(words):
            value = words[number + 1] if word == name and number + 1 < len(words) else word.partition(f"{name}=")[2]
            if value.isdigit():
                return int(value)
    return None


def describe_batch(processes: int, lists: int, micro: int | None, budget: int, precision: str) -> str:
    """Say how a batch is divided.

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


def warn_if_idle(processes: int, lists: int, whole_batches: bool) -> None:
    """Warn if there are more processes than lists in a step."""
    why = "a step has %d lists; raise batch_size, or "
    if whole_batches:
        lists, why = 1, "batch norm is over a whole batch, which %d process takes; "
    if (idle := processes - lists) > 0:
        log.warning(f"%d of %d processes are idle: {why}start fewer processes", idle, processes, lists)


def agree(limits: MemoryLimits, device: torch.device) -> None:
    """Take the least of the memory limits that the processes found, so that all of them cut batches alike."""
    if not torch.distributed.is_initialized():
        return
    full = UNLIMITED if limits.full_tokens is None else limits.full_tokens
    least = torch.tensor([limits.token_budget, full], device=device)
    torch.distributed.all_reduce(least, torch.distributed.ReduceOp.MIN)
    limits.token_budget, full = least.tolist()
    limits.full_tokens = None if full == UNLIMITED else full


def flat_settings(config: str) -> dict[str, Any]:
    """Flatten a configuration (YAML) for trackers: ``{"loss.init_args.measure": "nDCG@10", ...}``."""
    from pandas import json_normalize

    (flat,) = json_normalize(yaml.safe_load(config)).to_dict("records")
    return {str(key): value if isinstance(value, int | float | str) else str(value) for key, value in flat.items()}
