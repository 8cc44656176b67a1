"""The layer whose output is a model's score, so that a scale and a shift of scores can be written into it."""

from __future__ import annotations

import torch
from torch import nn

from rerank.errors import UserError
from rerank.models.base import Model
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.part import TextPart
from rerank.models.text.start import last_layer


def layer_of_scores(model: Model | None) -> nn.Linear | None:
    """The layer; None where a score is more than its output: a sum of chunks or with columns, a decoder's logits."""
    if not isinstance(model, CrossEncoder) or type(model.part) is not TextPart:
        return None
    if model.start.columns or model.long == "sum":
        return None
    try:
        layer = last_layer(model.network)
    except UserError:
        return None
    return None if layer.bias is None else layer


def scale(layer: nn.Linear, a: float, b: float) -> None:
    """Let a layer give ``a`` times its output, plus ``b``; in float64, rounded to its own type once."""
    with torch.no_grad():
        layer.weight.copy_(a * layer.weight.double())
        layer.bias.copy_(a * layer.bias.double() + b)
