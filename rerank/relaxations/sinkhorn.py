"""Sinkhorn scaling, kept as vectors: a matrix M is balanced as diag(a) M diag(b)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from rerank.relaxations.backward import WithGradient, full_precision
from rerank.relaxations.order import blocks, lowest


def by_lists(compute: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
    """``compute(*tensors)`` on some lists at a time, so that their N x N matrices stay in a processor's cache.

    All tensors have the lists first; the first of them has N last.
    """
    return torch.cat([compute(*some) for some in _parts(tensors[0].shape[-1], *tensors)])


def sums_by_lists(compute: Callable[..., Tensor], ranks: int, scores: Tensor, *others: Tensor) -> Tensor:
    """The same for a number per list, whose gradient is computed at once, so that no matrix is kept for it.

    The matrix of a list is ranks x N; only the scores, ``[B, N]``, have a gradient.
    """
    wanted = torch.is_grad_enabled() and scores.requires_grad
    values: list[Tensor] = []
    gradients: list[Tensor] = []
    for own, *rest in _parts(ranks, scores, *others):
        leaf = own.detach().requires_grad_(wanted)
        sums = compute(leaf, *rest)
        values.append(sums.detach())
        if wanted:
            gradients += torch.autograd.grad(sums, leaf, torch.ones_like(sums))
    return WithGradient.apply(scores, torch.cat(values), torch.cat(gradients)) if wanted else torch.cat(values)


def _parts(ranks: int, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    # an eighth of the size of a matrix: rounds read it and do little else, so more than the nearest cache is in use
    each = ranks * tensors[0].shape[-1] // 8
    lists = next(blocks(tensors[0].shape[0], each, tensors[0]), slice(0, 1)).stop
    return zip(*(tensor.split(lists) for tensor in tensors), strict=True)


def balanced_product(
    logits: Tensor,
    values: Tensor,
    rows: Tensor,
    columns: Tensor,
    rounds: int,
    tolerance: float = 0.0,
    softmax: bool = False,
) -> Tensor:
    """``(diag(a) M diag(b) V')'`` after rounds that make the columns and then the rows of diag(a) M diag(b) sum to one.

    The iterates are those of scaling the matrix M = exp(logits) itself, but a round costs two products with a vector
    and keeps two vectors, and the backward pass, which is that of these very rounds, needs nothing more.

    Args:
        logits: ``[B, N, N]``, overwritten; every row and column in use has an entry that is not far below 0, and none
            is so far below that its exponential is subnormal, which processors are slow at.
        values: V, ``[B, V, N]``, without gradient, zero in columns that are not in use.
        rows: ``[B, N]`` bool, the rows in use.
        columns: ``[B, N]`` bool, the columns in use, as many.
        rounds: the largest number of rounds, at least 1.
        tolerance: a list whose columns sum to one within this after a round has no further rounds.
        softmax: whether rows are divided by their sums before the first round.

    Returns:
        ``[B, V, N]``.
    """
    return _Balanced.apply(logits, values, rows, columns, rounds, tolerance, softmax)


def log_balanced_product(logits: Tensor, values: Tensor, rows: Tensor, columns: Tensor, rounds: int) -> Tensor:
    """The same with logarithms throughout, and all rounds: slower, for entries whose exponential would underflow."""
    return _LogBalanced.apply(logits, values, rows, columns, rounds)


LOOK = 8  # rounds between two looks at whether lists have converged


class _Balanced(torch.autograd.Function):
    """Vectors are ``[B, 1, N]`` and products have them on the left: those are the fast ones.

    All lists have the same rounds; which of them count for a list, ``active``, follows from the vectors afterwards.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        values: Tensor,
        rows: Tensor,
        columns: Tensor,
        rounds: int,
        tolerance: float,
        softmax: bool,
    ) -> Tensor:
        matrix = logits.mul_(math.log2(math.e)).exp2_()  # faster than exp
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
                break  # elsewhere the answer would have to be waited for
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
        return total.mul_(matrix), None, None, None, None, None, None


def _offsets(used: Tensor, like: Tensor) -> Tensor:
    """What is added to sums, ``[B, 1, N]``, for reciprocals to be 0 where not used and finite elsewhere."""
    least = torch.finfo(like.dtype).tiny ** 0.5
    return torch.full_like(like[:, :1], torch.inf).masked_fill_(used[:, None, :], least)


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
