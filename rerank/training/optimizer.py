"""Two groups of parameters, their learning rates over the run."""

from __future__ import annotations

import torch

from rerank.models.scorer import Scorer
from rerank.training.config import Optimization


def make_optimizer(model: Scorer, options: Optimization) -> torch.optim.Optimizer:
    """Adam or AdamW with the groups ``encoder`` and ``head``; biases and norms are not decayed."""
    head = model.head_parameters()
    groups: dict[tuple[float, float], list[torch.nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            rate = options.head_lr if name in head else options.encoder_lr
            decay = options.weight_decay if parameter.dim() > 1 else 0.0
            groups.setdefault((rate, decay), []).append(parameter)
    kind = torch.optim.AdamW if options.decay == "decoupled" else torch.optim.Adam
    return kind(
        [{"params": p, "lr": rate, "base_lr": rate, "weight_decay": decay} for (rate, decay), p in groups.items()],
        fused=next(model.parameters()).device.type in ("cpu", "cuda") or None,  # one pass over the weights
    )


def set_rates(optimizer: torch.optim.Optimizer, options: Optimization, step: int, steps: int) -> float:
    """Set the learning rates of a step (counted from 0) of a run of ``steps``; returns the factor applied."""
    warmup = round(options.warmup * steps)
    factor = min(1.0, (step + 1) / (warmup + 1))
    if options.schedule == "linear" and step >= warmup:
        factor = max(0.0, (steps - step) / max(1, steps - warmup))
    elif options.schedule == "half" and step >= steps / 2:
        factor *= 0.1
    for group in optimizer.param_groups:
        group["lr"] = group["base_lr"] * factor
    return factor
