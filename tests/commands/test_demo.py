from __future__ import annotations

import json
from pathlib import Path

import pytest

from rerank import demo
from rerank.collections import read_qrels
from rerank.demo import run_demo
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.retrieval import read_run
from rerank.scoring.in_sample import shared_queries


def test_the_demo_in_small(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every station of the demo, with a tiny model and few candidates; the second time nothing is done again."""
    monkeypatch.setenv("RERANK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(demo, "ENCODER", str(tiny_model))
    monkeypatch.setattr(demo, "DEPTH", 5)
    monkeypatch.setattr(demo, "WEAK_QUERIES", "first-sentences:16")
    monkeypatch.setattr(demo, "MODEL", demo.MODEL | {"query_length": 16, "document_length": 32})
    output = tmp_path / "demo"
    run_demo(output)
    shown = capsys.readouterr().out
    for words in ("BM25", "untrained", "nDCG@10", "best possible", "largest gain", "largest loss", "--ask"):
        assert words in shown
    for file in ("table.txt", "runs/bm25.trec", "runs/reranked.trec", "fold-1/best/model.safetensors"):
        assert (output / file).stat().st_size > 0
    check_table(output, shown)
    assert not (output / "fold-2").exists()

    lists = Lists.open(output / "lists")
    reranked, bm25 = (read_run(output / "runs" / f"{name}.trec") for name in ("reranked", "bm25"))
    assert {q: {s.id for s in r} for q, r in reranked.items()} == {q: {s.id for s in r} for q, r in bm25.items()}
    assert set(bm25) == set(read_qrels(str(output / "runs" / "qrels.trec")))
    assert len(bm25) >= len(lists) // demo.FOLDS
    trained_on = shared_queries(lists, output / "fold-1" / "best")
    assert set(trained_on or []) == set(lists.query_ids) - set(bm25), "what is shown was not trained on"

    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.safetensors")}
    run_demo(output)
    assert capsys.readouterr().out == shown
    run_demo(output, "open a web page in the browser")
    answers = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in answers] == ["by", "1.", "2.", "3.", "4.", "5."]
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.safetensors")} == before

    with pytest.raises(UserError, match="not a demo"):
        run_demo(tmp_path)


def check_table(output: Path, shown: str) -> None:
    """Counts are those of the run files; the ranker that answers has the largest nDCG@10 of the table."""
    judged = read_qrels(str(output / "runs" / "qrels.trec"))
    qrels = {query: {document for document, grade in own.items() if grade > 0} for query, own in judged.items()}
    rows = {line[:29].strip(): line[29:].split() for line in shown.splitlines() if " of " in line[29:42]}
    for name, file in demo.FILES.items():
        run = read_run(output / "runs" / f"{file}.trec")
        first = sum(hits[0].id in qrels[query] for query, hits in run.items() if hits)
        ten = sum(any(hit.id in qrels[query] for hit in hits[:10]) for query, hits in run.items())
        assert (rows[name][0], rows[name][3]) == (str(first), str(ten)), name
    values = {name: float(row[6]) for name, row in rows.items()}
    favoured = json.loads((output / "answers.json").read_text())["ranker"]
    assert values[favoured] == max(values[name] for name in demo.RANKERS if name != "BM25")
    assert values["best possible order"] == max(values.values())
