"""What every loss must do, whatever it computes: checks on one case, for lists drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from hypothesis import strategies as st
from torch import Tensor

from rerank.losses import Loss
from tests.losses.reference import Plain

Doc = tuple[float, float]
"""Score and grade."""


@dataclass(frozen=True)
class Case:
    """A loss under test.

    Attributes:
        name: the id of the test.
        make: the loss, from keywords of its constructor.
        plain: its definition for one list; autograd of it is the gradient that the loss states. None where random
            noise belongs to the places of a list, so that the order of documents matters too.
        smooth: whether that gradient is the derivative of the value, so that finite differences agree.
        shift: whether a constant added to all scores of a list changes nothing.
        distinct: of what the lists are drawn without ties, because ties are broken at random.
        atol: how far two ways to compute it in float64 may differ.
    """

    name: str
    make: Callable[..., Loss]
    plain: Plain | None
    smooth: bool = True
    shift: bool = True
    distinct: Literal["scores", "labels and scores"] = "scores"
    atol: float = 1e-9


def ranked_lists(case: Case, most: int = 3, longest: int = 6) -> st.SearchStrategy[list[list[Doc]]]:
    """A few lists of unlike length. Scores are distinct, and irregular so that they sit on no kink of a loss."""

    @st.composite
    def one(draw: Any) -> list[Doc]:
        steps = draw(st.lists(st.integers(-40, 40), min_size=1, max_size=longest, unique=True))
        grades = st.lists(
            st.integers(0, 9 if case.distinct == "labels and scores" else 4),
            min_size=len(steps),
            max_size=len(steps),
            unique=case.distinct == "labels and scores",
        )
        scores = [step / 13.7 + 0.0005 * 2**0.5 * step**2 for step in steps]  # none halfway between two others
        return list(zip(scores, map(float, draw(grades)), strict=True))

    return st.lists(one(), min_size=1, max_size=most)


def batch(lists: list[list[Doc]], dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Scores (a leaf), labels, mask and seeds; padded at the end with zeros to the longest list."""
    width = max(map(len, lists))
    scores = torch.tensor([[s for s, _ in docs] + [0.0] * (width - len(docs)) for docs in lists], dtype=dtype)
    labels = torch.tensor([[y for _, y in docs] + [0.0] * (width - len(docs)) for docs in lists], dtype=dtype)
    mask = torch.tensor([[True] * len(docs) + [False] * (width - len(docs)) for docs in lists])
    return scores.requires_grad_(), labels, mask, torch.arange(len(lists)) + 17


def value_and_gradient(loss: Loss, scores: Tensor, *rest: Any, **named: Any) -> tuple[Tensor, Tensor]:
    """The loss and the gradient of its sum."""
    value = loss(scores, *rest, **named)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    return value.detach(), gradient


def close(actual: Tensor, expected: Tensor, atol: float) -> None:
    torch.testing.assert_close(actual, expected, atol=atol, rtol=max(atol, 1e-9))


def check_padding(case: Case, lists: list[list[Doc]], places: st.DataObject) -> None:
    """1. Where pads are, what they hold and how many there are changes neither value nor gradient."""
    loss = case.make(reduction="none")
    scores, labels, mask, seeds = batch(lists)
    value, gradient = value_and_gradient(loss, scores, labels, mask, seeds=seeds)

    width = scores.shape[1] + places.draw(st.integers(0, 5), label="pads")
    junk = st.sampled_from([0.0, 1e4, -1e4, float("nan"), float("inf")])
    other = torch.full((len(lists), width), places.draw(junk, label="score of pads"), dtype=torch.float64)
    other_labels, other_mask = torch.full_like(other, 7.0), torch.zeros_like(other, dtype=torch.bool)
    index = torch.zeros_like(scores, dtype=torch.int64)
    for row, docs in enumerate(lists):
        at = sorted(places.draw(st.permutations(range(width)))[: len(docs)])
        index[row, : len(docs)] = torch.tensor(at)
        other[row, at], other_labels[row, at], other_mask[row, at] = (
            scores.detach()[row, : len(docs)],
            labels[row, : len(docs)],
            torch.tensor(True),
        )
    padded, padded_gradient = value_and_gradient(loss, other.requires_grad_(), other_labels, other_mask, seeds=seeds)
    close(padded, value, case.atol)
    close(padded_gradient.gather(1, index)[mask], gradient[mask], case.atol)
    assert (padded_gradient[~other_mask] == 0).all()


