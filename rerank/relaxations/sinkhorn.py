"""Sinkhorn scaling, kept as vectors: a matrix M is balanced as diag(a) M diag(b)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rerank.relaxations.backward import full_precision

LOOK = 8
"""Rounds between two checks for convergence."""


def balanced_product(
    logits: Tensor,
    values: Tensor,
    rows: Tensor,
    columns: Tensor,
    rounds: int,
    tolerance: float = 0.0,
    softmax: bool = False,
) -> Tensor:
    """Compute ``(diag(a) M diag(b) V')'`` after rounds that scale the columns, then the rows, to sum to one.

    The iterates are those of scaling the matrix M = exp(logits) itself. A round costs two products with a vector and
    keeps two vectors, and the backward pass, that of these very rounds, needs nothing more.

    Args:
        logits: ``[B, N, N]``; every row and column in use has an entry that is not far below 0, and none is so far
            below that its exponential is subnormal, which processors are slow at.
        values: V, ``[B, V, N]``, without gradient, zero in columns that are not in use.
        rows: ``[B, N]`` bool, the rows in use.
        columns: ``[B, N]`` bool, the columns in use, as many.
        rounds: the largest number of rounds, at least 1.
        tolerance: a list whose columns sum to one within this after a round has no further rounds.
        softmax: whether rows are divided by their sums before the first round.

    Returns:
        ``[B, V, N]``.
    """
    return _Balanced.apply(logits.exp(), values, rows, columns, rounds, tolerance, softmax)


class _Balanced(torch.autograd.Function):
    """Backward pass of the vectors of all rounds; autograd of the rounds takes twice as long.

    Vectors are ``[B, 1, N]`` on the left of products, which is fast. All lists have the same rounds; the mask
    ``active`` of those that count for a list follows from the vectors afterwards.
    """

    @staticmethod
    def forward(
        ctx: Any,
        matrix: Tensor,
        values: Tensor,
        rows: Tensor,
        columns: Tensor,
        rounds: int,
        tolerance: float,
        softmax: bool,
    ) -> Tensor:
        transposed = matrix.transpose(1, 2)
        to_rows, to_columns = _offsets(rows, matrix), _offsets(columns, matrix)
        lefts = matrix.new_empty(rounds + 1, len(matrix), 1, matrix.shape[2])
        rights = torch.empty_like(lefts)
        lefts[0, :, 0], rights[0, :, 0] = rows, columns
        left_at, right_at = lefts.unbind(), rights.unbind()
        if softmax:
            torch.reciprocal(torch.baddbmm(to_rows, right_at[0], transposed), out=left_at[0])
        active = [torch.ones_like(rows[None, :, :1])]
        done = 0
        while done < rounds:
            first, done = done + 1, min(done + LOOK, rounds)
            for t in range(first, done + 1):
                torch.reciprocal(torch.baddbmm(to_columns, left_at[t - 1], matrix), out=right_at[t])
                torch.reciprocal(torch.baddbmm(to_rows, right_at[t], transposed), out=left_at[t])
            # before round t the columns sum to rights[t - 1] / rights[t]; nothing is scaled before the first round
            before, after = rights[max(1, first - 1) : done, :, 0], rights[max(2, first) : done + 1, :, 0]
            if len(before):
                moving = ((before - after).abs_() - tolerance * after).amax(dim=2, keepdim=True) > 0
                active.append(torch.cat([active[-1][-1:], moving]).cummin(dim=0).values[1:])
            if matrix.device.type == "cpu" and not active[-1][-1].any():
                break  # on a GPU the answer would take long
        ctx.active, ctx.softmax = torch.cat(active), softmax
        last = ctx.active.sum(dim=0)[None, :, None].expand(1, -1, 1, matrix.shape[2])
        left, right = lefts.gather(0, last)[0], rights.gather(0, last)[0]
        ctx.save_for_backward(matrix, values, lefts[: done + 1], rights[: done + 1], left, right)
        return left * torch.bmm(right * values, transposed)

    @staticmethod
    @full_precision
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None, None, None]:
        matrix, values, lefts, rights, left, right = ctx.saved_tensors
        transposed = matrix.transpose(1, 2)
        weighted, scaled = gradient * left, right * values
        to_left = (gradient * torch.bmm(scaled, transposed)).sum(dim=1, keepdim=True)
        to_right = (values * torch.bmm(weighted, matrix)).sum(dim=1, keepdim=True)
        active = ctx.active[:, :, None].to(matrix.dtype)
        # derivatives of reciprocals, 0 in rounds that a list did not have, to become those of sums
        to_row_sums, to_column_sums = lefts[1:].square().mul_(-active), rights[1:].square().mul_(-active)
        ends = active - torch.nn.functional.pad(active[1:], (0, 0, 0, 0, 0, 0, 0, 1))  # each list's last round
        to_lefts = torch.nn.functional.pad(ends * to_left, (0, 0, 0, 0, 0, 0, 1, 0)).unbind()
        rounds = zip(to_row_sums.unbind(), to_column_sums.unbind(), to_lefts, (ends * to_right).unbind(), strict=False)
        to_left = to_lefts[-1]
        for row_sums, column_sums, before, to_right in reversed(list(rounds)):
            to_right = torch.baddbmm(to_right, row_sums.mul_(to_left), matrix)
            to_left = torch.baddbmm(before, column_sums.mul_(to_right), transposed)
        # the gradient of the matrix is a sum of outer products
        total = torch.bmm(weighted.transpose(1, 2), scaled)
        total.baddbmm_(to_row_sums[:, :, 0].permute(1, 2, 0), rights[1:, :, 0].transpose(0, 1))
        total.baddbmm_(lefts[:-1, :, 0].permute(1, 2, 0), to_column_sums[:, :, 0].transpose(0, 1))
        if ctx.softmax:
            total.sub_(to_left.mul_(lefts[0].square()).transpose(1, 2))
        return total, None, None, None, None, None, None


def _offsets(used: Tensor, like: Tensor) -> Tensor:
    """Return numbers to add to sums, ``[B, 1, N]``, so that reciprocals are 0 if not used and finite otherwise."""
    least = torch.finfo(like.dtype).tiny ** 0.5
    return torch.full_like(like[:, :1], torch.inf).masked_fill_(used[:, None, :], least)
