"""Our kernels in a cross-encoder: proved when it is loaded, chosen by the processor where it computes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rerank.kernels.flat import flatten, reads_flat
from rerank.kernels.implementations import Implementations
from rerank.kernels.precision import Precision, cpu_flags
from rerank.kernels.products import works
from rerank.kernels.proof import works_here
from rerank.models.text.long import score_rows
from rerank.models.text.network import positions_of
from rerank.models.text.template import PairTemplate

log = logging.getLogger("rerank")

LARGEST_BUDGET = 1 << 16
"""Tokens of a forward pass on a GPU at the most. With 8,192 MiniLM's kernels take less time than their launches."""

PROBE = 70
"""Tokens of the longer of two pairs on which kernels prove themselves: more than a window of local attention."""


def probe(config: Any, tokenizer: Any, template: PairTemplate) -> dict[str, Tensor]:
    """A short and a longer pair of random words, padded."""
    special, rng = template.special, np.random.default_rng(0)
    words = np.setdiff1d(np.arange(min(config.vocab_size, len(tokenizer))), tokenizer.all_special_ids)
    longest = max(2, min(PROBE, positions_of(config, tokenizer)) - special)
    of_query = (longest - 1) // 4 + 1
    sides = [[rng.choice(words, n) for n in lengths] for lengths in ((1, of_query), (2, longest - of_query))]
    return {name: torch.from_numpy(array) for name, array in template.join(*sides).items()}


def faster_implementations(
    network: Any, batch: Mapping[str, Tensor], device: torch.device, precision: Precision
) -> Implementations:
    """The faster implementations on a device, by the tables of ``docs/training.md``.

    On a CPU ours are in bf16 and where weights are dropped, but for attention in scoring with AMX, whose products make
    PyTorch's faster; in float32 without dropout PyTorch's are. On a GPU ours are, where they work on a probe.
    """
    if device.type == "cpu":
        half, amx = precision == "bf16", "amx_bf16" in cpu_flags()
        return Implementations(
            scoring="own" if half and not amx else "torch",
            training="own" if half else "torch",
            dropped="own",
            dropout="own",
            products="own" if half and works() else "torch",
        )
    return faster_on_gpu(network, flatten(batch, network) if reads_flat(network) else {}, device, precision)


def faster_on_gpu(network: Any, flat: Mapping[str, Any], device: torch.device, precision: Precision) -> Implementations:
    """Ours, where they work on a flat batch: on a CPU they were proved when the network was loaded."""
    given = {name: value.to(device) for name, value in flat.items()}
    if given and (why := works_here(network, partial(score_rows, network, long="truncate"), given, precision)):
        log.warning("our attention does not work on this GPU (%s); PyTorch's is used, more slowly", why)
        return Implementations.all("torch")
    return Implementations.all("own")


def tokens_on_gpu(free: int | None, config: Any) -> int:
    """Tokens that a forward pass without a graph has room for on a GPU: a power of two from 8,192 to 65,536.

    A token takes about 30 bytes for each number of its state while a layer with four times as wide a middle computes
    in half precision (the state twice, in float32 and cast, queries, keys, values, the middle before and after its
    activation); 64 leave room for what is kept beside.
    """
    each = 64 * config.hidden_size
    return int(min(LARGEST_BUDGET, max(8192, 2 ** int(np.log2(max(1.0, 0.5 * (free or 0) / each))))))