def check_batch(case: Case, lists: list[list[Doc]]) -> None:
    """2. A batch is its lists one by one: their mean (sum, each) over those that can teach, weighted."""
    scores, labels, mask, seeds = batch(lists)
    weights = torch.arange(len(lists)) / 3 + 0.5
    each = case.make(reduction="none")
    alone, gradients, teaches = [], torch.zeros_like(scores), []
    for row, docs in enumerate(lists):
        s, y, m, _ = batch([docs])
        value, gradient = value_and_gradient(each, s, y, m, seeds=seeds[row : row + 1])
        alone.append(value * weights[row].double())
        gradients[row, : len(docs)] = gradient[0] * weights[row]
        teaches.append(bool(each.learnable(y, m)))
        assert teaches[-1] or (value == 0 and (gradient == 0).all())
    count = max(1, sum(teaches))
    expected = {"none": torch.cat(alone), "sum": torch.cat(alone).sum(), "mean": torch.cat(alone).sum() / count}
    for reduction, want in expected.items():
        loss = case.make(reduction=reduction)
        value, gradient = value_and_gradient(loss, scores, labels, mask, weights, seeds)
        close(value, want, case.atol)
        close(gradient, gradients / (count if reduction == "mean" else 1), case.atol)


def check_symmetry(case: Case, lists: list[list[Doc]], orders: st.DataObject) -> None:
    """3. Documents in another order: the same value, the gradient in that order. Shifted scores: no change."""
    loss = case.make(reduction="none")
    scores, labels, mask, seeds = batch(lists)
    value, gradient = value_and_gradient(loss, scores, labels, mask, seeds=seeds)
    order = torch.tensor([orders.draw(st.permutations(range(scores.shape[1]))) for _ in lists])
    moved, moved_gradient = value_and_gradient(
        loss,
        scores.detach().gather(1, order).requires_grad_(),
        labels.gather(1, order),
        mask.gather(1, order),
        seeds=seeds,
    )
    close(moved, value, case.atol)
    close(moved_gradient, gradient.gather(1, order), case.atol)
    if case.shift:
        shifted, shifted_gradient = value_and_gradient(
            loss, (scores.detach() + 2.5).requires_grad_(), labels, mask, seeds=seeds
        )
        close(shifted, value, 1e-7)
        close(shifted_gradient, gradient, 1e-7)


def check_definition(case: Case, lists: list[list[Doc]]) -> None:
    """5a. Value and gradient are those of the plain definition (where a gradient is stated, of that)."""
    loss = case.make(reduction="none")
    scores, labels, mask, seeds = batch(lists)
    value, gradient = value_and_gradient(loss, scores, labels, mask, seeds=seeds)
    assert case.plain is not None
    for row, docs in enumerate(lists):
        if not loss.learnable(labels[row : row + 1], mask[row : row + 1]):
            continue
        s = scores.detach()[row, : len(docs)].clone().requires_grad_()
        plain = case.plain(s, labels[row, : len(docs)])
        close(value[row], plain.detach(), case.atol)
        slope = torch.autograd.grad(plain, s)[0] if plain.requires_grad else torch.zeros_like(s)
        close(gradient[row, : len(docs)], slope, case.atol)


def check_finite_differences(case: Case, lists: list[list[Doc]]) -> None:
    """5b. The gradient is the derivative."""
    scores, labels, mask, seeds = batch(lists)
    loss = case.make(reduction="mean")
    assert torch.autograd.gradcheck(lambda s: loss(s, labels, mask, seeds=seeds), scores, atol=1e-4, rtol=1e-4)


