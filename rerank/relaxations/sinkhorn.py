"""Sinkhorn scaling, kept as vectors: a matrix M is balanced as diag(a) M diag(b)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rerank.relaxations.order import lowest


def balanced_product(
    matrix: Tensor, values: Tensor, rows: Tensor, columns: Tensor, rounds: int, tolerance: float = 0.0
) -> Tensor:
    """``diag(a) M diag(b) V`` after rounds that make the columns and then the rows of diag(a) M diag(b) sum to one.

    The iterates are those of scaling the matrix itself, but a round costs two products with a vector and keeps two
    vectors, and the backward pass, which is that of these very rounds, needs nothing more.

    Args:
        matrix: ``[B, N, N]``, at least 0; every row and column in use has an entry that is not tiny.
        values: ``[B, N, V]``, without gradient.
        rows: ``[B, N]`` bool, the rows in use.
        columns: ``[B, N]`` bool, the columns in use, as many.
        rounds: the largest number of rounds, at least 1.
        tolerance: a list whose columns sum to one within this after a round has no further rounds.

    Returns:
        ``[B, N, V]``.
    """
    return _Balanced.apply(matrix, values, rows, columns, rounds, tolerance)


def log_balanced_product(logits: Tensor, values: Tensor, rows: Tensor, columns: Tensor, rounds: int) -> Tensor:
    """The same for the matrix ``exp(logits)``, with logarithms throughout: slower, for entries that would underflow.

    Args:
        logits: ``[B, N, N]``.
        values: ``[B, N, V]``, without gradient.
        rows: ``[B, N]`` bool, the rows in use.
        columns: ``[B, N]`` bool, the columns in use, as many.
        rounds: the number of rounds.

    Returns:
        ``[B, N, V]``.
    """
    return _LogBalanced.apply(logits, values, rows, columns, rounds)


def _reciprocal(x: Tensor) -> Tensor:
    """1/x, and 0 where x is 0."""
    return torch.where(x > 0, x, float("inf")).reciprocal_()


class _Balanced(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, matrix: Tensor, values: Tensor, rows: Tensor, columns: Tensor, rounds: int, tolerance: float
    ) -> Tensor:
        real = columns[:, None, :]
        left = rows[:, None, :].to(matrix.dtype)  # a and b are row vectors [B, 1, N]: such products are the fast ones
        right, used = torch.ones_like(left), left
        lefts, rights, active = [left], [right], []
        for _ in range(rounds):
            sums = torch.bmm(left, matrix)
            moving = ((sums * right - 1).abs() > tolerance).logical_and_(real).any(dim=2, keepdim=True)
            if not active:
                moving = torch.ones_like(moving)  # nothing is scaled yet, so there is nothing to stop
            elif matrix.device.type == "cpu" and not moving.any():
                break  # elsewhere the answer would have to be waited for
            right = torch.where(moving, _reciprocal(sums) * real, right)
            left = torch.where(moving, _reciprocal(torch.bmm(right, matrix.transpose(1, 2))) * used, left)
            lefts.append(left)
            rights.append(right)
            active.append(moving)
        ctx.active = active
        ctx.save_for_backward(matrix, values, *lefts, *rights)
        return left.transpose(1, 2) * torch.bmm(matrix, right.transpose(1, 2) * values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        matrix, values, *vectors = ctx.saved_tensors
        rounds = len(ctx.active)
        lefts, rights = vectors[: rounds + 1], vectors[rounds + 1 :]
        transposed = matrix.transpose(1, 2)
        weighted = gradient * lefts[-1].transpose(1, 2)
        scaled = rights[-1].transpose(1, 2) * values
        # the gradient of the matrix is a sum of outer products, whose factors are collected here
        rows, columns = [weighted], [scaled]
        to_left = (gradient * torch.bmm(matrix, scaled)).sum(dim=2)[:, None, :]
        to_right = (values * torch.bmm(transposed, weighted)).sum(dim=2)[:, None, :]
        for t in range(rounds, 0, -1):
            moving = ctx.active[t - 1]
            to_sums = torch.where(moving, -to_left * lefts[t] * lefts[t], 0.0)
            to_right = to_right + torch.bmm(to_sums, matrix)
            rows.append(to_sums.transpose(1, 2))
            columns.append(rights[t].transpose(1, 2))
            to_sums = torch.where(moving, -to_right * rights[t] * rights[t], 0.0)
            rows.append(lefts[t - 1].transpose(1, 2))
            columns.append(to_sums.transpose(1, 2))
            to_left = torch.where(moving, 0.0, to_left) + torch.bmm(to_sums, transposed)
            to_right = torch.where(moving, 0.0, to_right)
        total = torch.bmm(torch.cat(rows, dim=2), torch.cat(columns, dim=2).transpose(1, 2))
        return total, None, None, None, None, None


class _LogBalanced(torch.autograd.Function):
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
        return torch.bmm(_exp(logits, left, right), values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, values, *vectors = ctx.saved_tensors
        lefts, rights = vectors[::2], vectors[1::2]
        total = torch.bmm(gradient, values.transpose(1, 2)) * _exp(logits, lefts[-1], rights[-1])
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
