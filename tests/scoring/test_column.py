"""A model's scores as a column of a lists folder."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from rerank.commands.cli import main
from rerank.features.normalise import QueryZScore
from rerank.lists import Lists
from rerank.models.load import load_model
from rerank.models.scorer import score_lists
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.networks import MLP, SelfAttention
from rerank.scoring.in_sample import remember, shared_queries
from rerank.scoring.outputs import add_model
from rerank.storage.files import write_json
from rerank.tasks.rerank_lists import rerank_lists
from tests.builders import make_lists, make_lists_with_added, train
from tests.forked import together


def save(model: CrossEncoder | SelfAttention, lists: Lists, folder: Path) -> Path:
    """Save a model with fresh weights."""
    model.prepare(lists, seed=3)
    folder.mkdir(parents=True)
    model.save(folder)
    return folder


@pytest.fixture
def cross_encoder(tiny_model: Path, tmp_path: Path) -> Path:
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    torch.nn.init.normal_(next(p for n, p in model.named_parameters() if n in model.head_parameters()))
    return save(model, make_lists(tmp_path / "t", seed=5), tmp_path / "runs" / "x.v1" / "best")


def test_add_model_writes_the_scores_of_all_candidates(cross_encoder: Path, tmp_path: Path) -> None:
    lists = make_lists_with_added(tmp_path)
    add_model(tmp_path / "lists", cross_encoder)
    every = lists.with_added()
    model = CrossEncoder.load(cross_encoder)
    stored = Lists.open(tmp_path / "lists")
    np.testing.assert_allclose(
        stored.with_added().column("x.v1"), score_lists(model, model.inputs(every), every), rtol=0, atol=1e-5
    )
    assert lists.store.added.any()
    assert sorted(path.name for path in (tmp_path / "lists" / "columns").iterdir()) == ["bm25.arrow", "x.v1.arrow"]


def test_add_model_scores_others_alike_when_documents_are_added(tmp_path: Path) -> None:
    """Listwise models see lists as they are ranked later, without the documents that were added for training."""
    lists = make_lists_with_added(tmp_path)
    values = np.random.default_rng(0).normal(size=(len(lists.store.document), 3))
    lists.store.add_column("features", values, names=["1", "2", "3"])
    lists = Lists.open(tmp_path / "lists")
    for name, made in (("attention", SelfAttention(8, 8)), ("z", MLP(hidden=[4], normalise=[QueryZScore()]))):
        best = save(made, lists, tmp_path / "runs" / name / "best")
        add_model(tmp_path / "lists", best, name)
        model = load_model(best)
        assert isinstance(model, SelfAttention | MLP)
        expected = score_lists(model, model.inputs(lists), lists)
        np.testing.assert_allclose(Lists.open(tmp_path / "lists").column(name), expected, atol=1e-6)
        shown, visible = lists.with_added(), ~lists.store.added_rows
        np.testing.assert_allclose(model.predict(shown)[visible], expected, atol=1e-6)
        deeper = rerank_lists(str(best), shown, depth=3)  # of which some are added
        assert all({*ranked} < {*deeper[query]} for query, ranked in rerank_lists(str(best), lists, depth=3).items())


def test_add_model_raises_for_training_queries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, tiny_model: Path
) -> None:
    lists, other = make_lists(tmp_path), make_lists(tmp_path / "other", seed=7)
    run = tmp_path / "runs" / "x"
    words = ["--data=ListsData", f"--data.train={tmp_path / 'lists'}", "--model=CrossEncoder", f"--output={run}"]
    words += [f"--model.name={tiny_model}", "--model.query_length=8", "--model.document_length=24", "--loss=RankNet"]
    train([*words, "--data.validation_fraction=0.25", "--epochs=1"])
    trained = shared_queries(lists, run / "best")
    judged = [query for query in lists.query_ids if (lists.qrels or {}).get(query)]
    assert set(trained) < set(judged) and len(trained) == len(judged) - round(len(judged) * 0.25)
    assert shared_queries(other, run / "best") == []
    capsys.readouterr()
    command = ["add", "--lists", str(tmp_path / "lists"), "--model", str(run / "best")]
    assert main(command) == 2
    message = f"was trained on {len(trained)} of these 12 queries, e.g. {trained[0]!r}"
    assert message in capsys.readouterr().err
    assert main([*command, "--in-sample"]) == 0
    assert main(["rerank", *command[1:], f"--output={tmp_path / 'run.trec'}"]) == 0
    assert f"was trained on {len(trained)} of these 12 queries, so" in caplog.text
    load_model(run / "best", interpolate=False).save(tmp_path / "copy")
    assert shared_queries(lists, tmp_path / "copy") == trained, "a copy knows it, too"
    assert main(["add", "--lists", str(tmp_path / "other" / "lists"), "--model", str(run / "best")]) == 0
    assert "x" in Lists.open(tmp_path / "lists").store.column_names
    further = tmp_path / "runs" / "further"  # what starts from a model has its memory
    swap = {words[1]: f"--data.train={tmp_path / 'other' / 'lists'}", words[3]: f"--output={further}"}
    swap[words[4]] = f"--model.name={run / 'best'}"
    train([*(swap.get(word, word) for word in words), "--epochs=1"])
    assert shared_queries(lists, further / "best") == trained
    assert shared_queries(other, further / "best")


def test_shared_queries_compares_texts(tmp_path: Path) -> None:
    frame = make_lists(tmp_path).to_dataframe()
    one = Lists.from_dataframe(frame)
    frame["query_id"] = "n" + frame["query_id"]
    frame["query"] = frame["query"].str.upper() + "  "
    (tmp_path / "m").mkdir()
    write_json(tmp_path / "m" / "rerank.json", remember(one.select(np.arange(5))))
    assert shared_queries(Lists.from_dataframe(frame), tmp_path / "m") == ["n" + id for id in one.query_ids[:5]]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "nowhere"], "nowhere"),
        (["--model", "{model}", "--name", "bm25"], "has a column bm25 already, made from something else"),
        (["--model", "{model}", "--name", "a/b"], "letters, digits"),
        (["--model", "{lists}"], "no such model|not a model folder"),
    ],
)
def test_add_raises_when_it_cannot_score(
    cross_encoder: Path, tmp_path: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    make_lists(tmp_path)
    words = [word.format(model=cross_encoder, lists=tmp_path / "lists") for word in words]
    assert main(["add", "--lists", str(tmp_path / "lists"), *words]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line), line


def test_add_model_writes_the_same_scores_with_two_processes(cross_encoder: Path, tmp_path: Path) -> None:
    columns = []
    for count in (1, 2):
        folder = make_lists(tmp_path / str(count)).store.folder
        together(count, ["add", f"--lists={folder}", f"--model={cross_encoder}", "--precision=fp32"])
        columns.append(Lists.open(folder or "").column("x.v1"))
    np.testing.assert_allclose(columns[0], columns[1], atol=1e-5)  # other batch mates
