from __future__ import annotations

from pathlib import Path

import pytest

from rerank import demo
from rerank.collections.demo import DemoCollection
from rerank.demo import WeakCollection, run_demo
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.lists.folds import fold_of
from rerank.retrieval import read_run


def test_weak_queries_are_not_in_their_documents() -> None:
    weak = WeakCollection(DemoCollection(), count=200, seed=1)
    texts = {document.id: document.text for document in weak.documents()}
    queries = list(weak.queries())
    assert len(queries) == 200
    assert weak.qrels() == {query.id: {query.id: 1} for query in queries}
    whole = sum(query.text in " ".join(texts[query.id].split()) for query in queries)
    assert whole <= 4, "a docstring may repeat its first sentence, but few do"
    again = list(WeakCollection(DemoCollection(), count=200, seed=1).queries())
    assert again == queries


def test_the_demo_in_small(
    tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every station of the demo, with a tiny model and few candidates; the second time nothing is done again."""
    monkeypatch.setenv("RERANK_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(demo, "ENCODER", str(tiny_model))
    monkeypatch.setattr(demo, "DEPTH", 5)
    monkeypatch.setattr(demo, "WEAK_QUERIES", 16)
    monkeypatch.setattr(demo, "MODEL", demo.MODEL | {"query_length": 16, "document_length": 32})
    output = tmp_path / "demo"
    run_demo(output)
    shown = capsys.readouterr().out
    for words in ("BM25", "SmoothI-nDCG", "nDCG@10", "t-test", "cut a string", "--ask"):
        assert words in shown
    for file in ("table.txt", "training.png", "runs/bm25.trec", "runs/reranked.trec", "fold-3/best/model.safetensors"):
        assert (output / file).stat().st_size > 0

    lists, reranked = Lists.open(output / "lists"), read_run(output / "runs" / "reranked.trec")
    bm25 = read_run(output / "runs" / "bm25.trec")
    assert {q: {s.id for s in r} for q, r in reranked.items()} == {q: {s.id for s in r} for q, r in bm25.items()}
    folds = fold_of(lists.query_ids, demo.FOLDS, 0)
    assert min((folds == fold).sum() for fold in range(demo.FOLDS)) >= len(lists) // demo.FOLDS

    before = {path: path.stat().st_mtime_ns for path in output.rglob("*.safetensors")}
    run_demo(output)
    assert "cut a string" in capsys.readouterr().out
    run_demo(output, "open a web page in the browser")
    answers = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in answers] == ["1.", "2.", "3.", "4.", "5."]
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.safetensors")} == before

    with pytest.raises(UserError, match="not a demo"):
        run_demo(tmp_path)
