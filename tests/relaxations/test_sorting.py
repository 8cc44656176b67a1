"""NeuralSort, SoftSort, OptimalTransport and FastSoftSort against their definitions."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from rerank.relaxations import FastSoftSort, NeuralSort, OptimalTransport, SoftSort


def every(scores: Tensor) -> Tensor:
    return torch.ones_like(scores, dtype=torch.bool)


def test_neural_sort_stops_each_list_by_itself() -> None:
    """A list that has converged stays as it is, however long others in its batch take."""
    easy, hard = torch.tensor([9.0, 5.0, 1.0]), torch.tensor([0.0, 0.3, 0.31])
    both, mask = torch.stack([easy, hard]).double(), torch.ones(2, 3, dtype=torch.bool)
    relaxation = NeuralSort(1.0, sinkhorn=200, tolerance=1e-3)
    together = relaxation.indicators(both, mask, 3)
    for row in range(2):
        assert torch.equal(relaxation.indicators(both[row : row + 1], mask[:1], 3)[0], together[row])
    assert not torch.allclose(together, NeuralSort(1.0, sinkhorn=200, tolerance=0).indicators(both, mask, 3), atol=1e-9)


@pytest.mark.parametrize(
    "relaxation",
    [NeuralSort(0.5), NeuralSort(0.5, sinkhorn=0), SoftSort(0.5), OptimalTransport(), OptimalTransport(0.02)],
    ids=repr,
)
def test_indicators_are_distributions_that_ties_share(relaxation: NeuralSort) -> None:
    scores = torch.tensor([[2.0, 0.5, 2.0, -1.0], [0.0, 1.0, 2.0, 3.0]], dtype=torch.float64)
    rows = relaxation.indicators(scores, every(scores), 4)
    assert (rows >= 0).all()
    torch.testing.assert_close(rows.sum(dim=2), torch.ones(2, 4, dtype=torch.float64))
    torch.testing.assert_close(rows[0, :, 0], rows[0, :, 2])
    values = torch.randn(2, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        relaxation.expected(scores, values, every(scores), 3), (rows[:, :3] @ values[:, :, None])[..., 0]
    )
    torch.testing.assert_close(relaxation.indicators(scores, every(scores), 2), rows[:, :2])


def test_constructors_refuse_contradictory_settings() -> None:
    for wrong in ({"sinkhorn": -1}, {"sinkhorn": 0, "transposed": True}):
        with pytest.raises(ValueError, match="sinkhorn"):
            NeuralSort(**wrong)
    with pytest.raises(ValueError, match="strength"):
        FastSoftSort(strength="adaptive", beta=5.0)
