"""A feed-forward network whose batch norm is over the documents of each list, as Yu's code of 2020 has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from rerank.models.vectors.inputs import FeatureInputs, ListInputs
from rerank.models.vectors.mlp import MLP


class ListMLP(MLP):
    """An MLP that normalises within each list, in scoring too, so that no document sees those of other lists.

    There are no running statistics, so ``momentum`` means nothing. With ``batch_norm: before``, the score is normalised
    as well, before its activation. Weights are drawn as Glorot and Bengio (2010) do. The arguments are those of
    :class:`MLP`.

    >>> ListMLP(hidden=[16], columns=["bm25"])
    ListMLP(hidden=[16], columns=['bm25'])
    """

    reads: ClassVar[type[FeatureInputs]] = ListInputs

    def build(self, features: int) -> None:
        super().build(features)
        if self.settings["batch_norm"] == "before":
            last = max(i for i, layer in enumerate(self.layers) if isinstance(layer, nn.Linear))
            self.layers.insert(last + 1, self.norm(1))
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.xavier_normal_(layer.weight)

    def norm(self, size: int) -> nn.Module:
        return ListNorm(size)

    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Scores ``[n]`` float32 of the real documents of ``features`` ``[B, N, F]``, list after list."""
        count, longest = batch["mask"].shape
        lists = batch["cells"] // longest
        values = batch["features"].flatten(0, 1).index_select(0, batch["cells"])
        for layer in self.layers:
            values = layer(values, lists, count) if isinstance(layer, ListNorm) else layer(values)
        return values.squeeze(1).float()


class ListNorm(nn.Module):
    """``weight (x - mean) / sd + bias``, mean and standard deviation over the documents of a list.

    >>> norm = ListNorm(1)
    >>> norm(torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([0, 0, 1]), 2).round().tolist()
    [[-1.0], [1.0], [0.0]]
    """

    EPSILON = 1e-5

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(size)), nn.Parameter(torch.zeros(size))

    def forward(self, values: Tensor, lists: Tensor, count: int) -> Tensor:
        def total(of: Tensor) -> Tensor:
            return of.new_zeros(count, of.shape[1]).index_add(0, lists, of)

        lengths = total(torch.ones_like(values[:, :1])).clamp(min=1)  # no bincount, for which a GPU's host would wait

        def mean(of: Tensor) -> Tensor:
            return total(of) / lengths

        centred = values - mean(values)[lists]
        scale = (mean(centred.square()) + self.EPSILON).rsqrt()
        return centred * scale[lists] * self.weight + self.bias
