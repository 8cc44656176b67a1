"""People's own data, from frames made by hand to a verdict: nothing refused, nothing misread."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import rerank
from tests.builders import WORDS

SMALL = {"query_length": 8, "document_length": 16}


def graded(seed: int, queries: int) -> pd.DataFrame:
    """Grades 1 to 4, some missing; the first stage as ranks, in any order of rows; an address."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(queries):
        query = f"{rng.choice(WORDS)} {seed} {number}"
        for rank in (rng.permutation(6) + 1).tolist():
            text = f"{' '.join(rng.choice(WORDS, 5))} page {seed} {number} {rank}"
            grade = np.nan if rank == 6 else int(np.clip(5 - rank + rng.integers(-1, 2), 1, 4))
            rows.append({"query": query, "text": text, "grade": grade, "rank": rank, "url": f"https://x/{rank}"})
    return pd.DataFrame(rows)


def test_graded_answers_with_ranks_addresses_and_missing_grades(
    tiny_model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frames = {"train": graded(1, 8), "validation": graded(2, 4), "test": graded(3, 4)}
    with caplog.at_level(logging.INFO, "rerank"):
        lists = {name: rerank.Lists.from_dataframe(frame) for name, frame in frames.items()}
    assert any("url" in message for message in caplog.messages), "what is left out is said"
    for name, frame in frames.items():
        judged = {(q, d) for q, grades in (lists[name].qrels or {}).items() for d in grades}
        assert len(judged) == frame["grade"].notna().sum(), "a missing grade is no judgment"
        assert lists[name].store.column_names == ["rank"] and lists[name].store.order == "rank"
        first = lists[name].run().to_dataframe().merge(lists[name].to_dataframe()[["query_id", "doc_id", "text"]])
        ranked = first.set_index("text").groupby("query_id", sort=False).cumcount() + 1
        given = frame.set_index("text")["rank"]
        assert (ranked == given[ranked.index]).all(), "1 is best"
    model = rerank.CrossEncoder(str(tiny_model), **SMALL, start="rank")
    run = rerank.train(
        *(model, lists["train"], rerank.TwinSigmoidNDCG("nDCG@5")),
        validation=lists["validation"],
        test=lists["test"],
        monitor="nDCG@5",
        measures="RR(rel=3)",
        batch_size=4,
        output=tmp_path / "run",
    )
    gains = 1 / np.log2(np.arange(2, 7))
    by_hand = []
    for _, rows in frames["test"].groupby("query"):
        grades = rows.sort_values("rank")["grade"].fillna(0).to_numpy()
        by_hand.append((grades[:5] * gains).sum() / (np.sort(grades)[::-1][:5] * gains).sum())
    assert run.beside["test"]["first"] == pytest.approx(np.mean(by_hand))
    line, before = (line for line in str(run).splitlines() if line.startswith("test: "))
    assert ", start " in before
    assert f"first stage rank {np.mean(by_hand):.4f}, difference" in line and line.rpartition(": ")[2] in (
        *("better", "too close to call", "no difference", "worse, do not use it as it is"),
    )
