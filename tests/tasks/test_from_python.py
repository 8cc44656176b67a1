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
from rerank.settings.configs import read_config
from rerank.storage.files import read_json
from rerank.storage.fingerprint import fingerprint
from tests.builders import make_lists, make_lists_with_added
from tests.training.helpers import metrics


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> rerank.Lists:
    """Lists in memory, from a data frame; clicks are a column."""
    frame = make_lists(tmp_path_factory.mktemp("lists"), [6] * 8).to_dataframe()
    return rerank.Lists.from_dataframe(frame.assign(clicks=np.random.default_rng(0).random(len(frame))))


@pytest.fixture(scope="module")
def trained(tiny_model: Path, lists: rerank.Lists, tmp_path_factory: pytest.TempPathFactory) -> rerank.Training:
    model = rerank.CrossEncoder(str(tiny_model), query_length=8, document_length=24, start="bm25")
    output = tmp_path_factory.mktemp("runs") / "x"
    return rerank.train(model, lists, rerank.SmoothINDCG(), validation=0.25, output=output, batch_size=2, seed=7)


def test_a_training_says_what_it_found(trained: rerank.Training, lists: rerank.Lists) -> None:
    assert trained.fingerprint == fingerprint(read_json(trained.folder / "fingerprint.json"))
    assert isinstance(trained.history, pd.DataFrame)
    assert trained.history["loss"].notna().sum() == trained.history["step"].max()
    assert trained.results.validation is not None and trained.model is trained.model
    scores = trained.model.predict(lists)
    assert scores.dtype == np.float32 and scores.shape == (lists.size,)
    table = rerank.evaluate(lists, {"ours": scores}, measures="nDCG@10 AP", baseline="bm25")
    frame = table.to_dataframe()
    assert list(frame["run"]) == ["bm25", "bm25", "ours", "ours"]
    ours = frame[(frame["run"] == "ours") & (frame["measure"] == "AP")].iloc[0]
    bm25 = frame[(frame["run"] == "bm25") & (frame["measure"] == "AP")].iloc[0]
    assert ours["difference"] == pytest.approx(ours["mean"] - bm25["mean"])
    assert table._repr_html_().count("<table") == 2 and "AP" in str(table)


def test_a_saved_folder_is_evaluated_like_the_lists(
    lists: rerank.Lists, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lists.save(tmp_path / "lists").store.folder
    in_memory = rerank.evaluate(lists, ["clicks"], "nDCG@10", baseline="bm25")
    saved = rerank.evaluate(folder, ["clicks"], "nDCG@10", baseline="bm25")
    assert in_memory.to_dataframe().equals(saved.to_dataframe())
    assert main(["evaluate", f"--qrels={folder}", "--runs", "clicks", "--measures=nDCG@10", "--baseline=bm25"]) == 0
    assert capsys.readouterr().out.split()[:2] == str(in_memory).split()[:2]


def test_its_configuration_repeats_it_bit_for_bit(trained: rerank.Training, tmp_path: Path) -> None:
    assert yaml.safe_load(trained.config)["seed"] == 7
    (tmp_path / "config.yaml").write_text(trained.config)
    assert read_config(trained.config) == read_config(tmp_path / "config.yaml"), "the text serves as well"
    assert main(["train", "--config", str(tmp_path / "config.yaml"), "--output", str(tmp_path / "again")]) == 0
    for name in ("fingerprint.json", "results.json", "best/model.safetensors", "best/rerank.json"):
        assert (trained.folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    assert metrics(tmp_path / "again") == metrics(trained.folder)


def test_the_same_call_finds_the_training_and_another_is_refused(
    trained: rerank.Training, tiny_model: Path, lists: rerank.Lists
) -> None:
    model = rerank.CrossEncoder(str(tiny_model), query_length=8, document_length=24, start="bm25")
    told = {"validation": 0.25, "output": trained.folder, "batch_size": 2, "seed": 7}
    assert rerank.train(model, lists, rerank.SmoothINDCG(), **told).results == trained.results
    with pytest.raises(rerank.UserError, match="trained on other lists"):
        rerank.train(model, lists.select([0, 1, 2]), rerank.SmoothINDCG(), **told)


def test_some_queries_of_a_folder_are_trained_with_what_was_added_to_them(tiny_model: Path, tmp_path: Path) -> None:
    whole = make_lists_with_added(tmp_path / "made")
    few, model = whole.select([0, 3]), rerank.CrossEncoder(str(tiny_model), query_length=8, document_length=24)
    run = rerank.train(model, few, rerank.ListNet(), validation=None, output=tmp_path / "x", epochs=1)
    given = rerank.Lists.open(run.folder / "lists" / "train")
    assert given.query_ids == few.query_ids and given.size == few.size
    assert given.with_added().size == few.with_added().size > few.size


def test_a_teacher_teaches_queries_that_nobody_judged_next_to_those_that_somebody_did(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"query_id": np.repeat(np.arange(10), 4), "doc_id": np.tile(np.arange(4), 10)})
    frame = frame.assign(teacher=rng.normal(size=40), x=rng.normal(size=40))
    frame["grade"] = np.where(frame["query_id"] < 2, frame["doc_id"] % 2, np.nan)
    loss = rerank.Term(rerank.MSE(), target="teacher")
    model = rerank.MLP(hidden=[4], columns=["x"])
    run = rerank.train(model, rerank.Lists.from_dataframe(frame), loss, validation=None, output=tmp_path / "run")
    assert sum(line["lists"] for line in metrics(run.folder) if "lists" in line) == 10


def test_feature_models_predict_arrays_in_groups(lists: rerank.Lists) -> None:
    network = rerank.MLP(hidden=[4], columns=["bm25", "clicks"], normalise=[rerank.QueryZScore()])
    with pytest.raises(rerank.UserError, match="MLP is not trained; train it first"):
        network.predict(lists)
    network.prepare(lists, 42)
    features = lists.matrix(["bm25", "clicks"])
    found = network.predict(features, groups=lists.lengths)
    np.testing.assert_allclose(found, network.predict(lists), rtol=1e-6)


def test_a_model_scores_in_several_threads_as_in_one(trained: rerank.Training) -> None:
    """A model in training mode, too: dropout must not come back while another thread scores."""
    pairs = [("wing flow", f"wing heat jet {i}") for i in range(24)]
    text = rerank.CrossEncoder(str(trained.folder / "best"), start=[], dropout=0.5)
    text.train()
    alone = text.predict(pairs)
    with ThreadPoolExecutor(6) as pool:
        for scores in pool.map(text.predict, [pairs] * 18):
            np.testing.assert_array_equal(scores, alone)
    assert text.training, "it is as it was"
