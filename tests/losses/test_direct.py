"""DirectMetric: a gradient by hand, and settings."""

from __future__ import annotations

import math

import pytest
import torch

from rerank.errors import UserError
from rerank.losses import DirectMetric
from rerank.relaxations import NeuralSort, Relaxation, SmoothI, TwinSigmoid


def test_twin_sigmoid_gradient_is_the_papers() -> None:
    """Two documents, the relevant one below: Yu's Eqs 17, 18, 20, 21 and 32 (with 1/ln 2) for each gradient."""
    gap = 1.5
    z = 1 / (1 + math.exp(gap))  # sigmoid of s_i - s_j for the relevant document i
    weights = {1: z * (1 - z), 2: z * (1 - z), 3: 2 * (1 - z)}
    by_rank = 1 / (math.log(2) * 3 * math.log2(3) ** 2)  # of 1 - nDCG, at rank 2, with IDCG 1
    for kind, weight in weights.items():
        scores = torch.tensor([[0.0, gap]], dtype=torch.float64, requires_grad=True)
        (gradient,) = torch.autograd.grad(
            DirectMetric("nDCG", TwinSigmoid(kind, alpha=1))(scores, torch.tensor([[1, 0]])), scores
        )
        expected = torch.tensor([[-by_rank * weight, by_rank * weight]], dtype=torch.float64)
        torch.testing.assert_close(gradient, expected)


def test_constructor_refuses_unsupported_measures() -> None:
    with pytest.raises(UserError, match="did you mean"):
        DirectMetric("nDGC@10", SmoothI())
    for name in ("AP", "P@5", "RR", "nERR@5"):
        with pytest.raises(ValueError, match=rf"transposed=True.*nDCG, not for {name}"):
            DirectMetric(name, NeuralSort(transposed=True))


def test_relaxations_must_derive_from_a_family() -> None:
    with pytest.raises(ValueError, match="RankIndicators or SoftRanks"):
        DirectMetric("nDCG", Relaxation())(torch.zeros(1, 2), torch.tensor([[1, 0]]))
