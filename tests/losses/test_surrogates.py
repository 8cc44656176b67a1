"""Surrogates on lists that can be computed by hand, at numerical limits, and against PyTorch's losses."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, relu, sigmoid
from torch.nn.functional import softplus

from rerank.errors import UserError
from rerank.losses import (
    BCE,
    MSE,
    RMSE,
    DirectMetric,
    KLDivergence,
    LambdaLoss,
    ListAP,
    ListMLE,
    ListNet,
    Loss,
    MarginMSE,
    PairwiseHinge,
    PairwiseSoftmax,
    RankNet,
    SoftmaxCE,
)
from rerank.relaxations import SoftSort
from tests.losses import reference


def of(loss: Loss, scores: list[float], labels: list[float], seed: int = 0) -> float:
    """Compute the loss of one list."""
    return float(loss(torch.tensor([scores]).double(), torch.tensor([labels]), seeds=torch.tensor([seed])))


def test_listmle_draws_the_order_of_ties_from_the_seed() -> None:
    scores = [math.log(3), math.log(2), 0]  # the first two share a label: 3/6 · 2/3 or 2/6 · 3/4
    orders = {round(-math.log(3 / 6 * 2 / 3), 6), round(-math.log(2 / 6 * 3 / 4), 6)}
    assert {round(of(ListMLE(), scores, [1, 1, 0], seed), 6) for seed in range(30)} == orders
    assert of(ListMLE(), scores, [1, 1, 0], 5) == of(ListMLE(), scores, [1, 1, 0], 5)


@pytest.mark.parametrize(
    ("kind", "formula"),
    [(RankNet, partial(softplus, threshold=50.0)), (PairwiseHinge, lambda x: relu(1 + x)), (PairwiseSoftmax, sigmoid)],
)
def test_pairwise_losses_are_means_over_all_pairs(kind: type[Loss], formula: Callable[[Tensor], Tensor]) -> None:
    """Many documents of many grades, with pads and scores far apart: the mean over the matrix of all pairs."""
    generator = torch.Generator().manual_seed(5)
    scores = (torch.randn(3, 500, generator=generator) * torch.tensor([[1.0], [30.0], [1000.0]])).double()
    labels = torch.randint(0, 9, scores.shape, generator=generator).double()
    mask = torch.rand(scores.shape, generator=generator) < torch.tensor([[1.0], [0.9], [0.3]])
    scores.requires_grad_()
    pairs = (labels[:, :, None] > labels[:, None, :]) & mask[:, :, None] & mask[:, None, :]
    values = formula(scores[:, None, :] - scores[:, :, None]) * pairs
    plain = (values.sum(dim=(1, 2)) / pairs.sum(dim=(1, 2))).mean()
    loss = kind()(scores, labels, mask)
    torch.testing.assert_close(loss, plain)
    found, true = (torch.autograd.grad(value, scores)[0] for value in (loss, plain))
    torch.testing.assert_close(found, true, rtol=1e-7, atol=1e-12)


def test_rmse_has_no_gradient_when_perfect() -> None:
    scores = torch.tensor([[200.0, -200.0]], requires_grad=True)
    loss = RMSE()(scores, torch.tensor([[5.0, 0.0]]))
    loss.backward()
    assert loss < 1e-15
    assert torch.equal(scores.grad, torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("loss", "labels", "expected"),
    [
        (ListNet(), [[1, 1], [0, 1]], [False, True]),
        (SoftmaxCE(), [[1, 2], [1, 1]], [True, False]),
        (SoftmaxCE(negatives_only=True), [[1, 2], [0, 1]], [False, True]),
        (ListAP(), [[1, 2], [0, 1]], [False, True]),
        (LambdaLoss(measure="P@5"), [[1, 2], [0, 1]], [False, True]),
        (RankNet(), [[1, 2], [0, 0]], [True, False]),
        (BCE(), [[0, 0], [1, 1]], [True, True]),
        (DirectMetric("nDCG", SoftSort()), [[0, 1], [0, 0]], [True, False]),
        (DirectMetric("AP(rel=2)", SoftSort()), [[0, 2], [1, 1]], [True, False]),
    ],
)
def test_learnable_follows_the_labels(loss: Loss, labels: list[list[int]], expected: list[bool]) -> None:
    assert loss.learnable(torch.tensor(labels), torch.ones(2, 2, dtype=torch.bool)).tolist() == expected
    masked = loss.learnable(torch.tensor([[*row, 9] for row in labels]), torch.tensor([[True, True, False]] * 2))
    assert masked.tolist() == expected


@pytest.mark.parametrize("offset", [0.0, -600.0, 2e3, 1e5, -1e11])
def test_listmle_ignores_padding_far_from_zero(offset: float) -> None:
    found = []
    for size in (3, 8, 33):
        scores = torch.zeros(1, size)
        scores[0, :3] = torch.tensor([1.0, 0.5, 0.25]) + offset
        labels = (torch.arange(size) == 0).float()[None]
        value = ListMLE()(scores.requires_grad_(), labels, torch.arange(size)[None] < 3, seeds=torch.tensor([1]))
        found.append(torch.cat([value[None], torch.autograd.grad(value, scores)[0][0, :3]]))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(({"measure": name}, "LambdaLoss knows nDCG, nDCG@k and P@k") for name in ("AP", "P", "RR@10", "nERR@10")),
        ({"measure": "nDCG@5", "truncation": "all"}, "defined for the weighting 'ndcg2'"),
        ({"truncation": "either"}, "nDCG with a cut-off, not for nDCG"),
    ],
)
def test_lambda_loss_refuses_settings_without_meaning(settings: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        LambdaLoss(**settings)


SCORES, LABELS = torch.zeros(2, 3), torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((torch.zeros(3), LABELS), r"scores must be \[B, N\]"),
        ((SCORES.long(), LABELS), "scores must be .* floating point"),
        ((SCORES, torch.zeros(2, 4)), "labels must be"),
        ((SCORES, LABELS, torch.ones(2, 3)), "mask must be .* bool"),
        ((SCORES, LABELS, None, torch.ones(3)), r"weights must be \[2\]"),
        ((SCORES, LABELS, None, None, torch.zeros(2)), "seeds must be int64"),
    ],
)
def test_call_names_arguments_of_a_wrong_shape_or_type(given: tuple[Tensor, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MSE()(*given)


@given(st.integers(2, 12), st.integers(0, 2**31), st.sampled_from([40.0, 2000.0]))
def test_listmle_is_its_definition_when_exponentials_underflow(size: int, seed: int, spread: float) -> None:
    rng = torch.Generator().manual_seed(seed)
    scores = (spread * torch.randn(size, generator=rng, dtype=torch.float64)).requires_grad_()
    labels = torch.randperm(size, generator=rng).double()
    found, plain = ListMLE()(scores[None], labels[None]), reference.list_mle(scores, labels)
    torch.testing.assert_close(found, plain, rtol=1e-9, atol=1e-9)
    gradients = [torch.autograd.grad(value, scores)[0] for value in (found, plain)]
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-9)


def test_losses_equal_those_of_torch() -> None:
    generator = torch.Generator().manual_seed(1)
    scores, values = torch.randn(2, 3, 7, generator=generator, dtype=torch.float64)
    relevant = (values > 0).double()
    weighted = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor(6.0).double())(scores, relevant)
    torch.testing.assert_close(BCE(pos_weight=6)(scores, relevant), weighted)
    shifted = torch.nn.BCEWithLogitsLoss()(scores + math.log(0.01 / 0.99), relevant)
    torch.testing.assert_close(BCE(prior=0.01)(scores, relevant), shifted)
    kl = torch.nn.KLDivLoss(reduction="batchmean")((scores / 3).log_softmax(1), (values / 3).softmax(1)) * 9
    torch.testing.assert_close(KLDivergence(temperature=3)(scores, values), kl)
    first = torch.zeros(3, 7).index_fill_(1, torch.tensor([2]), 1)  # one relevant document
    for negatives_only in (False, True):
        entropy = torch.nn.functional.cross_entropy(scores, torch.full((3,), 2))
        torch.testing.assert_close(SoftmaxCE(negatives_only)(scores, first), entropy)
    margins = torch.nn.MSELoss()(scores[:, 0] - scores[:, 1], values[:, 0] - values[:, 1])
    torch.testing.assert_close(MarginMSE()(scores[:, :2], values[:, :2]), margins)
