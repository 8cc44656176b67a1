"""Training, scoring and comparing from Python, as the documentation shows it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

import rerank
from rerank.commands.cli import main
from rerank.storage.files import exclusive_lock
from tests.builders import make_lists, make_lists_with_added
from tests.training.helpers import by_two, metrics


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> rerank.Lists:
    """Lists in memory, from a data frame; clicks are a column."""
    frame = make_lists(tmp_path_factory.mktemp("lists"), [6] * 8).to_dataframe()
    return rerank.Lists.from_dataframe(frame.assign(clicks=np.random.default_rng(0).random(len(frame))))


@pytest.fixture(scope="module")
def trained(tiny_model: Path, lists: rerank.Lists, tmp_path_factory: pytest.TempPathFactory) -> rerank.Training:
    model = rerank.CrossEncoder(str(tiny_model), query_length=8, document_length=24, residual_columns="bm25")
    output = tmp_path_factory.mktemp("runs") / "x"
    return rerank.train(model, lists, rerank.SmoothINDCG(), validation=0.25, output=output, batch_size=2, seed=7)


def test_evaluate_of_saved_folder_equals_lists(
    lists: rerank.Lists, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lists.save(tmp_path / "lists").store.folder
    in_memory = rerank.evaluate(lists, ["clicks"], "nDCG@10", baseline="bm25")
    saved = rerank.evaluate(folder, ["clicks"], "nDCG@10", baseline="bm25")
    assert in_memory.to_dataframe().equals(saved.to_dataframe())
    assert main(["evaluate", f"--qrels={folder}", "--runs", "clicks", "--measures=nDCG@10", "--baseline=bm25"]) == 0
    assert capsys.readouterr().out.split()[:2] == str(in_memory).split()[:2]


def test_configuration_repeats_training_exactly(trained: rerank.Training, tmp_path: Path) -> None:
    assert yaml.safe_load(trained.config)["seed"] == 7
    (tmp_path / "config.yaml").write_text(trained.config)
    assert main(["train", "--config", str(tmp_path / "config.yaml"), "--output", str(tmp_path / "again")]) == 0
    for name in ("fingerprint.json", "results.json", "best/model.safetensors", "best/rerank.json"):
        assert (trained.folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    assert metrics(tmp_path / "again") == metrics(trained.folder)


def test_train_reuses_its_run_and_refuses_another(
    trained: rerank.Training, tiny_model: Path, lists: rerank.Lists
) -> None:
    model = rerank.CrossEncoder(str(tiny_model), query_length=8, document_length=24, residual_columns="bm25")
    told = {"validation": 0.25, "output": trained.folder, "batch_size": 2, "seed": 7}
    assert rerank.train(model, lists, rerank.SmoothINDCG(), **told).results == trained.results
    with pytest.raises(rerank.UserError, match="trained on other lists"):
        rerank.train(model, lists.select([0, 1, 2]), rerank.SmoothINDCG(), **told)


def test_two_processes_train_on_lists_in_memory(lists: rerank.Lists, tmp_path: Path) -> None:
    def trained(process: int) -> rerank.Results:
        model = rerank.MLP(hidden=[4], columns=["clicks"])
        return rerank.train(model, lists, rerank.ListNet(), validation=0.25, output=tmp_path / "x").results

    one, two = by_two(tmp_path, trained)
    assert one == two and len(rerank.Lists.open(tmp_path / "x" / "lists" / "train")) == len(lists)


def test_train_keeps_the_lists_of_a_run_in_progress(lists: rerank.Lists, tmp_path: Path) -> None:
    place = lists.save(tmp_path / "x" / "lists" / "train").store.folder
    model = rerank.MLP(hidden=[4], columns=["clicks"])
    with exclusive_lock(tmp_path / "x"), ThreadPoolExecutor(1) as pool:
        other = pool.submit(rerank.train, model, lists.select([0, 1]), rerank.ListNet(), output=tmp_path / "x")
        with pytest.raises(rerank.UserError, match="in use by another process"):
            other.result()
    assert len(rerank.Lists.open(place)) == len(lists)


def test_some_queries_of_a_folder_are_trained_with_what_was_added_to_them(tiny_model: Path, tmp_path: Path) -> None:
    whole = make_lists_with_added(tmp_path / "made")
    few, model = whole.select([0, 3]), rerank.CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    run = rerank.train(model, few, rerank.ListNet(), validation=None, output=tmp_path / "x", epochs=1)
    given = rerank.Lists.open(run.folder / "lists" / "train")
    assert given.query_ids == few.query_ids and given.size == few.size
    assert given.with_added().size == few.with_added().size > few.size


def test_teacher_column_trains_unjudged_queries(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"query_id": np.repeat(np.arange(10), 4), "doc_id": np.tile(np.arange(4), 10)})
    frame = frame.assign(teacher=rng.normal(size=40), x=rng.normal(size=40))
    frame["grade"] = np.where(frame["query_id"] < 2, frame["doc_id"] % 2, np.nan)
    loss = rerank.Term(rerank.MSE(), target="teacher")
    model = rerank.MLP(hidden=[4], columns=["x"])
    run = rerank.train(model, rerank.Lists.from_dataframe(frame), loss, validation=None, output=tmp_path / "run")
    assert sum(line["lists"] for line in metrics(run.folder) if "lists" in line) == 10


def test_threads_get_equal_scores(trained: rerank.Training) -> None:
    """A model in training mode, too: dropout must not come back while another thread scores."""
    pairs = [("wing flow", f"wing heat jet {i}") for i in range(24)]
    text = rerank.CrossEncoder(str(trained.folder / "best"), residual_columns=[], dropout=0.5)
    text.train()
    alone = text.predict(pairs)
    with ThreadPoolExecutor(6) as pool:
        for scores in pool.map(text.predict, [pairs] * 18):
            np.testing.assert_array_equal(scores, alone)
    assert text.training, "it is as it was"
