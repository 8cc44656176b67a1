"""Training and reranking end with the first stage beside the model; features have none."""

from __future__ import annotations

import logging
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from rerank.commands.cli import main
from rerank.evaluation.beside import Beside
from rerank.evaluation.measures import evaluate
from rerank.lists.data import ListsData
from rerank.losses import ListNet
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.mlp import MLP
from rerank.retrieval.runs import read_run
from rerank.storage.files import read_json
from rerank.training.config import TrainConfig
from rerank.training.fit import Training
from rerank.training.validate import start_of
from tests.builders import make_lists


def test_the_last_line_of_reranking(tmp_path: Path, tiny_model: Path, caplog: pytest.LogCaptureFixture) -> None:
    lists, output = make_lists(tmp_path), tmp_path / "run.trec"
    CrossEncoder(str(tiny_model), query_length=8, document_length=24).save(tmp_path / "best")
    words = ["rerank", f"--model={tmp_path / 'best'}", f"--lists={lists.store.folder}", f"--output={output}"]
    with caplog.at_level(logging.INFO, "rerank"):
        assert main(words) == 0
    assert lists.qrels is not None
    values = [evaluate(run, lists.qrels, "nDCG@10").mean["nDCG@10"] for run in (read_run(output), lists.run())]
    line = f"nDCG@10 {values[0]:.4f}, first stage bm25 {values[1]:.4f}, difference {values[0] - values[1]:+.4f} ["
    assert any(line in message for message in caplog.messages)


def test_trees_end_with_the_first_stage_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The last line of all, and the start that tables show: trees begin with nothing, so it is the first stage."""
    pytest.importorskip("lightgbm")
    lists = make_lists(tmp_path)
    lists.store.add_column("dense", np.random.default_rng(0).normal(size=lists.size).astype(np.float32))
    words = ["train", "--data=FoldsData", f"--data.lists={lists.store.folder}", "--data.fold=1", "--data.folds=3"]
    words += ["--model=LightGBM", "--model.columns=[dense]", "--model.trees=3", "--model.min_data_in_leaf=1"]
    with caplog.at_level(logging.INFO, "rerank"):
        assert main([*words, "--monitor=nDCG@10", "--tracker=[]", f"--output={tmp_path / 'run'}"]) == 0
    found = read_json(tmp_path / "run" / "measures.json")
    expected = [Beside(**found[key]["test"]) for key in ("first_stage", "ranker") if key in found]
    assert caplog.messages[-1].endswith(str(expected[-1])) and "first stage bm25" in caplog.messages[-1]
    start = start_of(found)
    assert start is not None and start == Beside(**found["first_stage"]["validation"])


@pytest.mark.parametrize(
    ("interval", "texts", "hint"),
    [((-0.2, -0.1), True, True), ((-0.2, 0.1), True, False), (None, True, False), ((-0.2, -0.1), False, False)],
)
def test_a_model_of_texts_that_is_worse_comes_with_something_else_to_try(
    interval: tuple[float, float] | None, texts: bool, hint: bool, tiny_model: Path
) -> None:
    model = CrossEncoder(str(tiny_model), query_length=8, document_length=24) if texts else MLP(columns=["bm25"])
    beside = {"test": asdict(Beside("nDCG@10", 0.5, 0.65, -0.15, interval, 30))}
    found = Training(Path("run"), TrainConfig(ListsData("lists"), model, ListNet()), "id", {}, beside)
    assert ("`rerank auto … --epochs 0` tries fusion, untrained" in str(found)) == hint
