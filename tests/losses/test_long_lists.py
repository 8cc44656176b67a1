"""Lists of 5,000 documents with 20 relevant ones: finite, and not slow."""

from __future__ import annotations

import time

import pytest
import torch

from rerank.losses import DirectMetric, Loss, load_all
from rerank.relaxations import RankIndicators
from rerank.relaxations import load_all as load_relaxations

LOSSES = {name: kind() for name, kind in load_all().items() if not issubclass(kind, DirectMetric)}
LOSSES |= {
    name: DirectMetric("nDCG@10" if issubclass(kind, RankIndicators) else "nDCG", kind())
    for name, kind in load_relaxations().items()
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
