"""ir-measures on padded batches: an evaluator that is not ours."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import ir_measures
import torch
from torch import Tensor


def evaluate(
    name: str,
    scores: Tensor,
    labels: Tensor,
    mask: Tensor | None = None,
    iter_calc: Callable[..., Iterator[ir_measures.Metric]] = ir_measures.iter_calc,
) -> Tensor:
    """The measure of every list, ``[B]``, as ir-measures computes it; scores must be distinct."""
    mask = torch.ones_like(labels, dtype=torch.bool) if mask is None else mask
    scores, qrels, run = scores.detach(), {}, {}
    for row in range(len(scores)):
        documents = mask[row].nonzero().flatten().tolist()
        qrels[f"q{row}"] = {f"d{j}": int(labels[row, j]) for j in documents}
        # positions in place of scores, because trec_eval reads scores as float32
        order = sorted(documents, key=lambda j: -float(scores[row, j]))
        run[f"q{row}"] = {f"d{j}": -float(position) for position, j in enumerate(order)}
    measure = ir_measures.parse_measure(evaluable(name))
    found = {metric.query_id: metric.value for metric in iter_calc([measure], qrels, run)}
    return torch.tensor([found.get(f"q{row}", 0.0) for row in range(len(scores))], dtype=torch.float64)


def evaluable(name: str) -> str:
    """The exponential gain spelled out, which ir-measures then computes without Perl."""
    gains = {grade: 2**grade - 1 for grade in range(31)}
    return name.replace("dcg='exp-log2'", f"gains={gains}")
