"""Frozen weights in the type that they are multiplied in: one copy for all chunks.

Autocast keeps the casts of weights that are trained, and casts those that are not again for every chunk, whose graph
keeps its own. Most large models were published in bf16, which holds their weights to the last bit; products, under
autocast, are then the same to the last bit.
"""

from __future__ import annotations

import torch
from torch import nn

from rerank.kernels.precision import Precision

INEXACT = "rerank_inexact"
"""Of a layer whose weight bf16 does not hold."""


def hold_frozen(network: nn.Module, precision: Precision) -> None:
    """Hold the frozen weights of linear layers in bf16, where the encoder computes in it and they lose nothing by it.

    Any other precision brings float32 back. Weights that embeddings share stay in float32, as what these give does.
    """
    kind = torch.bfloat16 if precision == "bf16" else torch.float32
    embedded = {id(module.weight) for module in network.modules() if isinstance(module, nn.Embedding)}
    for module in network.modules():
        if not isinstance(module, nn.Linear) or module.weight.requires_grad or id(module.weight) in embedded:
            continue
        weight = module.weight
        if weight.dtype == kind or INEXACT in module.__dict__:
            continue
        held = weight.detach().to(kind)
        if torch.equal(held.float(), weight.float()):
            weight.data = held
        else:
            module.__dict__[INEXACT] = True
