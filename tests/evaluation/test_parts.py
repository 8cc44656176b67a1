"""Queries with a relevant document that training has seen, apart from the others."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.evaluation.compare import SEEN, UNSEEN
from rerank.evaluation.crossed import interval
from rerank.evaluation.measures import evaluate
from rerank.lists.view import Lists
from rerank.retrieval.runs import read_run, write_run
from rerank.tasks import evaluate as evaluate_runs
from tests.builders import WORDS


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Lists, Lists]:
    """Training and test lists; some of the test queries have relevant documents that training has seen."""
    rows = [
        {"query_id": f"q{i}", "query": WORDS[i], "doc_id": f"d{(i + 3 * j) % 10}", "bm25": 9.0 - j}
        for i in range(12)
        for j in range(6)
    ]
    frame = pd.DataFrame(rows).assign(text=lambda rows: [f"the {WORDS[int(id[1:])]}" for id in rows["doc_id"]])
    qrels = {f"q{i}": {"d0" if i % 3 == 0 else f"d{i % 9 + 1}": 1, "x": 0} for i in range(12)}
    lists, positions = Lists.from_dataframe(frame, qrels=qrels), np.arange(12)
    return lists.select(positions[:2]).save(tmp_path / "train"), lists.select(positions[2:]).save(tmp_path / "test")


def test_each_part_by_itself(sides: tuple[Lists, Lists], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, test = sides
    known = {document for judged in (train.qrels or {}).values() for document, grade in judged.items() if grade > 0}
    assert test.qrels is not None
    seen = [q for q, judged in test.qrels.items() if known & {d for d, grade in judged.items() if grade > 0}]
    assert 0 < len(seen) < len(test), "or this tests nothing"
    write_run(tmp_path / "other.trec", test.run(-test.column("bm25")))
    words = ["evaluate", f"--qrels={tmp_path / 'test'}", f"--runs={tmp_path / 'other.trec'}", "--baseline=bm25"]
    words += ["--measures=nDCG@10 NumRet", "--trained-on", str(tmp_path / "train"), f"--json={tmp_path / 'found.json'}"]
    words += [f"--table={tmp_path / 'table.md'}", f"--table={tmp_path / 'table.tex'}"]
    assert main(words) == 0
    parts = json.loads((tmp_path / "found.json").read_text())["parts"]
    assert [(part["run"], part["part"]) for part in parts] == [
        (run, part) for run in ("bm25", "other") for part in (SEEN, UNSEEN)
    ], "counts are no measures"
    values = {
        name: evaluate(run, test.qrels, "nDCG@10").values[0]
        for name, run in (("bm25", test.run("bm25")), ("other", read_run(tmp_path / "other.trec")))
    }
    for part in parts:
        chosen = np.array([(query in seen) == (part["part"] == SEEN) for query in test.qrels])
        mine, gain = values[part["run"]][chosen], (values["other"] - values["bm25"])[chosen]
        assert part["queries"] == chosen.sum()
        assert part["mean"] == pytest.approx(mine.mean())
        assert part["interval"] == pytest.approx(interval(mine))
        expected = None if part["run"] == "bm25" else pytest.approx(gain.mean())
        assert part["difference"] == expected
    out = capsys.readouterr().out
    written = [(tmp_path / f"table.{suffix}").read_text() for suffix in ("md", "tex")]
    assert all("unseen: the others" in shown for shown in (out, *written))


def test_judgments_are_enough_and_several_are_one(sides: tuple[Lists, Lists], tmp_path: Path) -> None:
    train, test = sides
    runs = {"bm25": "bm25"}
    by_lists = evaluate_runs(test, runs, "nDCG@10", trained_on=train)
    assert train.qrels is not None
    halves = [{query: judged} for query, judged in train.qrels.items()]
    for given in (train.qrels, str(tmp_path / "train"), [*halves]):
        assert repr(evaluate_runs(test, runs, "nDCG@10", trained_on=given).parts) == repr(by_lists.parts)
    assert evaluate_runs(test, runs, "nDCG@10").parts == ()
    for shown in (str(by_lists), by_lists._repr_html_()):
        assert "unseen" in shown
    with pytest.raises(UserError, match="nowhere"):
        evaluate_runs(test, runs, "nDCG@10", trained_on="nowhere")
