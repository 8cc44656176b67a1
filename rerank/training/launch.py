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
from rerank.training.accumulate import MemoryLimits

if TYPE_CHECKING:
    from accelerate import Accelerator
    from accelerate.utils import FullyShardedDataParallelPlugin

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
    precision, why = chosen_precision(config.precision, bf16)
    return start_accelerator(precision, folder, trackers, find_unused, sharding()), why


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
    plugin = FullyShardedDataParallelPlugin(
        auto_wrap_policy="NO_WRAP",  # our kernels read the weights of several layers at once
        cpu_ram_efficient_loading=False,  # every process reads the model
        mixed_precision_policy=MixedPrecisionPolicy(),
    )
    if plugin.activation_checkpointing:
        raise UserError("accelerate launch: --fsdp_activation_checkpointing is not supported; set gradient: cached")
    return plugin


def start_accelerator(
    precision: Precision,
    folder: Path | None = None,
    trackers: Sequence[str] = (),
    find_unused: bool = True,
    sharding: FullyShardedDataParallelPlugin | None = None,
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
            fsdp_plugin=sharding,
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
    device = torch.device("cpu" if on_cpu() else torch.accelerator.current_accelerator() or "cpu")
    if switch == "fp8":
        raise UserError("accelerate launch: --mixed_precision fp8 is not supported; use bf16, fp16 or no")
    if switch != "no" and configured not in ("auto", switch):
        raise UserError(
            f"precision: {configured} contradicts accelerate launch --mixed_precision {switch}; give one of them"
        )
    chosen, why = resolve(configured if switch == "no" else switch, device, bf16)  # type: ignore[arg-type]
    if chosen == "fp16" and device.type == "cpu":
        source = "precision" if switch == "no" else "accelerate launch --mixed_precision"
        raise UserError(f"{source}: fp16 needs a GPU, and there is none; use bf16 or fp32")
    return chosen, why if switch == "no" else "accelerate launch --mixed_precision"


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


def extras(accelerator: Accelerator) -> list[str]:
    """Name what else the launcher asked for: sharding, and the compiler's backend."""
    backend = accelerator.state.dynamo_plugin.backend.value.lower()
    return ["sharded"] * accelerator.is_fsdp2 + [backend] * (backend != "no")


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
