"""What products reach here, and what a model's need: rates are told as a share of the first."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch


def product_rate(device: torch.device, size: int = 4096) -> float:
    """Operations a second of a large matrix product in bf16."""
    one, other = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    best = np.inf
    for _ in range(4):
        started = time.perf_counter()
        one @ other
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def operations(network: Any, lengths: np.ndarray) -> float:
    """What scoring pairs of so many tokens needs: two for a weight and token, four for a dimension and pair of tokens.

    A token of a decoder sees half of the others.
    """
    layers = [p.numel() for n, p in network.named_parameters() if ".layer" in n and p.ndim == 2]
    config = network.config
    wide = config.num_attention_heads * (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    near = sum(kind == "sliding_attention" for kind in getattr(config, "layer_types", None) or [])
    seen = (config.num_hidden_layers - near) * lengths * (0.5 if hasattr(config, "num_key_value_heads") else 1)
    seen = seen + near * np.minimum(lengths, getattr(config, "local_attention", 0) + 1)
    return float((2 * sum(layers) * lengths + 4 * wide * seen * lengths).sum())
