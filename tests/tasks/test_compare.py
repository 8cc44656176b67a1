"""Rankers by depth are what they rank by hand, servers what they serve; costs are counted, and bad input is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

import rerank
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.evaluation.measures import evaluate
from rerank.lists import Lists
from rerank.models.base import Model
from rerank.models.contract import add_to_contract
from rerank.models.load import load_model
from rerank.models.mixed import write_ranker
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.scoring.in_sample import remember
from rerank.storage.hashes import read_sealed
from rerank.tasks.compared import Compared, Reranked
from tests.builders import make_lists


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Lists:
    """Lists with two columns beside BM25's, one of a system that returned half of them."""
    lists = make_lists(tmp_path_factory.mktemp("compare"))
    rng = np.random.default_rng(0)
    values = rng.normal(size=lists.size).astype(np.float32)
    lists.store.add_column("half", np.where(rng.random(lists.size) < 0.5, values, np.nan))
    lists.store.add_column("other", rng.normal(size=lists.size).astype(np.float32))
    return lists


@pytest.fixture(scope="module")
def best(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    folder = tmp_path_factory.mktemp("compared") / "small"
    CrossEncoder(str(tiny_model), query_length=8, document_length=24).save(folder)
    return folder


@contextmanager
def served(model: Model | None, answer: Any = None) -> Iterator[str]:
    """A real server that answers by a model's scores, best first as Cohere's does, or always the same."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            said, status = answer, 200
            if isinstance(model, CrossEncoder):
                ranked = model.rank(body["query"], body["documents"], top_k=body["top_n"])
                said = {"results": [{"index": r["corpus_id"], "relevance_score": r["score"]} for r in ranked]}
            elif isinstance(answer, int):
                said, status = {"detail": "too many documents"}, answer
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(said).encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/rerank"
    finally:
        server.shutdown()
        server.server_close()


def by_hand(lists: Lists, depth: int, scores: list[float], measure: str = "AP") -> float:
    """The measure where the best of each list are sorted by scores, and the others stay behind them."""
    run, at = {}, iter(scores)
    ids = lists.document_ids(lists.documents)
    for query, start, end in zip(lists.query_ids, lists.offsets[:-1], lists.offsets[1:], strict=True):
        top, rest = ids[start : min(end, start + depth)], ids[min(end, start + depth) : end]
        own = {document: next(at) for document in top}
        ranked = [*sorted(top, key=lambda document: -own[document]), *rest]
        run[query] = [(document, -float(place)) for place, document in enumerate(ranked)]
    qrels = {query: grades for query, grades in (lists.qrels or {}).items() if grades}
    return evaluate(run, qrels, measure).mean[measure]


def test_each_depth_ranks_as_the_ranker_ranks_lists_cut_there(lists: Lists, best: Path, tmp_path: Path) -> None:
    write_ranker(best, {"bm25": 0.4, "half": 0.2}, 0.4, tmp_path / "mixed")
    write_ranker(None, {"bm25": 0.5, "half": 0.5}, 0, tmp_path / "fused", by="rrf")
    features = rerank.MLP(hidden=[4], columns=["bm25", "other"], normalise=[rerank.QueryZScore()])
    features.prepare(lists, 0)
    (tmp_path / "features").mkdir()
    features.save(tmp_path / "features")
    names = ["mixed", "fused", "features"]
    models = [str(best), *(str(tmp_path / name) for name in names), "half", "bm25"]
    found = rerank.compare(lists, models, depths=[10, 3, 20], measure="AP")
    assert [(row.ranker, row.depth) for row in found.rows] == [
        (name, depth) for name in ("small", *names, "half") for depth in (3, 10, 20)
    ]
    rankers = {name: load_model(folder) for name, folder in zip(["small", *names], models, strict=False)}
    for row in found.rows:
        cut = lists.top(row.depth)
        column = np.nan_to_num(cut.column("half"), nan=-1e9)
        scores = column if row.ranker == "half" else rankers[row.ranker].predict(cut)
        assert row.value == pytest.approx(by_hand(lists, row.depth, scores.tolist()), abs=1e-12), row
        assert row.difference == pytest.approx(row.value - found.first_value, abs=1e-12)
        assert row.difference == 0 if row.low is None or row.high is None else row.low < row.difference < row.high
    assert found.first_value == pytest.approx(by_hand(lists, 0, []), abs=1e-12)


def test_what_reorders_nothing_is_worth_nothing() -> None:
    """Ties, and candidates that the first stage did not return, stay where the lists have them on both sides."""
    table = {"query": [f"q{i}" for i in range(9) for _ in range(6)], "grade": [1, 0, 0, 0, 0, 1] * 9}
    table["bm25"] = [2, 2, 2, 1, None, None] * 9
    lists = rerank.Lists.from_dataframe(table | {"text": [f"t{i}" for i in range(54)], "same": table["bm25"]})
    assert [row.difference for row in rerank.compare(lists, ["same"], depths=[1, 6], measure="AP").rows] == [0, 0]


def test_a_server_is_worth_what_it_serves(lists: Lists, best: Path) -> None:
    model = load_model(best)
    with served(model) as url:
        found = rerank.compare(lists, [str(best), url], depths=[2, 20])
    ours, theirs = found.rows[:2], found.rows[2:]
    assert [row.value for row in ours] == [row.value for row in theirs]
    assert {row.ranker for row in theirs} == {url}
    assert all(row.milliseconds is not None and row.milliseconds > 0 for row in found.rows)
    assert found.sizes[1].parameters is found.sizes[1].peak_bytes is found.sizes[1].bytes is None


def test_nothing_but_the_first_stage_is_no_row(lists: Lists) -> None:
    found = rerank.compare(lists, ["bm25"], depths=[4])
    assert found.to_dataframe().empty and "<table" in found._repr_html_()


def test_costs_are_counted(lists: Lists, best: Path) -> None:
    found = rerank.compare(lists, [str(best), "half"], depths=[20])
    model, column = found.sizes
    network = load_model(best)
    assert model.parameters == sum(parameter.numel() for parameter in network.parameters())
    files = [path for path in best.iterdir() if path.name != "rerank.json"]
    assert model.bytes == sum(path.stat().st_size for path in files)
    assert model.peak_bytes is None or model.peak_bytes > 4 * model.parameters
    assert (column.parameters, column.bytes, column.peak_bytes, found.rows[1].milliseconds) == (None, None, None, None)


def test_the_queries_of_the_training_are_told(lists: Lists, best: Path, tmp_path: Path) -> None:
    load_model(best).save(tmp_path / "trained")
    add_to_contract(tmp_path / "trained", remember(lists.select([0, 3])))
    found = rerank.compare(lists, [str(tmp_path / "trained")], depths=[2])
    assert "trained: was trained on 2 of these queries" in str(found)


ROWS = [
    Reranked("small", 10, 0.5, 0.1, 0.05, 0.15, 12.0),
    Reranked("small", 50, 0.7, 0.3, 0.2, 0.4, 60.0),
    Reranked("large", 10, 0.7, 0.3, 0.2, 0.4, 80.0),
    Reranked("large", 50, 0.9, 0.5, 0.4, 0.6, 400.0),
    Reranked("column", 50, 0.99, 0.6, 0.5, 0.7, None),
]


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        (1000, "large at depth 50 (400 ms)"),
        (100, "small at depth 50 (60 ms)"),
        (20, "small at depth 10 (12 ms)"),
        (5, "the first stage alone"),
    ],
)
def test_the_budget_decides(budget: float, says: str) -> None:
    found = Compared("lists", 30, "nDCG@10", "bm25", 0.4, ROWS, [], "here", 7, budget)
    assert f"Within {budget:g} ms a query: {says}" in found.sentence
    even = [replace(row, low=-0.1) for row in ROWS]
    if budget > 5:
        assert "no better than the first stage" in replace(found, rows=even).sentence
        worse = [replace(row, difference=-row.difference, low=-0.4, high=-0.1) for row in ROWS]
        assert "the first stage alone; no ranker" in replace(found, rows=worse).sentence
    assert replace(found, budget_ms=None).sentence == ""
    assert "95 % intervals: bootstrap over queries, widened by Student's t" in found.facts()[0]


def test_the_command_prints_and_writes_what_fits_a_screen(
    lists: Lists, best: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served(load_model(best)) as url:
        url = url.replace("/rerank", "/" + "long" * 40)
        words = ["--lists", str(lists.store.folder), "--models", str(best), "half", url, "--depths", "5", "20"]
        assert main(["compare", *words, "--budget-ms", "100000", "--output", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 100
    assert shown == (tmp_path / "out" / "compare.txt").read_text()
    content = read_sealed(tmp_path / "out" / "compare.json")
    assert [(row["ranker"], row["depth"]) for row in content["rows"]] == [
        (name, depth) for name in ("small", "half", url) for depth in (5, 20)
    ]
    for row in content["rows"]:
        assert f"{row['value']:.4f}" in shown
    assert content["sentence"].startswith("Within 100000 ms a query: ")


def test_what_cannot_work_is_refused_before_anything_is_scored(
    lists: Lists, best: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = lists.to_dataframe()
    unjudged = Lists.from_dataframe(frame.drop(columns="grade"))
    (tmp_path / "best").mkdir()
    write_ranker(best, {"there": 0.5}, 0.5, tmp_path / "mix")
    (tmp_path / "mix" / "model.safetensors").unlink()  # columns are looked at before weights are read
    cases: list[tuple[dict[str, Any], str]] = [
        ({"models": [str(tmp_path / "none")]}, "no such model folder"),
        ({"models": [str(best), str(best), str(best)]}, "is named twice"),
        ({"models": ["hlaf"]}, r"neither a folder nor a column \(did you mean 'half'\?\); columns .*: bm25"),
        ({"models": [str(tmp_path)]}, rf"not a model folder .*; name the one inside it, {tmp_path}/best$"),
        ({"models": [str(tmp_path / "mix")]}, r"mixes in column there, which .* --run there=FILE`$"),
        ({"models": ["half"], "depths": [21]}, "depths: 21 is more than the 20 candidates"),
        ({"models": ["half"], "depths": [0]}, "depths"),
        ({"models": ["half"], "measure": "NumRet"}, "measures no quality"),
        (
            {"models": ["half"], "output": str(tmp_path / "mix" / "rerank.json")},
            r"rerank\.json is a file; name a folder",
        ),
        ({"models": ["half"], "budget_ms": -1}, "budget_ms: must be above 0"),
        ({"models": ["http://127.0.0.1:9/rerank"]}, "cannot be reached"),
        ({"models": [str(best)], "lists": unjudged}, "has no judgments"),
    ]
    for settings, message in cases:
        with pytest.raises(UserError, match=message):
            rerank.compare(**{"lists": lists} | settings)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (413, "by 413 .*too many documents"),
        ([0.5], "expected .*relevance_score"),
        ({"results": [{"index": 0, "score": 1}]}, "expected .*relevance_score"),
        ({"results": []}, "no number for 1 of 1 documents"),
    ],
)
def test_servers_that_answer_otherwise_are_refused(lists: Lists, answer: Any, message: str) -> None:
    with served(None, answer) as url, pytest.raises(UserError, match=message):
        rerank.compare(lists, [url])
