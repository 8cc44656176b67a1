"""What the papers' tables say about the relaxations themselves."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.relaxations import Approx, Batch, NeuralSort, TwinSigmoid
from rerank.relaxations.fidelity import fidelity

TABLE_2 = {  # Yu 2020: L1 distance of sigmoid ranks to ranks, 100 vectors of uniform numbers, by alpha
    123: {1: 2866.94, 10: 350.25, 100: 68.36, 1_000: 16.45, 10_000: 2.20, 100_000: 0.23},
    1000: {1: 189401.48, 10: 17600.48, 100: 1671.72, 1_000: 488.01, 10_000: 112.80, 100_000: 13.67},
}


@pytest.mark.parametrize(
    ("size", "alpha", "printed"), [(n, a, v) for n, row in TABLE_2.items() for a, v in row.items()]
)
def test_yu_table_2(size: int, alpha: int, printed: float) -> None:
    scores = torch.rand(100, size, dtype=torch.float64, generator=torch.Generator().manual_seed(size))
    errors = fidelity(Approx(alpha), scores).rank_error
    # the paper drew other vectors: allow for the spread of two means of 100, and 2 in the last digit
    spread = float(errors.std()) * (2 / 100) ** 0.5
    assert abs(float(errors.mean()) - printed) < 3.5 * spread + 0.02


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=30, unique=True), st.floats(0.1, 100))
def test_yu_equation_3(scores: list[float], alpha: float) -> None:
    """Qin's bound: sigmoid ranks are off by ``(N - 1) / (1 + exp(alpha d))`` at most, d the distance to the nearest."""
    values = torch.tensor([scores], dtype=torch.float64)
    mask = torch.ones_like(values, dtype=torch.bool)
    batch = Batch(values, torch.zeros_like(values), mask, torch.arange(len(scores))[None])
    off = (Approx(alpha).ranks(batch) - batch.exact)[0].abs()
    apart = (values.T - values).abs().fill_diagonal_(torch.inf).amin(dim=1)
    bound = (len(scores) - 1) * torch.sigmoid(-alpha * apart)
    assert (off <= bound * (1 + 1e-9) + 1e-12 * len(scores)).all()
    if len(scores) == 2:
        torch.testing.assert_close(off, bound, msg="two documents reach it")


def test_yu_table_3() -> None:
    """Without tie breaking the error is that of the ties among float32 numbers; with it there is none."""
    scores = torch.rand(300, 1000, generator=torch.Generator().manual_seed(1))
    ordered = scores.sort(dim=1).values
    pairs = float((ordered[:, 1:] == ordered[:, :-1]).sum(dim=1).double().mean())
    assert 0.015 < pairs < 0.045, "1000 * 999 / 2 pairs, each tied with probability 2^-24: 0.03, as printed"

    tied = scores[(ordered[:, 1:] == ordered[:, :-1]).any(dim=1)]
    level = (tied[:, None, :] == tied[:, :, None]).sum(dim=2) - 1
    mean_ranks = 1 + (tied[:, None, :] > tied[:, :, None]).sum(dim=2) + level / 2
    half = (mean_ranks.sort(dim=1).values - torch.arange(1, 1001)).abs().sum() / len(scores)
    assert float(half) == pytest.approx(pairs), "Eq 12 is off by a half for both documents of a tied pair"

    every = torch.arange(1000).expand_as(scores)
    batch = Batch(scores, torch.zeros_like(scores), torch.ones_like(scores, dtype=torch.bool), every)
    ranks = TwinSigmoid().ranks(batch)
    assert torch.equal(ranks.sort(dim=1).values, torch.arange(1.0, 1001).expand_as(ranks))
    assert (scores.gather(1, ranks.argsort(dim=1)).diff(dim=1) <= 0).all()


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
