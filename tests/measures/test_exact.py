from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rerank.measures import parse
from rerank.measures.base import survival
from tests.measures.evaluator import evaluate

NAMES = [
    *("P@1", "P@5", "P@30", "P(rel=2)@5"),
    *("AP", "AP@5", "AP@30", "AP(rel=3)"),
    *("nDCG", "nDCG@5", "nDCG@30", "nDCG(dcg='exp-log2')", "nDCG(dcg='exp-log2')@5"),
    *("RR", "RR@5", "RR(rel=3)@2"),
    *("R@1", "R@5", "R(rel=2)@30", "Success@1", "Success@5", "Success(rel=3)@2"),
    *("nERR", "nERR@3", "nERR@30", "nERR(max_rel=5)@5", "nERR(max_rel=2)@5"),
]


def tensor(*rows: list[float]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_exact_values_are_those_of_evaluation(name: str, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    lists, size = 12, 17
    scores = torch.randperm(lists * size, generator=generator).reshape(lists, size).double() / 7 - 10
    labels = torch.randint(0, 5, (lists, size), generator=generator) * (
        torch.rand(lists, size, generator=generator) < torch.linspace(0, 1, lists)[:, None]
    )
    mask = torch.rand(lists, size, generator=generator) < 0.8
    mask[:, 0] = True
    assert (labels * mask).sum(dim=1).min() == 0, "one list has nothing relevant"
    torch.testing.assert_close(
        parse(name).exact(scores, labels, mask), evaluate(name, scores, labels, mask), atol=1e-5, rtol=0
    )


def test_p_without_a_cutoff_is_over_all_documents() -> None:
    assert parse("P").exact(tensor([5, 4, 3, 2, 1]), tensor([0, 3, 0, 1, 2])).item() == pytest.approx(3 / 5)


def test_tied_scores_keep_the_given_order() -> None:
    assert parse("RR").exact(tensor([1, 1, 1, 2]), tensor([0, 1, 1, 0])).item() == pytest.approx(1 / 3)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
def test_survival_is_the_exclusive_product(stops: list[float]) -> None:
    p = torch.tensor(stops, dtype=torch.float64, requires_grad=True)
    expected = torch.tensor([math.prod(1 - x for x in stops[:i]) for i in range(len(stops))], dtype=torch.float64)
    torch.testing.assert_close(survival(p.detach()), expected)
    upstream = torch.linspace(1, 2, len(stops), dtype=torch.float64)
    (gradient,) = torch.autograd.grad(survival(p), p, upstream)
    slopes = [
        -sum(
            float(upstream[r]) * math.prod(1 - x for m, x in enumerate(stops[:r]) if m != i)
            for r in range(i + 1, len(stops))
        )
        for i in range(len(stops))
    ]
    torch.testing.assert_close(gradient, torch.tensor(slopes, dtype=torch.float64))
