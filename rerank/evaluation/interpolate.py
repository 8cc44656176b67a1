"""Mix a model's scores with those of the first stage."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from ir_measures import Measure

from rerank.errors import UserError
from rerank.evaluation.measures import Evaluator, Qrels
from rerank.retrieval.runs import Run, Scored, as_float32

GRID = tuple(i / 20 for i in range(21))


def z_normalise(scores: Sequence[float]) -> np.ndarray:
    """Float32 scores less their mean, over their standard deviation (of the population); zeros where all are equal."""
    values = _values(scores)
    return _standardise(values, values) if len(values) else values


def _values(scores: Sequence[float]) -> np.ndarray:
    return as_float32(scores).astype(np.float64)


def _standardise(values: np.ndarray, reference: np.ndarray) -> np.ndarray:
    # Equal scores can have a mean that is off by a rounding error: their range is 0, their deviation may not be.
    if np.ptp(reference) == 0:
        return np.zeros(len(values))
    return (values - reference.mean()) / reference.std()


def interpolate(run: Run, first_stage: Run, weight: float) -> Run:
    r"""Per query, :math:`(1 - w) \, z(\text{model}) + w \, z(\text{first stage})`, ties in first-stage order.

    Mean and standard deviation of each are over the candidates that are in both, so that a model which scored
    only the top of the first stage is compared with it on common ground. A document that one of the two lacks gets
    the lowest z that the other documents have there (below a reranked top, the first stage's order therefore stays);
    a query that the model lacks keeps the first stage's order, and one that the first stage lacks the model's.

    Args:
        run: the model's scores.
        first_stage: the scores that it reranked.
        weight: w, the first stage's share, 0 to 1.

    Raises:
        UserError: a weight outside 0 to 1.
    """
    return _mix(_aligned(run, first_stage), weight)


def tune_weight(
    run: Run,
    first_stage: Run,
    qrels: Qrels,
    measure: str | Measure,
    grid: Sequence[float] = GRID,
) -> tuple[float, list[tuple[float, float]]]:
    """The weight with the best mean, and ``(weight, mean)`` for all of the grid; of equal ones the first.

    Tune on validation queries: filter the qrels to them.
    """
    evaluator = Evaluator(qrels, measure)
    queries = set(qrels)
    aligned = _aligned(_only(run, queries), _only(first_stage, queries))
    table = [(weight, evaluator(_mix(aligned, weight)).mean[str(evaluator.measures[0])]) for weight in grid]
    return max(table, key=lambda row: row[1])[0], table


def _only(run: Run, queries: Collection[str]) -> Run:
    return {query: documents for query, documents in run.items() if query in queries}


def _aligned(run: Run, first_stage: Run) -> dict[str, tuple[list[str], np.ndarray, np.ndarray]]:
    """Per query: the documents in first-stage order (those it lacks last), the model's z, the first stage's z."""
    aligned = {}
    for query in dict.fromkeys([*first_stage, *run]):
        model, first = dict(run.get(query, [])), dict(first_stage.get(query, []))
        documents = list(dict.fromkeys([*first, *model]))
        common = [document for document in documents if document in model and document in first]
        aligned[query] = (documents, _z(model, documents, common), _z(first, documents, common))
    return aligned


def _z(scores: Mapping[str, float], documents: list[str], common: list[str]) -> np.ndarray:
    if not scores:
        return np.zeros(len(documents))
    lowest = min(scores.values())
    values = _values([scores.get(document, lowest) for document in documents])
    return _standardise(values, _values([scores[document] for document in common or scores]))


def _mix(aligned: Mapping[str, tuple[list[str], np.ndarray, np.ndarray]], weight: float) -> Run:
    if not 0 <= weight <= 1:
        raise UserError(f"first-stage weight {weight}: must be from 0 to 1")
    mixed: Run = {}
    for query, (documents, model, first) in aligned.items():
        scores = (1 - weight) * model + weight * first
        order = np.argsort(-scores.astype(np.float32), kind="stable")
        mixed[query] = [Scored(documents[i], float(scores[i])) for i in order]
    return mixed
