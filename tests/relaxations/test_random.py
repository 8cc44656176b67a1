from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rerank.relaxations.order import order_of, ranks_of, uniform

seeds = st.integers(-(2**63), 2**63 - 1)


def full(batch: int, size: int) -> torch.Tensor:
    return torch.ones(batch, size, dtype=torch.bool)


def test_uniform_numbers_are_independent() -> None:
    numbers = uniform(torch.arange(400), full(400, 500))
    assert 0 < numbers.min() < 1e-4 and 1 - 1e-4 < numbers.max() < 1
    share = torch.histc(numbers, 50, 0, 1) / numbers.numel()
    assert (share - 1 / 50).abs().max() < 6 * math.sqrt(1 / 50 / numbers.numel())
    pairs = [(numbers[1:], numbers[:-1]), (numbers[:, 1:], numbers[:, :-1])]
    for a, b in pairs:  # between lists and documents
        assert torch.corrcoef(torch.stack([a.flatten(), b.flatten()]))[0, 1].abs() < 5 / math.sqrt(a.numel())


def test_order_shuffles_ties_evenly() -> None:
    scores = torch.tensor([2.0, 1.0, 1.0, 1.0, 0.0]).expand(6000, 5)
    mask = full(6000, 5)
    ranks = ranks_of(order_of(scores, mask, torch.arange(6000), shuffle=True))
    assert (ranks[:, 0] == 1).all() and (ranks[:, 4] == 5).all()
    for rank in (2, 3, 4):
        share = (ranks[:, 1:4] == rank).double().mean(dim=0)
        assert (share - 1 / 3).abs().max() < 5 * math.sqrt(2 / 9 / 6000)
    assert (ranks.sort(dim=1).values == torch.arange(1, 6)).all()


@settings(max_examples=50, deadline=None)
@given(st.lists(seeds, min_size=1, max_size=5), st.data())
def test_uniform_depends_on_seed_and_place_alone(values: list[int], data: st.DataObject) -> None:
    batch = uniform(torch.tensor(values), full(len(values), 6))
    places = sorted(data.draw(st.permutations(range(11)))[:6])
    mask = torch.zeros(1, 11, dtype=torch.bool)
    mask[0, places] = True
    for row, value in enumerate(values):
        alone = uniform(torch.tensor([value]), mask)
        assert torch.equal(alone[0, places], batch[row])
