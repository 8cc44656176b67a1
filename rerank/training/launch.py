"""The processes that train together, and the trackers that they log to."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import yaml

from rerank.errors import UserError, one_line
from rerank.kernels.precision import on_cpu
from rerank.progress import log
from rerank.scoring.together import check_gpus
from rerank.training.step import MemoryLimits

if TYPE_CHECKING:
    from accelerate import Accelerator


PATIENCE = timedelta(hours=2)
"""How long a process that trains waits for another, which may be the only one to measure and to write."""

SWITCHES = (
    ("mixed_precision", "no", "give --precision bf16, fp16 or fp32 after the script"),
    ("gradient_accumulation_steps", "1", "give --batch_size and --micro_batch_size after the script"),
    ("dynamo_backend", "no", "networks run as they are, without torch.compile"),
)
"""Switches of Accelerate's launcher (and of its configuration files), their neutral value, and what ours are."""

ANY = 1 << 62
"""Tokens that stand for any number of them."""


def launched(names: list[str], folder: Path) -> Accelerator:
    """This process among those that were launched together."""
    from accelerate import Accelerator, InitProcessGroupKwargs
    from accelerate.tracking import filter_trackers

    try:
        installed = filter_trackers(names, str(folder))
    except ValueError as error:
        raise UserError(f"tracker: {one_line(error)}") from error
    if len(installed) < len(names):
        raise UserError(f"tracker: not all of {', '.join(names)} are installed")
    patience = InitProcessGroupKwargs(timeout=PATIENCE)
    try:
        return Accelerator(cpu=on_cpu(), log_with=names or None, project_dir=str(folder), kwargs_handlers=[patience])
    except ValueError as error:
        raise UserError(f"accelerate launch: {one_line(error)}") from error


def warn_if_idle(processes: int, lists: int, whole_batches: bool) -> None:
    """Say so where there are more processes than lists in a step."""
    why = "a step has %d lists; raise batch_size, or "
    if whole_batches:
        lists, why = 1, "batch norm is over a whole batch, which %d process takes; "
    if (idle := processes - lists) > 0:
        log.warning(f"%d of %d processes are idle: {why}start fewer processes", idle, processes, lists)


def agree(limits: MemoryLimits, device: torch.device) -> None:
    """Take the least of what the processes found to fit, so that a run that resumes cuts in all of them as before."""
    if not torch.distributed.is_initialized():
        return
    full = ANY if limits.full_tokens is None else limits.full_tokens
    least = torch.tensor([limits.token_budget, full], device=device)
    torch.distributed.all_reduce(least, torch.distributed.ReduceOp.MIN)
    limits.token_budget, full = least.tolist()
    limits.full_tokens = None if full == ANY else full


def check_launcher() -> None:
    """Refuse what shards a model, and what a launcher sets that the configuration decides, rather than pass it over."""
    check_gpus()
    for switch, unset, instead in SWITCHES:
        value = os.environ.get(f"ACCELERATE_{switch.upper()}", unset).lower()
        if value != unset:
            raise UserError(
                f"accelerate launch: --{switch} {value} would not be looked at; leave it at {unset}, and {instead}"
            )
    for name in ("FSDP", "DEEPSPEED", "MEGATRON_LM"):
        if os.environ.get(f"ACCELERATE_USE_{name}", "false").lower() in ("1", "true"):
            raise UserError(
                f"accelerate launch: {name} is not supported: its processes have to make equally many passes, and "
                "lists are of any length. Let every process hold the model (configs/accelerate/gpus.yaml, "
                "machines.yaml); where memory is short, set gradient: cached or model.lora, or take a smaller model"
            )


def flat_settings(config: str) -> dict[str, Any]:
    """A configuration (YAML) as trackers show it: ``{"loss.init_args.measure": "nDCG@10", ...}``."""
    from pandas import json_normalize

    (flat,) = json_normalize(yaml.safe_load(config)).to_dict("records")
    return {str(key): value if isinstance(value, int | float | str) else str(value) for key, value in flat.items()}
