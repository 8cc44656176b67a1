from __future__ import annotations

import pytest
import torch

from rerank.measures import parse
from tests.measures.evaluator import evaluate

NAMES = [
    *("P@1", "P@5", "P@30", "P(rel=2)@5"),
    *("AP", "AP@5", "AP@30", "AP(rel=3)"),
    *("nDCG", "nDCG@5", "nDCG@30", "nDCG(dcg='exp-log2')", "nDCG(dcg='exp-log2')@5"),
    *("RR", "RR@5", "RR(rel=3)@2"),
    *("nERR", "nERR@3", "nERR@30", "nERR(max_rel=5)@5", "nERR(max_rel=2)@5"),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(3))
def test_exact_equals_evaluation(name: str, seed: int) -> None:
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
