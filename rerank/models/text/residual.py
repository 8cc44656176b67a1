r"""A cross-encoder's text score as a residual: it is added to the first stage's scores, which it learns to correct.

.. math:: s = \sum_c w_c z_c + t

with ``z`` of the columns (:func:`rerank.lists.columns.z_scores`) and the text score ``t``. Before the first step ``t``
is 0, so that the lists are ranked as before, and a loss that depends on ranks has a ranking to improve.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rerank.errors import UserError
from rerank.lists.columns import z_scores
from rerank.lists.view import Lists
from rerank.models.base import check_added, check_column, given_column
from rerank.storage.arrow import Array

DEPTH = 100
"""Candidates of a stored list, from the top, whose mean and deviation make z."""

WEIGHT = 0.25
"""Default ``w`` of all columns together. The initial ranks do not depend on it, the gradient does: with 1, a hinge or a
sharp relaxation has no gradient on most lists, and the text score hardly learns."""


class Residual(nn.Module):
    """The first stage's share of the scores: ``w`` for each column, trained with the head's rate, not decayed.

    Args:
        columns: the columns.
        initial: ``w`` of each column before the first step.
    """

    def __init__(self, columns: Sequence[str], initial: Sequence[float]) -> None:
        super().__init__()
        if len(set(columns)) < len(columns):
            raise UserError(f"model.residual_columns: expected columns, each once, not {', '.join(columns)}")
        self.columns, self.initial = list(columns), torch.tensor(initial, dtype=torch.float32)
        self.weights = nn.Parameter(self.initial.clone()) if columns else self.initial

    @classmethod
    def of(cls, columns: list[str] | str | None, weight: float | None, contract: Mapping[str, Any]) -> Residual:
        """Take columns and weight as given, else from a contract; see :class:`rerank.CrossEncoder`."""
        saved = contract.get("residual", {})
        chosen = [columns] if isinstance(columns, str) else saved.get("columns", []) if columns is None else columns
        if weight is None and chosen == saved.get("columns"):
            return cls(chosen, saved["weights"])
        if weight is not None and not chosen:
            raise UserError(
                "model.residual_weight: has no effect without model.residual_columns; name the columns there"
            )
        return cls(chosen, [(WEIGHT if weight is None else weight) / len(chosen)] * len(chosen) if chosen else [])

    def forward(self, z: Tensor) -> Tensor:
        """Compute the first stage's share of the scores, ``[n]``, from ``[n, C]``."""
        return (z * self.weights).sum(1)

    def contract(self) -> dict[str, Any]:
        residual = {"columns": self.columns, "weights": self.weights.tolist()}
        return {"residual": residual} if self.columns else {}

    def check(self, lists: Lists) -> None:
        """Refuse lists that lack a column, or with a column that would give added documents away."""
        for name in self.columns:
            check_column(lists, name, "the model reads")
        # Added documents have the lowest z of the column that orders the lists, as all below its depth have.
        if others := [name for name in self.columns if name != lists.store.order]:
            check_added(lists, others)

    def of_lists(self, lists: Lists) -> Array | None:
        """Return the z of all candidates of a store, ``[N, C]`` float32; None without columns."""
        if not self.columns:
            return None
        return np.stack([lists.store.scaled(name, DEPTH) for name in self.columns], axis=1)

    def of_values(self, columns: Mapping[str, Sequence[float] | Array], count: int) -> Array:
        """Compute the z of the candidates of one list from given columns, ``[n, C]`` float32."""
        given = [given_column(columns, name, count, "the model reads") for name in self.columns]
        offsets, added = np.array([0, count]), np.zeros(count, dtype=bool)
        return np.stack([z_scores(values, offsets, added, DEPTH) for values in given], axis=1)


def zero_last_layer(network: Any, missing: Sequence[str]) -> bool:
    """Let every score be exactly 0 until the first step if the layer that makes it is missing; tell if it is."""
    if not missing:
        return False
    name, layer = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)][-1]
    if layer.out_features > 1:
        raise UserError(
            f"model.residual_columns: the head of {type(network).__name__} has no last layer; choose model.head cls"
        )
    if not any(f"{name}.".startswith(f"{of.rpartition('.')[0]}.") for of in missing):
        return False
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return True