def extremes() -> dict[str, tuple[Tensor, Tensor, Tensor | None]]:
    """Scores, labels and mask that break careless arithmetic."""
    wide = torch.tensor([[1e4, -1e4, 0.0, 3.0, -2.0, 1e4], [-1e4, -1e4, -1e4, -1e4, -1e4, 1e4]])
    grades = torch.tensor([[0.0, 2.0, 1.0, 0.0, 0.0, 0.0], [4.0, 0.0, 1.0, 0.0, 3.0, 0.0]])
    usual = torch.linspace(-2, 3, 12).reshape(2, 6)
    some = torch.tensor([[True] * 4 + [False] * 2, [False] * 6])
    return {
        "far apart": (wide, grades, None),
        "right and far apart": (grades * 1e4, grades, None),
        "wrong and far apart": (-grades * 1e4, grades, None),
        "a thousand apart": (wide / 10, grades, None),
        "tiny": (wide * 1e-30, grades, None),
        "as far apart as is promised": (wide * 1e8, grades, None),
        "the smallest differences": (wide.sign() * 1e-45, grades, None),
        "normal, with the smallest differences": (wide.sign() * 1e-45 + 1e-38, grades, None),
        "equal": (torch.full((2, 6), 2.5), grades, None),
        "equal and large": (torch.full((2, 6), 1e4), grades, None),
        "one document": (torch.tensor([[1.0], [2.0]]), torch.tensor([[1.0], [0.0]]), None),
        "two documents": (torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 0.0]]), None),
        "no relevant": (usual, torch.zeros(2, 6), None),
        "all relevant": (usual, torch.ones(2, 6), None),
        "one list without": (usual, grades * torch.tensor([[1.0], [0.0]]), None),
        "steep grades": (
            usual,
            torch.tensor([[0.0, 30.0, 1.0, 29.0, 0.0, 3.0], [30.0, 30.0, 0.0, 0.0, 0.0, 0.0]]),
            None,
        ),
        **{
            f"a grade of {most}": (usual, torch.tensor([[0, most, 1, most - 1, 0, 0], [most, 2, 0, 0, 0, 0]]), None)
            for most in (63, 64, 130, 32_767)
        },
        "only padding in one": (usual, grades, some),
        "only padding": (usual, grades, torch.zeros(2, 6, dtype=torch.bool)),
        "no document": (torch.zeros(2, 0), torch.zeros(2, 0), None),
        "no list": (torch.zeros(0, 6), torch.zeros(0, 6), None),
        "not contiguous": (usual.T.contiguous().T, grades.T.contiguous().T, some.T.contiguous().T),
        "integer grades": (usual, grades.long(), some),
    }


def check_extreme(case: Case, scores: Tensor, labels: Tensor, mask: Tensor | None) -> None:
    """6. Finite value and gradient, on the graph, of the dtype of the scores."""
    for dtype, reduction in ((torch.float32, "none"), (torch.float32, "mean"), (torch.float64, "none")):
        leaf = scores.to(dtype).clone(memory_format=torch.preserve_format).requires_grad_()
        seeds = torch.arange(len(scores))
        value, gradient = value_and_gradient(case.make(reduction=reduction), leaf, labels, mask, seeds=seeds)
        assert value.dtype == dtype and value.shape == (() if reduction == "mean" else (len(scores),))
        assert value.isfinite().all(), value
        assert gradient.isfinite().all(), gradient


def check_precision(case: Case, dtype: torch.dtype) -> None:
    """7. Half-precision scores, and autocast, give the loss that float32 gives on the same scores."""
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(4, 9, generator=generator).to(dtype)
    labels = torch.randint(0, 5, (4, 9), generator=generator)
    seeds = torch.arange(4)
    loss = case.make()
    value, gradient = value_and_gradient(loss, scores.float().requires_grad_(), labels, seeds=seeds)
    half, half_gradient = value_and_gradient(loss, scores.clone().requires_grad_(), labels, seeds=seeds)
    assert half.dtype == torch.float32 and half_gradient.dtype == dtype
    torch.testing.assert_close(half, value, atol=0, rtol=0)
    torch.testing.assert_close(half_gradient, gradient.to(dtype), atol=0, rtol=0)
    leaf = scores.float().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        cast = loss(leaf, labels, seeds=seeds)
        cast.backward()
    torch.testing.assert_close(cast, value, atol=0, rtol=0)
    torch.testing.assert_close(leaf.grad, gradient, atol=0, rtol=0)


def check_no_waiting(case: Case) -> None:
    """On a device the host never waits: on tensors without values, asking for one (`item`, `nonzero`) raises."""
    scores = torch.empty(3, 8, device="meta", requires_grad=True)
    labels, mask = torch.empty(3, 8, device="meta"), torch.empty(3, 8, device="meta", dtype=torch.bool)
    seeds = torch.empty(3, device="meta", dtype=torch.int64)
    loss = case.make()
    assert loss.learnable(labels, mask).shape == (3,)
    loss(scores, labels, mask, seeds=seeds).backward()
    assert scores.grad is not None and scores.grad.shape == scores.shape
