"""Test queries with a relevant document that training has seen are left out on request."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists.view import Lists
from rerank.tasks.evaluate import evaluate as evaluate_runs
from tests.builders import WORDS
from tests.evaluation.scored import evaluate


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Lists, Lists]:
    """Make training and test lists that share relevant documents of some queries."""
    rows = [
        {"query_id": f"q{i}", "query": WORDS[i], "doc_id": f"d{(i + 3 * j) % 10}", "bm25": 9.0 - j}
        for i in range(12)
        for j in range(6)
    ]
    frame = pd.DataFrame(rows).assign(text=lambda rows: [f"the {WORDS[int(id[1:])]}" for id in rows["doc_id"]])
    qrels = {f"q{i}": {"d0" if i % 3 == 0 else f"d{i % 9 + 1}": 1, "x": 0} for i in range(12)}
    lists, positions = Lists.from_dataframe(frame, qrels=qrels), np.arange(12)
    return lists.select(positions[:2]).save(tmp_path / "train"), lists.select(positions[2:]).save(tmp_path / "test")


def test_trained_on_leaves_out_seen_queries(
    sides: tuple[Lists, Lists], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train, test = sides
    assert train.qrels is not None and test.qrels is not None
    known = {document for judged in train.qrels.values() for document, grade in judged.items() if grade > 0}
    unseen = {q: judged for q, judged in test.qrels.items() if not known & {d for d in judged if judged[d] > 0}}
    assert 0 < len(unseen) < len(test), "or this tests nothing"
    expected = evaluate(test.run("bm25"), unseen, "nDCG@10")
    halves = [{query: judged} for query, judged in train.qrels.items()]
    for given in (train, train.qrels, str(tmp_path / "train"), [*halves]):
        found = evaluate_runs(test, {"bm25": "bm25"}, "nDCG@10", trained_on=given)
        assert not isinstance(found, float)
        assert found["bm25", "nDCG@10"] == expected.mean["nDCG@10"] and found.first.queries == (*unseen,)
    words = ["evaluate", f"--qrels={tmp_path / 'test'}", "--runs=bm25", "--measures=nDCG@10"]
    assert main([*words, "--trained-on", str(tmp_path / "train")]) == 0
    shown = f"{len(test) - len(unseen)} queries with a relevant document that was trained on are left out"
    assert shown in capsys.readouterr().out
    with pytest.raises(UserError, match="nowhere"):
        evaluate_runs(test, {"bm25": "bm25"}, "nDCG@10", trained_on="nowhere")
    with pytest.raises(UserError, match="every query has a relevant document"):
        evaluate_runs(test, {"bm25": "bm25"}, "nDCG@10", trained_on=test)
