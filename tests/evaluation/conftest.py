from __future__ import annotations

from pathlib import Path

import pytest

from rerank.retrieval.runs import write_run
from tests.evaluation.random_runs import random_qrels, random_run


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write ``qrels``, two first stages called ``run.trec`` and a model's run."""
    folder = tmp_path_factory.mktemp("evaluate")
    qrels = random_qrels(7, queries=30)
    lines = [f"{query} 0 {doc} {grade}\n" for query, grades in qrels.items() for doc, grade in grades.items()]
    (folder / "qrels").write_text("".join(lines))
    for seed, name in enumerate(["bm25/run.trec", "rm3/run.trec", "model.trec"]):
        (folder / name).parent.mkdir(exist_ok=True)
        write_run(folder / name, random_run(seed, queries=30, missing=seed > 0))
    return folder
