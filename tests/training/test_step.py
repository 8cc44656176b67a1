from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rerank.lists import Lists
from rerank.lists.sampling import Full, Pairs
from rerank.losses import DirectMetric, ListNet, PairwiseHinge
from rerank.losses.base import Loss
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.relaxations import SmoothI
from rerank.training.batches import Batches, Targets, pad
from tests.close import gradients_of
from tests.training.helpers import gradients


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> CrossEncoder:
    torch.manual_seed(0)
    return CrossEncoder(str(tiny_model), query_length=8, document_length=24)


@pytest.mark.parametrize(
    "loss", [DirectMetric("nDCG@10", SmoothI()), PairwiseHinge(), ListNet()], ids=lambda x: type(x).__name__
)
def test_gradient_is_that_of_the_mean_over_learnable_lists(model: CrossEncoder, lists: Lists, loss: Loss) -> None:
    """Against autograd over all lists scored one by one, in float32."""
    value, found = gradients(model, lists, loss)
    inputs = model.inputs(lists)
    start = np.zeros(1, dtype=np.int64)
    scores = [model.score(inputs.collate(lists.row_numbers[i : i + 1], start)) for i in range(lists.size)]
    labels, mask = pad(np.split(lists.grades, lists.offsets[1:-1]))
    flat = torch.cat(scores)
    expected = loss(torch.zeros(mask.shape).masked_scatter(mask, flat), labels, mask, seeds=torch.arange(len(lists)))
    model.zero_grad(set_to_none=True)
    expected.backward()
    assert value == pytest.approx(expected.item(), rel=1e-5)
    assert 0 < int(loss.learnable(labels, mask).sum()) < len(lists), "some list must have nothing to learn from"
    torch.testing.assert_close(found, gradients_of(model), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("steps", [None, 7])
def test_batches_pass_over_every_list_and_can_start_anywhere(lists: Lists, steps: int | None) -> None:
    usable = Targets(lists, PairwiseHinge()).usable()
    batches = Batches(lists, usable, Full(5), 4, steps, seed=3)
    epochs = [list(batches.epoch(epoch)) for epoch in range(3)]
    seen = [group.query for epoch in epochs for batch in epoch for group in batch]
    for visit in range(len(seen) // len(usable)):
        part = seen[visit * len(usable) : (visit + 1) * len(usable)]
        assert sorted(part) == usable.tolist()
    assert {len(epoch) for epoch in epochs} == {steps or -(-len(usable) // 4)}
    fresh = Batches(lists, usable, Full(5), 4, steps, seed=3)
    later = list(fresh.epoch(2, start=1))
    assert [[g.query for g in b] for b in later] == [[g.query for g in b] for b in epochs[2][1:]]
    assert [g.seed for b in later for g in b] == [g.seed for b in epochs[2][1:] for g in b]


def test_pairs_of_different_queries_take_the_place_of_lists(lists: Lists) -> None:
    usable = Targets(lists, PairwiseHinge()).usable()
    batches = Batches(lists, usable, Pairs(3, same_query=False), 2, None, seed=0)
    steps = list(batches.epoch(0))
    assert [len(step) for step in steps[:-1]] == [6] * (len(steps) - 1)
    assert sorted(group.query for step in steps for group in step) == usable.tolist()
    for group in (group for step in steps for group in step):
        own = lists.grades[lists.offsets[group.query] : lists.offsets[group.query + 1]]
        kinds = sorted(set((own > 0).tolist()))  # some lists have relevant documents only
        assert sorted(lists.grades[group.rows] > 0) == kinds
