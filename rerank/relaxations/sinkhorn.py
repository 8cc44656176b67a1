"""Sinkhorn scaling, kept as vectors: a matrix M is balanced as diag(a) M diag(b)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rerank.relaxations.backward import full_precision
from rerank.relaxations.order import blocks, lowest


def by_lists(compute: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """``compute(*tensors)`` on some lists at a time, so that their N x N matrices stay in a processor's cache.

    Args:
        compute: from tensors of some lists to a tensor of these lists.
        tensors: each with the lists first and N last.
    """
    lists, size = tensors[0].shape[0], tensors[0].shape[-1]
    # a quarter of the size of a matrix: rounds read it and do little else, so more than the nearest cache is in use
    parts = list(blocks(lists, size * size // 4, tensors[0])) or [slice(None)]
    found = [compute(*(tensor[part] for tensor in tensors)) for part in parts]
    return found[0] if len(found) == 1 else torch.cat(found)


def balanced_product(
    matrix: Tensor, values: Tensor, rows: Tensor, columns: Tensor, rounds: int, tolerance: float = 0.0
) -> Tensor:
    """``(diag(a) M diag(b) V')'`` after rounds that make the columns and then the rows of diag(a) M diag(b) sum to one.

    The iterates are those of scaling the matrix itself, but a round costs two products with a vector and keeps two
    vectors, and the backward pass, which is that of these very rounds, needs nothing more.

    Args:
        matrix: M, ``[B, N, N]``, at least 0; every row and column in use has an entry that is not tiny.
        values: V, ``[B, V, N]``, without gradient, zero in columns that are not in use.
        rows: ``[B, N]`` bool, the rows in use.
        columns: ``[B, N]`` bool, the columns in use, as many.
        rounds: the largest number of rounds, at least 1.
        tolerance: a list whose columns sum to one within this after a round has no further rounds.

    Returns:
        ``[B, V, N]``.
    """
    return _Balanced.apply(matrix, values, rows, columns, rounds, tolerance)


def log_balanced_product(logits: Tensor, values: Tensor, rows: Tensor, columns: Tensor, rounds: int) -> Tensor:
    """The same for the matrix ``exp(logits)``, with logarithms throughout: slower, for entries that would underflow.

    Args:
        logits: ``[B, N, N]``.
        values: V, ``[B, V, N]``, without gradient, zero in columns that are not in use.
        rows: ``[B, N]`` bool, the rows in use.
        columns: ``[B, N]`` bool, the columns in use, as many.
        rounds: the number of rounds.

    Returns:
        ``[B, V, N]``.
    """
    return _LogBalanced.apply(logits, values, rows, columns, rounds)


def _reciprocal(x: Tensor, used: Tensor) -> Tensor:
    """1/x in place where used is 1, and 0 where it is 0."""
    return x.clamp_(min=torch.finfo(x.dtype).tiny ** 0.5).reciprocal_().mul_(used)


class _Balanced(torch.autograd.Function):
    """Vectors are ``[B, 1, N]`` and products have them on the left: those are the fast ones."""

    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, values: Tensor, rows: Tensor, columns: Tensor, rounds: int, tolerance: float
    ) -> Tensor:
        transposed = matrix.transpose(1, 2)
        left, right = rows[:, None, :].to(matrix.dtype), columns[:, None, :].to(matrix.dtype)
        used_rows, used_columns = left, right
        lefts, rights = [left], [right]
        active: list[Tensor] = []
        for _ in range(rounds):
            sums = torch.bmm(left, matrix)
            moving = (sums * right).sub_(used_columns).abs_().amax(dim=2, keepdim=True) > tolerance
            if not active:
                moving = torch.ones_like(moving)  # nothing is scaled yet, so there is nothing to stop
            elif matrix.device.type == "cpu" and not moving.any():
                break  # elsewhere the answer would have to be waited for
            right = torch.where(moving, _reciprocal(sums, used_columns), right)
            left = torch.where(moving, _reciprocal(torch.bmm(right, transposed), used_rows), left)
            lefts.append(left)
            rights.append(right)
            active.append(moving)
        ctx.active = active
        ctx.save_for_backward(matrix, values, *lefts, *rights)
        return left * torch.bmm(right * values, transposed)

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        matrix, values, *vectors = ctx.saved_tensors
        transposed = matrix.transpose(1, 2)
        rounds = len(ctx.active)
        lefts, rights = vectors[: rounds + 1], vectors[rounds + 1 :]
        weighted, scaled = gradient * lefts[-1], rights[-1] * values
        # the gradient of the matrix is a sum of outer products, whose factors are collected here
        by_row, by_column = [weighted], [scaled]
        to_left = (gradient * torch.bmm(scaled, transposed)).sum(dim=1, keepdim=True)
        to_right = (values * torch.bmm(weighted, matrix)).sum(dim=1, keepdim=True)
        for t in range(rounds, 0, -1):
            moving = ctx.active[t - 1]
            to_sums = torch.where(moving, -to_left * lefts[t].square(), 0.0)
            to_right = to_right + torch.bmm(to_sums, matrix)
            by_row.append(to_sums)
            by_column.append(rights[t])
            to_sums = torch.where(moving, -to_right * rights[t].square(), 0.0)
            by_row.append(lefts[t - 1])
            by_column.append(to_sums)
            to_left = torch.where(moving, 0.0, to_left) + torch.bmm(to_sums, transposed)
            to_right = torch.where(moving, 0.0, to_right)
        total = torch.bmm(torch.cat(by_row, dim=1).transpose(1, 2), torch.cat(by_column, dim=1))
        return total, None, None, None, None, None


class _LogBalanced(torch.autograd.Function):
    """Vectors are logarithms, ``[B, N]``; the matrices of the backward pass are computed anew."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, values: Tensor, rows: Tensor, columns: Tensor, rounds: int) -> Tensor:
        nothing = lowest(logits)
        left = torch.zeros_like(logits[:, 0]).masked_fill(~rows, nothing)
        right = torch.zeros_like(left)
        vectors = [left, right]
        for _ in range(rounds):
            right = -(logits + left[:, :, None]).logsumexp(dim=1).masked_fill(~columns, -nothing)
            left = -(logits + right[:, None, :]).logsumexp(dim=2).masked_fill(~rows, -nothing)
            vectors += [left, right]
        ctx.save_for_backward(logits, values, *vectors)
        return torch.bmm(values, _exp(logits, left, right).transpose(1, 2))

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, values, *vectors = ctx.saved_tensors
        lefts, rights = vectors[::2], vectors[1::2]
        total = torch.bmm(gradient.transpose(1, 2), values) * _exp(logits, lefts[-1], rights[-1])
        to_left, to_right = total.sum(dim=2), total.sum(dim=1)
        for t in range(len(lefts) - 1, 0, -1):
            flow = _exp(logits, lefts[t], rights[t]).mul_(to_left[:, :, None])
            to_right = to_right - flow.sum(dim=1)
            total -= flow
            flow = _exp(logits, lefts[t - 1], rights[t]).mul_(to_right[:, None, :])
            to_left, to_right = -flow.sum(dim=2), torch.zeros_like(to_right)
            total -= flow
        return total, None, None, None, None


def _exp(logits: Tensor, left: Tensor, right: Tensor) -> Tensor:
    return (logits + left[:, :, None]).add_(right[:, None, :]).exp_()
