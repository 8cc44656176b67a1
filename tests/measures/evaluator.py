"""Evaluate padded batches with ir-measures, and nERR, which it lacks, with the provider of ``rerank evaluate``."""

from __future__ import annotations

import ir_measures
import torch
from torch import Tensor

from rerank.evaluation.providers import PIPELINE


def evaluate(name: str, scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
    """Measure every list, ``[B]``; scores must be distinct."""
    mask = torch.ones_like(labels, dtype=torch.bool) if mask is None else mask
    scores, qrels, run = scores.detach(), {}, {}
    for row in range(len(scores)):
        documents = mask[row].nonzero().flatten().tolist()
        qrels[f"q{row}"] = {f"d{j}": int(labels[row, j]) for j in documents}
        # positions in place of scores, because trec_eval reads scores as float32
        order = sorted(documents, key=lambda j: -float(scores[row, j]))
        run[f"q{row}"] = {f"d{j}": -float(position) for position, j in enumerate(order)}
    measure = ir_measures.parse_measure(evaluable(name))
    by = PIPELINE if name.startswith("nERR") else ir_measures
    found = {metric.query_id: metric.value for metric in by.iter_calc([measure], qrels, run)}
    return torch.tensor([found.get(f"q{row}", 0.0) for row in range(len(scores))], dtype=torch.float64)


def evaluable(name: str) -> str:
    """Spell out the exponential gain, so that ir-measures computes it without Perl."""
    gains = {grade: 2**grade - 1 for grade in range(31)}
    return name.replace("dcg='exp-log2'", f"gains={gains}")
