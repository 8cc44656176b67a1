"""Draw runs and qrels with ties, gaps, negative grades and empty queries, as real ones have them."""

from __future__ import annotations

import numpy as np

from rerank.retrieval.runs import Run, Scored

Qrels = dict[str, dict[str, int]]


def random_qrels(seed: int, queries: int = 12, documents: int = 40, negative: bool = True, largest: int = 3) -> Qrels:
    rng = np.random.default_rng([seed, 0])
    qrels: Qrels = {}
    for query in range(queries):
        judged = rng.choice(documents, size=rng.integers(1, 15), replace=False)
        top = int(rng.integers(0, largest + 1))  # 0: a query without a relevant document
        grades = rng.integers(-2 if negative else 0, top + 1, size=len(judged))
        qrels[f"q{query}"] = {f"d{doc}": int(grade) for doc, grade in zip(judged, grades, strict=True)}
    return qrels


def random_run(seed: int, queries: int = 12, documents: int = 40, ties: bool = True, missing: bool = True) -> Run:
    """Scores take few values with ties; some queries are missing, and one is not in the qrels."""
    rng = np.random.default_rng([seed, 1])
    run: Run = {}
    for query in range(queries + 1):
        if missing and rng.random() < 0.2:
            continue
        found = rng.choice(documents, size=rng.integers(1, 30), replace=False)
        scores = np.sort(rng.integers(-3, 4, len(found)) if ties else rng.permutation(len(found)))[::-1]
        run[f"q{query}"] = [Scored(f"d{doc}", float(score)) for doc, score in zip(found, scores, strict=True)]
    return run


def untied(run: Run) -> dict[str, dict[str, float]]:
    """Remove ties but keep the order, for tools that break ties by document id."""
    return {
        query: {document.id: float(len(ranking) - i) for i, document in enumerate(ranking)}
        for query, ranking in run.items()
    }
