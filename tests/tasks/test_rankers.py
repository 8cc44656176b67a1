"""Interpolated rankers work like models from Python, the command line and PyTerrier."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import rerank
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.models.folder import add_to_contract
from rerank.models.load import Interpolated
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.retrieval.fuse import fuse
from rerank.retrieval.runs import Run, read_run
from rerank.scoring.in_sample import remember
from rerank.scoring.outputs import add_model
from tests.builders import INSTRUCTED, PROMPT, make_decoder, make_lists

WEIGHTS = {"bm25": 0.3, "dense": 0.2}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """Save lists with two columns, one with gaps; a text model, a ranker of all three, and a fusion of the columns."""
    place = tmp_path_factory.mktemp("rankers")
    lists = make_lists(place)
    draw = np.random.default_rng(0)
    dense = np.where(draw.random(lists.size) < 0.2, np.nan, draw.normal(size=lists.size).round(1))
    lists.store.add_column("dense", dense.astype(np.float32))
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    model.save(place / "best")
    Interpolated(model, WEIGHTS, 0.5).save(place / "ranker")
    Interpolated(None, WEIGHTS).save(place / "fusion")
    return place


@pytest.fixture
def lists(place: Path) -> Lists:
    return Lists.open(place / "lists")


def ids(run: Run) -> dict[str, list[str]]:
    return {query: [scored.id for scored in ranked] for query, ranked in run.items()}


def fused(lists: Lists, *more: Run) -> dict[str, list[str]]:
    return ids(fuse([lists.run(), lists.run("dense"), *more], [*WEIGHTS.values(), *[0.5] * len(more)]))


def test_python_and_the_command_line_rank_as_the_fused_run(place: Path, lists: Lists, tmp_path: Path) -> None:
    text = rerank.rerank_lists(str(place / "best"), lists)
    for name, expected in (("ranker", fused(lists, text)), ("fusion", fused(lists))):
        assert ids(rerank.rerank_lists(rerank.load(place / name), lists)) == expected
        words = ["--model", str(place / name), "--lists", str(place / "lists"), "--output", str(tmp_path / name)]
        assert main(["rerank", *words]) == 0
        assert ids(read_run(tmp_path / name)) == expected
        add_model(place / "lists", place / name, f"column-{name}")
        again = Lists.open(place / "lists")
        assert ids(again.run(again.column(f"column-{name}"))) == expected
        cut = rerank.rerank_lists(str(place / name), lists, depth=5)  # z is over the candidates that are mixed
        short = [rerank.rerank_lists(str(place / "best"), lists, depth=5)] if name == "ranker" else []
        assert ids(cut) == fused(lists.top(5), *short)


@pytest.mark.parametrize("name", ["ranker", "fusion"])
def test_pyterrier_ranks_as_the_list(name: str, place: Path, lists: Lists) -> None:
    ranker: Any = rerank.load(place / name)
    first = lists.select([0])
    frame = first.to_dataframe()
    expected = np.argsort(-ranker.predict(first), kind="stable").tolist()
    pytest.importorskip("pyterrier")
    from rerank.pyterrier import RerankTransformer

    rows = frame.rename(columns={"query_id": "qid", "doc_id": "docno"})
    if name == "fusion":
        rows = rows.drop(columns=["text"])
    assert RerankTransformer(place / name)(rows)["docno"].tolist() == [rows["docno"][i] for i in expected]
    assert "Interpolated" in repr(RerankTransformer(ranker))


def test_rankers_refuse_invalid_options_and_lists(place: Path, lists: Lists, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="token_budget: Interpolated scores all documents at once"):
        rerank.rerank_lists(str(place / "fusion"), lists, token_budget=64)
    bare = make_lists(tmp_path)
    for words in (["rerank", "--output", str(tmp_path / "run")], ["add"]):
        assert main([*words, "--lists", str(tmp_path / "lists"), "--model", str(place / "ranker")]) != 0
    with pytest.raises(UserError, match=r"the ranker interpolates with column dense.* --run dense=FILE"):
        rerank.rerank_lists(str(place / "ranker"), bare)


def test_ranker_remembers_training_queries(place: Path, lists: Lists, tmp_path: Path) -> None:
    rerank.load(place / "best").save(tmp_path / "best")
    add_to_contract(tmp_path / "best", remember(lists.select([0])))
    Interpolated(rerank.load(tmp_path / "best"), WEIGHTS, 0.5).save(tmp_path / "ranker")
    with pytest.raises(UserError, match="was trained on 1 of these 12 queries"):
        add_model(place / "lists", tmp_path / "ranker")


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("decoder")
    for name, prompt in (("decoder", INSTRUCTED), ("bare", PROMPT)):
        made = str(make_decoder(place / "made", prompt=prompt))
        rerank.Decoder(made, query_length=16, document_length=32).save(place / name)
    return place


def test_instruction_is_default_for_queries_without_one(decoder: Path, place: Path, tmp_path: Path) -> None:
    frame = Lists.open(place / "lists").to_dataframe()
    lists = rerank.Lists.from_dataframe(frame)
    model = str(decoder / "decoder")
    given = rerank.Lists.from_dataframe(frame.assign(instruction="Find wings"))
    expected = rerank.load(model).predict(given)
    instructed = rerank.load(model, instruction="Find wings")
    np.testing.assert_allclose(instructed.predict(lists), expected, atol=1e-5)
    np.testing.assert_allclose(rerank.load(model, instruction="Rank").predict(given), expected, atol=1e-5)
    assert np.abs(rerank.load(model).predict(lists) - expected).max() > 1e-3
    lists.save(tmp_path / "lists")
    words = ["--model", model, "--lists", str(tmp_path / "lists"), "--instruction", "Find wings", "--precision", "fp32"]
    assert main(["rerank", *words, "--output", str(tmp_path / "run")]) == 0
    assert main(["add", *words, "--name", "told"]) == 0
    run = ids(rerank.rerank_lists(model, lists, precision="fp32", instruction="Find wings"))
    assert ids(read_run(tmp_path / "run")) == ids(Lists.open(tmp_path / "lists").run("told")) == run


@pytest.mark.parametrize("name", ["run/results.json", "experiment/table.md", "best/rerank.json"])
def test_output_does_not_overwrite_results(
    name: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / name
    (tmp_path / "experiment" / "trials").mkdir(parents=True)
    for mark in ("run/fingerprint.json", "best/rerank.json", name):
        (tmp_path / mark).parent.mkdir(exist_ok=True)
        (tmp_path / mark).write_text("{}")
    lists = str(place / "lists")
    evaluate = ["evaluate", "--qrels", lists, "--runs", "bm25"]
    rank = ["rerank", "--model", str(place / "best"), "--lists", lists]
    option = "--table" if name.endswith(".md") else "--json"
    for words in ([*evaluate, option, str(file)], [*rank, "--output", str(file)]):
        assert main(words) == 2
        assert f"{file}: would overwrite a file of {file.parent}" in capsys.readouterr().err
    assert file.read_text() == "{}"
    assert main([*evaluate, "--json", str(tmp_path / "run" / "test.json")]) == 0
