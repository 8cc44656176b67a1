r"""A cross-encoder that starts where the first stage is: what its text part says is added to the first stage's scores.

.. math:: s = \sum_c w_c z_c + t

with ``z`` of the columns (:func:`rerank.lists.scaled.z_scores`) and ``t`` the text part's score. Before the first step
``t`` is 0, so that the lists are ranked as before, and a loss that looks at ranks has something to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from rerank.errors import UserError, one_line
from rerank.lists.scaled import z_scores
from rerank.lists.split_hashes import scaled
from rerank.models.added import check_added
from rerank.models.base import Inputs
from rerank.models.score import score_candidates

if TYPE_CHECKING:
    from rerank.lists.view import Lists
    from rerank.models.scorer import Scorer
    from rerank.storage.arrow import Array

DEPTH = 100
"""Default number of candidates of a list whose mean and deviation make z."""

WEIGHT = 0.25
"""The first stage's share at the start where the head is fresh: ranks do not depend on it, the gradient does. With 1
most lists are beyond what moves a hinge or a sharp relaxation, and the text hardly learns."""

SAMPLE = (16, 16)
"""Training lists, and candidates of each, whose scores say how far those of a trained text part are apart."""


class Start(nn.Module):
    """The first stage's share of the scores: ``w`` for each column, trained with the head's rate, not decayed.

    Args:
        columns: the columns.
        depth: candidates of a list whose mean and deviation make z.

    Raises:
        UserError: no columns, one that is named twice, a depth below 1.
    """

    def __init__(self, columns: Sequence[str], depth: int) -> None:
        super().__init__()
        if len(set(columns)) < max(1, len(columns)):
            raise UserError(f"model.start: expected columns, each once, not {', '.join(columns) or 'none'}")
        if depth < 1:
            raise UserError(f"model.start_depth: must be at least 1, not {depth}")
        self.columns, self.depth = list(columns), depth
        self.weights = nn.Parameter(torch.zeros(len(columns)))
        self.share(WEIGHT)

    def share(self, weight: float) -> None:
        """Set equal ``w`` of this sum."""
        self.set([weight / len(self.columns)] * len(self.columns))

    def set(self, weights: Sequence[float]) -> None:
        """Set ``w``."""
        with torch.no_grad():
            self.weights.copy_(torch.tensor(list(weights), dtype=torch.float32))

    def forward(self, z: Tensor) -> Tensor:
        """What is added to the text part's scores, ``[n]``, from ``[n, C]``."""
        return (z * self.weights).sum(1)

    def by_column(self) -> dict[str, float]:
        """``w`` by the names of the columns."""
        return dict(zip(self.columns, self.weights.tolist(), strict=True))

    def contract(self) -> dict[str, Any]:
        """What is saved."""
        return {"columns": self.columns, "depth": self.depth, "weights": self.weights.tolist()}

    def names(self) -> list[str]:
        """What is read of the lists."""
        return [scaled(name, self.depth) for name in self.columns]

    def check(self, lists: Lists) -> None:
        """Refuse lists that lack a column, or whose column would give added documents away."""
        for name in self.columns:
            try:
                lists.select([]).column(name)
            except UserError as error:
                raise UserError(f"the model starts from column {name}; {error}") from error
        check_added(lists, self.columns)

    def of_lists(self, lists: Lists, rows: Array) -> Tensor:
        """The z of candidates of a store, ``[n, C]``."""
        z = [lists.store.scaled(name, self.depth, rows) for name in self.columns]
        return torch.from_numpy(np.stack(z, axis=1))

    def of_values(self, columns: Mapping[str, Sequence[float] | Array], count: int) -> Tensor:
        """The z of the candidates of one list whose columns are given, ``[n, C]``.

        Args:
            columns: numbers of each column, best candidate first; None or NaN where a system did not return it.
            count: the number of candidates.
        """
        z = []
        for name in self.columns:
            if name not in columns:
                raise UserError(f"columns: the model starts from column {name}; give its scores of the documents")
            try:
                values = np.asarray(columns[name], dtype=np.float32)
            except (TypeError, ValueError) as error:
                raise UserError(f"columns: {name} has something else than numbers ({one_line(error)})") from error
            if np.isinf(values).any():
                raise UserError(f"columns: {name} has {values[np.isinf(values)][0]}; expected finite numbers, or None")
            if values.shape != (count,):
                raise UserError(f"columns: {name} has {values.size} numbers, there are {count} documents")
            z.append(z_scores(values, np.array([0, count]), np.zeros(count, dtype=bool), self.depth))
        return torch.from_numpy(np.stack(z, axis=1))


class StartInputs(Inputs):
    """What the text part reads, and z beside it.

    Args:
        text: the inputs of the text part.
        start: the first stage's share.
        lists: the lists.
    """

    def __init__(self, text: Inputs, start: Start, lists: Lists) -> None:
        self.text, self.start, self.lists = text, start, lists

    def lengths(self, rows: Array) -> Array:
        """Tokens of every pair."""
        return self.text.lengths(rows)

    def collate(self, rows: Array, starts: Array) -> dict[str, Tensor]:
        """What the text part reads."""
        return self.text.collate(rows, starts)

    def chunks(self, rows: Array, starts: Array, budget: int) -> list[Array]:
        """As the text part's are cut."""
        return self.text.chunks(rows, starts, budget)

    def beside(self, rows: Array) -> Tensor:
        """The z of candidates, ``[n, C]`` float32."""
        return self.start.of_lists(self.lists, rows)


def last_layer(network: Any) -> nn.Linear:
    """The layer that makes the score: the last one with a single output, outside the encoder.

    Raises:
        UserError: the head has none.
    """
    found = [
        module
        for name, child in network.named_children()
        if name != network.base_model_prefix
        for module in child.modules()
        if isinstance(module, nn.Linear) and module.out_features == 1
    ]
    if not found:
        raise UserError(f"model.start: the head of {type(network).__name__} has no last layer; choose model.head cls")
    return found[-1]


def start_at_zero(network: Any) -> None:
    """Let every score be exactly 0 until the first step."""
    layer = last_layer(network)
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)


def spread(model: Scorer, text: Callable[[Lists], Inputs], lists: Lists, depth: int, seed: int) -> float:
    """How far the text part's scores are apart within lists: the root of their mean variance.

    Args:
        model: its text part is asked.
        text: gives what the text part reads of lists.
        lists: the training lists; of some of them candidates from the top to ``depth`` are scored.
        depth: how deep.
        seed: decides which lists.
    """
    order = np.random.default_rng(seed).permutation(np.flatnonzero(lists.lengths > 1))[: SAMPLE[0]]
    chosen = lists.select(np.sort(order)).top(depth)
    rows = [
        first + np.unique(np.linspace(0, length - 1, SAMPLE[1]).astype(np.int64))
        for first, length in zip(chosen.starts, chosen.lengths, strict=True)
    ]
    if not rows:
        return 1.0
    lengths = np.array([len(some) for some in rows])
    starts = np.cumsum(lengths) - lengths
    scores = score_candidates(model, text(chosen), np.concatenate(rows), starts, precision="fp32")
    variances = [np.var(part, dtype=np.float64) for part in np.split(scores, starts[1:])]
    return float(np.sqrt(np.mean(variances))) or 1.0
