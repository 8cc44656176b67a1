"""Several runs as one: an ensemble."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rerank.evaluation.interpolate import z_normalise
from rerank.retrieval.runs import Run, Scored


def fuse(runs: Sequence[Run]) -> Run:
    r"""Per query :math:`\frac{1}{R} \sum_r z(s_r)`, the mean of the runs' z-normalised scores.

    Ties keep the first run's order.

    Args:
        runs: rankings of the same documents for the same queries.

    Raises:
        ValueError: the runs differ in their queries or documents.
    """
    fused: Run = {}
    for query, ranking in runs[0].items():
        documents = [scored.id for scored in ranking]
        total = np.zeros(len(documents))
        for run in runs:
            scores = dict(run.get(query, []))
            if scores.keys() != set(documents):
                raise ValueError(f"query {query!r}: the runs rank different documents")
            total += z_normalise([scores[document] for document in documents])
        mean = total / len(runs)
        order = np.argsort(-mean.astype(np.float32), kind="stable")
        fused[query] = [Scored(documents[i], float(mean[i])) for i in order]
    if any(run.keys() != fused.keys() for run in runs):
        raise ValueError("the runs rank different queries")
    return fused
