from __future__ import annotations

import pytest
import torch

from rerank.measures import parse
from rerank.relaxations import Approx, NeuralSort, SmoothI, SoftSort, TwinSigmoid
from rerank.relaxations.base import Relaxation
from rerank.relaxations.fidelity import fidelity

SCORES = torch.tensor([[0.0, 3.0, 1.0, 2.0], [5.0, 4.0, 9.0, 9.0]], dtype=torch.float64)
MASK = torch.tensor([[True] * 4, [True, True, False, False]])
LABELS = torch.tensor([[2, 0, 1, 0], [0, 1, 4, 4]])


def test_soft_ranks_by_arithmetic() -> None:
    """Sigmoids of alpha -> 0 give everyone the mean rank."""
    found = fidelity(Approx(1e-9), SCORES, MASK)
    assert found.rank_error.tolist() == pytest.approx([1.5 + 1.5 + 0.5 + 0.5, 0.5 + 0.5])
    assert found.sharpness is None and found.hits is None and found.gap is None
    assert fidelity(TwinSigmoid(), SCORES, MASK).rank_error.tolist() == [0, 0]


def test_indicators_by_arithmetic() -> None:
    """Uniform indicators: mean ranks again, and a largest indicator of 1/N."""
    found = fidelity(SoftSort(1e9), SCORES, MASK)
    assert found.rank_error.tolist() == pytest.approx([4, 1])
    assert found.sharpness.tolist() == pytest.approx([1 / 4, 1 / 2])
    exact = fidelity(SoftSort(1e-6), SCORES, MASK)
    assert exact.rank_error.tolist() == pytest.approx([0, 0])
    assert exact.sharpness.tolist() == pytest.approx([1, 1])
    assert exact.hits.tolist() == [1, 1]


def test_ties_are_broken_alike_every_time() -> None:
    """Twin-sigmoid's ranks are exact, of equal scores too."""
    scores, labels = torch.zeros(2, 20), torch.arange(20).expand(2, 20) % 3
    first, again = (fidelity(TwinSigmoid(), scores, None, labels, parse("nDCG@5")) for _ in range(2))
    assert first.rank_error.tolist() == [0, 0]
    assert torch.equal(first.gap, again.gap)


@pytest.mark.parametrize("relaxation", [SmoothI(), NeuralSort(), SoftSort(), Approx(), TwinSigmoid()], ids=repr)
def test_the_gap_is_relaxed_less_exact(relaxation: Relaxation) -> None:
    measure = parse("nDCG@3")
    found = fidelity(relaxation, SCORES.requires_grad_(), MASK, LABELS, measure)
    relaxed, exact = measure.relaxed(relaxation, SCORES, LABELS, MASK), measure.exact(SCORES, LABELS, MASK)
    torch.testing.assert_close(found.gap, (relaxed - exact).detach())
    assert not found.gap.requires_grad and not found.rank_error.requires_grad
    with pytest.raises(ValueError, match="labels"):
        fidelity(relaxation, SCORES, MASK, measure=measure)
