"""Commands run as a user starts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rerank.collections import open_collection
from rerank.commands.cli import main
from rerank.retrieval import read_run, write_run
from tests.builders import make_lists, random_run, write_collection
from tests.forked import Command


def test_commands_go_from_retrieval_to_table(
    tmp_path: Path, tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each step has its command: BM25, training, reranking, evaluation."""
    collection = write_collection(tmp_path / "c", queries=20, documents=200)
    lists, run = tmp_path / "lists", tmp_path / "run"
    assert main(["retrieve", "--collection", collection, "--depth", "30", "--output", str(lists)]) == 0
    settings = ["--data=FoldsData", f"--data.lists={lists}", "--data.fold=1", "--data.folds=4"]
    settings += ["--model=CrossEncoder", f"--model.name={tiny_model}", "--model.query_length=8"]
    settings += ["--model.document_length=48", "--loss=SmoothINDCG", "--batch_size=4", f"--output={run}"]
    assert main(["train", *settings]) == 0
    words = ["--model", str(run / "best"), "--lists", str(lists), "--output"]
    assert main(["rerank", *words, str(tmp_path / "0.trec"), "--no-interpolation"]) == 0
    bm25 = lists / "run.trec"
    ids = {query: [scored.id for scored in ranked] for query, ranked in read_run(bm25).items()}
    reranked = read_run(tmp_path / "0.trec")
    assert {q: {s.id for s in r} for q, r in reranked.items()} == {q: set(d) for q, d in ids.items()}
    assert {q: [s.id for s in r] for q, r in reranked.items()} != ids

    capsys.readouterr()
    words = ["--qrels", collection, "--runs", str(bm25), str(tmp_path / "0.trec"), "--measures", "nDCG@10 P@20 AP RR"]
    json_file, table, per_query = (str(tmp_path / name) for name in ("t.json", "t.md", "q.tsv"))
    outputs = ["--json", json_file, "--table", table, "--per-query", per_query]
    assert main(["evaluate", *words, "--baseline", str(bm25), *outputs]) == 0
    shown = capsys.readouterr().out
    assert "nDCG@10" in shown and "t-test" in shown
    result = json.loads((tmp_path / "t.json").read_text())
    assert len(result["paths"]) == 2
    assert {row["measure"] for row in result["rows"]} == {"nDCG@10", "P@20", "AP", "RR"}
    assert (tmp_path / "t.md").read_text().startswith("|")
    assert len((tmp_path / "q.tsv").read_text().splitlines()) == 1 + 2 * len(open_collection(collection).qrels() or {})


BM25 = ["retrieve", "--collection", "COLLECTION", "--output", "OUT"]
ADD = ["add", "--lists", "LISTS"]
EVALUATE = ["evaluate", "--qrels", "q", "--runs", "r"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["retreive"], "did you mean 'retrieve'"),
        ([*BM25, "--k1", "-1"], "k1"),
        ([*BM25, "--qrels", "BAD"], "bad.trec:1: "),
        (["rerank", "--model", "nowhere", "--lists", "COLLECTION", "--output", "OUT"], "not a lists folder"),
        (["rerank", "--model", "nowhere", "--lists", "LISTS", "--output", "x.jsonl"], "plain TREC files"),
        (["rerank", "--model", "nowhere", "--lists", "LISTS", "--output", "."], "is a folder; name a file"),
        (["evaluate", "--qrels", "COLLECTION", "--runs", "OTHER"], "none of its"),
        (["evaluate", "--qrels", "COLLECTION", "--runs", "nullbase.trec"], "nullbase.trec: no such run file"),
        # options without effect
        ([*ADD, "--run", "x.trec", "--precision", "fp32"], "--precision: has no effect with --run"),
        ([*ADD, "--drop", "c", "--in-sample"], "--in-sample: has no effect with --drop"),
        ([*ADD, "--embed", "m", "--model", "x"], "give one of --run NAME=FILE"),
        (ADD, "--embed MODEL"),
        ([*BM25, "--dense", "m", "--run", "dense=BAD"], "column of --dense is called dense"),
        ([*EVALUATE, "--test", "wilcoxon"], "test: has no effect without a baseline"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.trec").write_text("q0 Q0 d1 1 2.0 x\nq0 Q0 d1 2 1.0 x\n")
    (tmp_path / "other.trec").write_text("other Q0 d1 1 2.0 x\n")
    names = {"COLLECTION": write_collection(tmp_path / "c"), "LISTS": str(make_lists(tmp_path / "made").store.folder)}
    names |= {"OUT": str(tmp_path / "out"), "BAD": str(tmp_path / "bad.trec"), "OTHER": str(tmp_path / "other.trec")}
    names["dense=BAD"] = f"dense={names['BAD']}"
    assert main([names.get(word, word) for word in words]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("rerank: error: ")
    assert message in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("limit", [2_000, 2_000_000])
def test_full_disk_is_reported_and_leaves_nothing_half_written(tmp_path: Path, tiny_model: Path, limit: int) -> None:
    """Files may not grow beyond a limit: the lists, then the model do not fit."""
    collection = write_collection(tmp_path / "c", queries=40, documents=900)
    write_run(tmp_path / "given.trec", random_run(collection, [30] * 40))
    lists, run = tmp_path / "lists", tmp_path / "run"
    retrieve = ["retrieve", "--collection", collection, "--run", str(tmp_path / "given.trec"), "--output", str(lists)]
    train = ["train", f"--data.train={lists}", "--data=ListsData", "--model=CrossEncoder", f"--output={run}"]
    train += [f"--model.name={tiny_model}", "--model.query_length=8", "--model.document_length=8", "--loss=ListNet"]
    train += ["--batch_size=64", "--checkpoint_every=1"]  # a step, then the best model, then a checkpoint
    if limit > 2_000:
        assert main(retrieve) == 0
    command = Command(train if limit > 2_000 else retrieve, file_limit=limit)
    assert "no space left" in command.communicate(300).splitlines()[-1]
    assert command.returncode == 2
    assert not list(tmp_path.rglob("*.tmp"))
    assert not (run / "best").exists()
    assert lists.exists() == (limit > 2_000)
    if limit > 2_000:  # with room again, the run goes on
        assert main(train) == 0
