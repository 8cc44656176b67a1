"""Tables of the papers about the relaxations themselves."""

from __future__ import annotations

import pytest
import torch

from rerank.relaxations import Approx, NeuralSort
from rerank.relaxations.base import Batch

TABLE_2 = {  # Yu 2020: L1 distance of sigmoid ranks to ranks, 100 vectors of uniform numbers, by alpha
    123: {1: 2866.94, 10: 350.25, 100: 68.36, 1_000: 16.45, 10_000: 2.20, 100_000: 0.23},
    1000: {1: 189401.48, 10: 17600.48, 100: 1671.72, 1_000: 488.01, 10_000: 112.80, 100_000: 13.67},
}


@pytest.mark.parametrize(
    ("size", "alpha", "printed"), [(n, a, v) for n, row in TABLE_2.items() for a, v in row.items()]
)
def test_yu_table_2(size: int, alpha: int, printed: float) -> None:
    scores = torch.rand(100, size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
    every, mask = torch.arange(size).expand(scores.shape), torch.ones_like(scores, dtype=torch.bool)
    batch = Batch(scores, torch.zeros_like(scores), mask, every)
    errors = (Approx(alpha).ranks(batch) - batch.exact).abs().sum(dim=1)
    # the paper drew other vectors: allow for the spread of two means of 100, and 2 in the last digit
    spread = float(errors.std()) * (2 / 100) ** 0.5
    assert abs(float(errors.mean()) - printed) < 3.5 * spread + 0.02


THEIRS = (*torch.tensor([[[0.5, 0.2, 0.1, 0.01, 0.65, 0.3]], [[4.0, 2, 1, 0, 4, 3]]]).double(), torch.ones(1, 6).bool())
"""NeuralNDCG's example: scores, grades, mask."""


@pytest.mark.parametrize(
    ("tau", "printed", "total"),
    [
        (1e-4, [4, 4, 3, 2, 1, 0], 14),
        (0.01, [4, 4, 3, 2, 0.99992, 0.00012339], 14.00004339),
        (0.1, [3.9995, 3.8909, 2.8239, 1.9730, 0.9989, 0.3136], 13.9998),
        (1, [3.3893, 2.9820, 2.4965, 2.0191, 1.6097, 1.2815], 13.778),  # the paper prints 10.388, a misprint
    ],
)
def test_neuralndcg_table_1(tau: float, printed: list[float], total: float) -> None:
    found = NeuralSort(tau, sinkhorn=0).expected(*THEIRS, 6)[0]
    torch.testing.assert_close(found, torch.tensor(printed, dtype=torch.float64), atol=6e-5, rtol=0)
    assert abs(float(found.sum()) - total) < 2e-4
    assert abs(sum(printed) - total) < 3e-4, "the printed rows add up to the sums, with the corrected one"


def test_neuralndcg_footnote_2_sinkhorn_keeps_the_sum() -> None:
    sums = [float(NeuralSort(1, sinkhorn=rounds).expected(*THEIRS, 6).sum()) for rounds in (0, 1, 5, 30)]
    errors = [abs(total - 14) for total in sums]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4
