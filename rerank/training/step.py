"""The gradient of one effective batch, however it is cut."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rerank.errors import UserError
from rerank.lists.ragged import Array
from rerank.lists.store import Lists
from rerank.losses.base import Loss
from rerank.models.base import Inputs
from rerank.models.precision import Precision, autocast
from rerank.models.score import pack
from rerank.training.batches import Group, pad

if TYPE_CHECKING:
    from rerank.models.cross_encoder import CrossEncoder


@dataclass
class Gradients:
    r"""Accumulates the gradient of a loss over an effective batch.

    With ``"mean"`` reduction the gradient is that of :math:`\frac{1}{|L|} \sum_{b \in L} \ell_b` over the learnable
    lists :math:`L` of the *whole* batch: labels alone tell them, so they are counted before anything is scored, and
    each piece contributes its sum divided by :math:`|L|`. Hence processes, accumulation and chunks change nothing.

    Attributes:
        model: the scorer, a ``torch.nn.Module``.
        inputs: the training lists as the model reads them.
        lists: the training lists.
        loss: the loss.
        precision: arithmetic of the encoder.
        token_budget: padded tokens per forward pass.
        micro_batch_size: lists in memory at once; None for as many as fit ``token_budget``, at least one.
        process: index of this process.
        processes: number of processes.
    """

    model: CrossEncoder
    inputs: Inputs
    lists: Lists
    loss: Loss
    precision: Precision
    token_budget: int
    micro_batch_size: int | None
    process: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        if self.loss.reduction == "none":
            raise UserError("loss.reduction: training needs mean or sum, not none")
        self._sum = copy.copy(self.loss)
        self._sum.reduction = "sum"
        self._device = next(self.model.parameters()).device

    def accumulate(self, groups: list[Group], step: int) -> tuple[float, int]:
        """Leave the batch's gradient in the parameters, the same in every process.

        Args:
            groups: the effective batch.
            step: number of the step, for error messages.

        Returns:
            The loss of the batch, and the number of documents scored by all processes.

        Raises:
            UserError: the loss is not finite; says the step, the queries and the range of scores.
        """
        labels, mask = pad([self.lists.labels[group.rows] for group in groups], torch.float32)
        learnable = self.loss.learnable(labels, mask)
        count = int(learnable.sum()) if self.loss.reduction == "mean" else 1
        mine = [g for g, useful in zip(groups, learnable.tolist(), strict=True) if useful][
            self.process :: self.processes
        ]
        total = torch.zeros((), device=self._device)
        for piece in self._pieces(mine):
            value = self._piece(piece, max(1, count))
            if not torch.isfinite(value):
                raise UserError(self._not_finite(piece, step, float(value)))
            total += value
        documents = torch.tensor(float(sum(len(group.rows) for group in mine)), device=self._device)
        total, documents = self._all_reduce(total, documents)
        return float(total), int(documents)

    def _pieces(self, groups: list[Group]) -> Iterator[list[Group]]:
        """Cut lists into micro-batches: of the size asked for, or of as many as fit the token budget, at least one."""
        piece: list[Group] = []
        tokens = 0
        for group in groups:
            queries, documents = self._pairs([group])
            cost = int(self.inputs.lengths(queries, documents).sum())
            full = (
                tokens + cost > self.token_budget
                if self.micro_batch_size is None
                else len(piece) == self.micro_batch_size
            )
            if piece and full:
                yield piece
                piece, tokens = [], 0
            piece.append(group)
            tokens += cost
        if piece:
            yield piece

    def _pairs(self, groups: list[Group]) -> tuple[Array, Array]:
        """Rows of queries and documents in the store, list after list."""
        rows = self.lists.query_rows[[group.query for group in groups]]
        queries = np.repeat(rows, [len(group.rows) for group in groups])
        return queries, self.lists.documents[np.concatenate([group.rows for group in groups])]

    def _piece(self, groups: list[Group], count: int) -> Tensor:
        """Score some lists, backpropagate their share of the loss, return it detached."""
        queries, documents = self._pairs(groups)
        chunks = pack(self.inputs.lengths(queries, documents), self.token_budget)
        with autocast(self.precision, self._device):
            parts = [self.model.score(self._collate(queries[chunk], documents[chunk])) for chunk in chunks]
        order = torch.from_numpy(np.argsort(np.concatenate(chunks), kind="stable")).to(self._device)
        flat = torch.cat(parts)[order]
        labels, mask = (t.to(self._device) for t in pad([self.lists.labels[g.rows] for g in groups], torch.float32))
        scores = flat.new_zeros(mask.shape).masked_scatter(mask, flat)
        seeds = torch.tensor([group.seed for group in groups], device=self._device)
        value = self._sum(scores, labels, mask, seeds=seeds) / count
        value.backward()
        self._range = flat.detach()
        return value.detach()

    def _collate(self, queries: Array, documents: Array) -> dict[str, Tensor]:
        batch = self.inputs.collate(queries, documents)
        return {name: value.to(self._device, non_blocking=True) for name, value in batch.items()}

    def _all_reduce(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Sum gradients and values over the processes, in one message."""
        if self.processes == 1:
            return values
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        for parameter in parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        flat = torch.cat([p.grad.flatten().float() for p in parameters if p.grad is not None] + [torch.stack(values)])
        dist.all_reduce(flat)
        start = 0
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.copy_(flat[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()
        return tuple(flat[start:])

    def _not_finite(self, groups: list[Group], step: int, value: float) -> str:
        queries = ", ".join(self.lists.query_ids[group.query] for group in groups)
        low, high = float(self._range.min()), float(self._range.max())
        return (
            f"the loss is {value} at step {step}, queries {queries}, scores from {low:g} to {high:g}; "
            "lower optimization.encoder_lr and head_lr, or set precision to fp32"
        )
