"""Properties that all losses share, on lists drawn by hypothesis.

The default tier has all surrogates and every seventh cell of the grid, which has each relaxation and each measure; the
slow tier has the others.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from rerank.losses import DirectMetric, Loss
from rerank.relaxations import RankIndicators
from tests.losses import kinds
from tests.losses.cases import CASES, GRID, SURROGATES
from tests.losses.properties import Case, batch, ranked_lists

torch.set_num_threads(1)

DEFAULT_TIER = {case.name for case in (*SURROGATES, *GRID[::7])}


MARKED = {case.name: () if case.name in DEFAULT_TIER else pytest.mark.slow for case in CASES}
every_loss = pytest.mark.parametrize(
    "case", [pytest.param(case, id=case.name, marks=MARKED[case.name]) for case in CASES]
)
quick = settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def value_and_gradient(loss: Loss, scores: Tensor, *rest: Any, **named: Any) -> tuple[Tensor, Tensor]:
    """Return the loss and the gradient of its sum."""
    value = loss(scores, *rest, **named)
    (gradient,) = torch.autograd.grad(value.sum(), scores)
    return value.detach(), gradient


def close(actual: Tensor, expected: Tensor, atol: float) -> None:
    torch.testing.assert_close(actual, expected, atol=atol, rtol=max(atol, 1e-9))


@every_loss
@quick
@given(data=st.data())
def test_loss_ignores_padding(case: Case, data: st.DataObject) -> None:
    """Place, content and number of pads change neither value nor gradient."""
    lists, loss = data.draw(ranked_lists(case)), case.make(reduction="none")
    scores, labels, mask, seeds = batch(lists)
    value, gradient = value_and_gradient(loss, scores, labels, mask, seeds=seeds)

    width = scores.shape[1] + data.draw(st.integers(0, 5), label="pads")
    junk = st.sampled_from([0.0, 1e4, -1e4, float("nan"), float("inf")])
    other = torch.full((len(lists), width), data.draw(junk, label="score of pads"), dtype=torch.float64)
    other_labels, other_mask = torch.full_like(other, 7.0), torch.zeros_like(other, dtype=torch.bool)
    index = torch.zeros_like(scores, dtype=torch.int64)
    for row, docs in enumerate(lists):
        at = sorted(data.draw(st.permutations(range(width)))[: len(docs)])
        index[row, : len(docs)] = torch.tensor(at)
        other[row, at], other_labels[row, at] = scores.detach()[row, : len(docs)], labels[row, : len(docs)]
        other_mask[row, at] = True
    padded, padded_gradient = value_and_gradient(loss, other.requires_grad_(), other_labels, other_mask, seeds=seeds)
    close(padded, value, case.atol)
    close(padded_gradient.gather(1, index)[mask], gradient[mask], case.atol)
    assert (padded_gradient[~other_mask] == 0).all()


@every_loss
@quick
@given(data=st.data())
def test_batch_loss_combines_single_lists(case: Case, data: st.DataObject) -> None:
    """A batch has the weighted mean (or sum, or list) of its single lists, over those that can teach."""
    lists = data.draw(ranked_lists(case))
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


@every_loss
@quick
@given(data=st.data())
def test_loss_ignores_order_and_shift(case: Case, data: st.DataObject) -> None:
    """Another order of the documents permutes the gradient; shifted scores change nothing."""
    lists, loss = data.draw(ranked_lists(case)), case.make(reduction="none")
    scores, labels, mask, seeds = batch(lists)
    value, gradient = value_and_gradient(loss, scores, labels, mask, seeds=seeds)
    order = torch.tensor([data.draw(st.permutations(range(scores.shape[1]))) for _ in lists])
    moved_scores, *rest = (each.gather(1, order) for each in (scores.detach(), labels, mask))
    moved, moved_gradient = value_and_gradient(loss, moved_scores.requires_grad_(), *rest, seeds=seeds)
    close(moved, value, case.atol)
    close(moved_gradient, gradient.gather(1, order), case.atol)
    if case.shift:
        above = (scores.detach() + 2.5).requires_grad_()
        shifted, shifted_gradient = value_and_gradient(loss, above, labels, mask, seeds=seeds)
        close(shifted, value, 1e-7)
        close(shifted_gradient, gradient, 1e-7)


@every_loss
@quick
@given(data=st.data())
def test_value_and_gradient_equal_the_definition(case: Case, data: st.DataObject) -> None:
    """Value and gradient equal those of the plain definition, or the gradient that the paper states."""
    lists, loss = data.draw(ranked_lists(case)), case.make(reduction="none")
    scores, labels, mask, seeds = batch(lists)
    value, gradient = value_and_gradient(loss, scores, labels, mask, seeds=seeds)
    for row, docs in enumerate(lists):
        if not loss.learnable(labels[row : row + 1], mask[row : row + 1]):
            continue
        s = scores.detach()[row, : len(docs)].clone().requires_grad_()
        plain = case.plain(s, labels[row, : len(docs)])
        close(value[row], plain.detach(), case.atol)
        slope = torch.autograd.grad(plain, s)[0] if plain.requires_grad else torch.zeros_like(s)
        close(gradient[row, : len(docs)], slope, case.atol)


def extremes() -> dict[str, tuple[Tensor, Tensor, Tensor | None]]:
    """Return scores, labels and masks that break careless arithmetic."""
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
        "of a subnormal variance": (usual * 1e-22, grades, None),
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


@every_loss
def test_loss_is_finite_at_extremes(case: Case) -> None:
    """Value and gradient are finite and have the dtype of the scores."""
    for name, (scores, labels, mask) in extremes().items():
        for dtype, reduction in ((torch.float32, "none"), (torch.float32, "mean"), (torch.float64, "none")):
            leaf = scores.to(dtype).clone(memory_format=torch.preserve_format).requires_grad_()
            seeds = torch.arange(len(scores))
            value, gradient = value_and_gradient(case.make(reduction=reduction), leaf, labels, mask, seeds=seeds)
            assert value.dtype == dtype and value.shape == (() if reduction == "mean" else (len(scores),)), name
            assert value.isfinite().all(), (name, value)
            assert gradient.isfinite().all(), (name, gradient)


@every_loss
@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.slow)], ids=str)
def test_half_precision_equals_float32(case: Case, dtype: torch.dtype) -> None:
    """Half-precision scores, and autocast, give the loss that float32 gives on the same scores."""
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


@every_loss
def test_loss_never_synchronises(case: Case) -> None:
    """The host never waits for a device: on tensors without values, `item` or `nonzero` would raise."""
    if "FastSoftSort" in case.name or "WassRank" in case.name:
        pytest.skip("projects scores on the CPU, or counts grades")
    scores = torch.empty(3, 8, device="meta", requires_grad=True)
    labels, mask = torch.empty(3, 8, device="meta"), torch.empty(3, 8, device="meta", dtype=torch.bool)
    seeds = torch.empty(3, device="meta", dtype=torch.int64)
    loss = case.make()
    assert loss.learnable(labels, mask).shape == (3,)
    loss(scores, labels, mask, seeds=seeds).backward()
    assert scores.grad is not None and scores.grad.shape == scores.shape


LOSSES = {name: kind() for name, kind in kinds.LOSSES.items() if not issubclass(kind, DirectMetric)}
LOSSES |= {
    name: DirectMetric("nDCG@10" if issubclass(kind, RankIndicators) else "nDCG", kind())
    for name, kind in kinds.RELAXATIONS.items()
}


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_losses_handle_5000_documents(loss: Loss) -> None:
    scores = torch.randn(1, 5000, generator=torch.Generator().manual_seed(1))
    scores[0, :5] += 3  # some of the relevant documents come among the first ten
    labels, scores = torch.zeros(1, 5000), scores.requires_grad_()
    labels[0, :20] = torch.arange(20) % 4 + 1
    start = time.process_time()
    value = loss(scores, labels, seeds=torch.tensor([4]))
    value.backward()
    assert value.isfinite() and scores.grad is not None and scores.grad.isfinite().all() and scores.grad.any()
    assert time.process_time() - start < 20  # a loop over pairs in Python would take minutes
