r"""A cross-encoder that starts where the first stage is: what its text part says is added to the first stage's scores.

.. math:: s = \sum_c w_c z_c + t

with ``z`` of the columns (:func:`rerank.lists.scaled.z_scores`) and ``t`` the text part's score. Before the first step
``t`` is 0, so that the lists are ranked as before, and a loss that looks at ranks has something to look at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rerank.errors import UserError
from rerank.lists.scaled import z_scores
from rerank.lists.view import Lists
from rerank.models.columns import check_added, given_column
from rerank.storage.arrow import Array

DEPTH = 100
"""Candidates of a stored list, from the top, whose mean and deviation make z."""

WEIGHT = 0.25
"""Default ``w`` of all columns together. The initial ranks do not depend on it, the gradient does: with 1, a hinge or a
sharp relaxation has no gradient on most lists, and the text score hardly learns."""


class Start(nn.Module):
    """The first stage's share of the scores: ``w`` for each column, trained with the head's rate, not decayed.

    Args:
        columns: the columns.
        initial: ``w`` of each column before the first step.
    """

    def __init__(self, columns: Sequence[str], initial: Sequence[float]) -> None:
        super().__init__()
        if len(set(columns)) < len(columns):
            raise UserError(f"model.start: expected columns, each once, not {', '.join(columns)}")
        self.columns, self.initial = list(columns), list(initial)
        weights = torch.tensor(self.initial, dtype=torch.float32)
        self.weights = nn.Parameter(weights) if columns else weights

    @classmethod
    def of(cls, columns: list[str] | str | None, weight: float | None, contract: Mapping[str, Any]) -> Start:
        """Take columns and weight as given, else from a contract; see :class:`rerank.CrossEncoder`."""
        saved = contract.get("start", {})
        chosen = [columns] if isinstance(columns, str) else saved.get("columns", []) if columns is None else columns
        if weight is None and chosen == saved.get("columns"):
            return cls(chosen, saved["weights"])
        if weight is not None and not chosen:
            raise UserError("model.start_weight: has no effect without model.start; name the columns there")
        return cls(chosen, [(WEIGHT if weight is None else weight) / len(chosen)] * len(chosen) if chosen else [])

    def begin(self) -> None:
        """Set the initial weights."""
        with torch.no_grad():
            self.weights.copy_(torch.tensor(self.initial, dtype=torch.float32))

    def forward(self, z: Tensor) -> Tensor:
        """Compute the first stage's share of the scores, ``[n]``, from ``[n, C]``."""
        return (z * self.weights).sum(1)

    def contract(self) -> dict[str, Any]:
        start = {"columns": self.columns, "weights": self.weights.tolist()}
        return {"start": start} if self.columns else {}

    def check(self, lists: Lists) -> None:
        """Refuse lists that lack a column, or with a column that would give added documents away."""
        for name in self.columns:
            try:
                lists.select([]).column(name)
            except UserError as error:
                raise UserError(f"the model starts from column {name}; {error}") from error
        # Added documents have the lowest z of the column that orders the lists, as all below its depth have.
        if others := [name for name in self.columns if name != lists.store.order]:
            check_added(lists, others)

    def of_lists(self, lists: Lists, rows: Array) -> Array:
        """Return the z of candidates of a store, ``[n, C]`` float32."""
        return np.stack([lists.store.scaled(name, DEPTH, rows) for name in self.columns], axis=1)

    def of_values(self, columns: Mapping[str, Sequence[float] | Array], count: int) -> Array:
        """Compute the z of the candidates of one list from given columns, ``[n, C]`` float32."""
        given = [given_column(columns, name, count, "the model starts from") for name in self.columns]
        offsets, added = np.array([0, count]), np.zeros(count, dtype=bool)
        return np.stack([z_scores(values, offsets, added, DEPTH) for values in given], axis=1)


def last_layer(network: Any) -> nn.Linear:
    """Return the layer that makes the score: the last one with a single output, outside the encoder."""
    parts = (part for name, part in network.named_children() if name != network.base_model_prefix)
    layers = (module for part in parts for module in part.modules() if isinstance(module, nn.Linear))
    found = [layer for layer in layers if layer.out_features == 1]
    if not found:
        raise UserError(f"model.start: the head of {type(network).__name__} has no last layer; choose model.head cls")
    return found[-1]


def start_at_zero(network: Any, missing: Sequence[str]) -> bool:
    """Let every score be exactly 0 until the first step if the layer that makes it is missing; tell if it is."""
    layer = last_layer(network) if missing else None
    if not any(layer in network.get_submodule(name.rpartition(".")[0]).modules() for name in missing):
        return False
    assert layer is not None
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return True
