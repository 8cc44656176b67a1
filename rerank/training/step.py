"""The gradient of one effective batch, however it is cut."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rerank.errors import UserError
from rerank.lists.ragged import Array
from rerank.lists.store import Lists
from rerank.losses.base import Loss
from rerank.models.base import Inputs, Scorer
from rerank.models.precision import Precision, autocast
from rerank.training.batches import Group, pad

ELEMENTS = 2048
"""Padded scores from which on lists of different lengths go through the loss apart: padding costs as much as lists do,
and a call costs as much as this many scores."""


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

    model: Scorer
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
        assert isinstance(self.model, torch.nn.Module)
        self._parameters = [p for p in self.model.parameters() if p.requires_grad]
        self._device = self._parameters[0].device

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
        if not groups:
            return
        starts = np.cumsum([0] + [len(group.rows) for group in groups[:-1]])
        costs = np.add.reduceat(self.inputs.lengths(*self._pairs(groups)), starts)
        first, tokens = 0, 0
        for i, cost in enumerate(costs.tolist()):
            full = (
                tokens + cost > self.token_budget
                if self.micro_batch_size is None
                else i - first == self.micro_batch_size
            )
            if i > first and full:
                yield groups[first:i]
                first, tokens = i, 0
            tokens += cost
        yield groups[first:]

    def _pairs(self, groups: list[Group]) -> tuple[Array, Array]:
        """Rows of queries and documents in the store, list after list."""
        rows = self.lists.query_rows[[group.query for group in groups]]
        queries = np.repeat(rows, [len(group.rows) for group in groups])
        return queries, self.lists.documents[np.concatenate([group.rows for group in groups])]

    def _piece(self, groups: list[Group], count: int) -> Tensor:
        """Score some lists, backpropagate their share of the loss, return it detached."""
        flat = self._scores(*self._pairs(groups))
        lengths = np.array([len(group.rows) for group in groups])
        starts = np.cumsum(lengths) - lengths
        total = torch.zeros((), device=self._device)
        for chosen in alike(lengths):
            labels, mask = pad([self.lists.labels[groups[i].rows] for i in chosen], torch.float32)
            positions = torch.from_numpy(starts[chosen])[:, None] + torch.arange(mask.shape[1])
            positions = positions.masked_fill_(~mask, 0).to(self._device)
            labels, mask = labels.to(self._device), mask.to(self._device)
            scores = flat[positions.flatten()].view_as(mask).masked_fill(~mask, 0.0)
            seeds = torch.tensor([groups[i].seed for i in chosen], device=self._device)
            total = total + self._sum(scores, labels, mask, seeds=seeds)
        total = total / count
        total.backward()
        self._range = flat.detach()
        return total.detach()

    def _scores(self, queries: Array, documents: Array) -> Tensor:
        """Scores of pairs, in their order, with the graph."""
        chunks = self.inputs.chunks(queries, documents, self.token_budget)
        with autocast(self.precision, self._device):
            parts = [self.model.score(self._collate(queries[chunk], documents[chunk])) for chunk in chunks]
        if len(parts) == 1 and (np.diff(chunks[0]) == 1).all():
            return parts[0]
        order = torch.from_numpy(np.argsort(np.concatenate(chunks), kind="stable")).to(self._device)
        return torch.cat(parts)[order]

    def _collate(self, queries: Array, documents: Array) -> dict[str, Tensor]:
        batch = self.inputs.collate(queries, documents)
        return {name: value.to(self._device, non_blocking=True) for name, value in batch.items()}

    def _all_reduce(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Sum gradients and values over the processes, in one message."""
        if self.processes == 1:
            return values
        parameters = self._parameters
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


def alike(lengths: Array) -> list[Array]:
    """Cut a batch into lists of similar length, for the loss.

    Args:
        lengths: ``[n]`` documents of every list.

    Returns:
        Positions into ``lengths``; every position is in one part. What is padded stays below about two fifths of a
        part, or of ``ELEMENTS``.
    """
    order = np.argsort(-lengths, kind="stable")
    parts, start = [], 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = max(start + -(-ELEMENTS // longest), start + int((lengths[order[start:]] > 0.6 * longest).sum()))
        parts.append(order[start:stop])
        start = stop
    return parts
