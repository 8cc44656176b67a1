"""Training a cross-encoder that starts where the first stage is: its gradients, its runs, what it leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists import Lists
from rerank.losses import DirectMetric
from rerank.models.scorer import score_lists
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.relaxations import SmoothI
from rerank.retrieval import read_run
from tests.builders import make_lists, train
from tests.evaluation.scored import evaluate
from tests.training.helpers import gradients

LENGTHS: dict[str, Any] = {"query_length": 8, "document_length": 24}
LOSS = DirectMetric("nDCG@10", SmoothI())


@pytest.fixture(scope="module")
def lists(tmp_path_factory: pytest.TempPathFactory) -> Lists:
    frame = make_lists(tmp_path_factory.mktemp("start"), [60, 1, 2, 40, 57, 3]).to_dataframe()
    frame["other"] = np.random.default_rng(0).normal(size=len(frame)).astype(np.float32)
    return Lists.from_dataframe(frame, name="start")


def test_metric_has_a_gradient_before_the_first_step(tiny_model: Path, lists: Lists) -> None:
    """Scores are spread from the start, so that head and weight have a gradient."""
    model = CrossEncoder(str(tiny_model), residual_columns="bm25", **LENGTHS)
    found: dict[str, Tensor] = gradients(model, lists, LOSS)[1]
    assert found["network.classifier.weight"].norm() > 1e-4
    assert found["residual.weights"].norm() > 1e-4


@pytest.fixture
def words(tmp_path: Path, tiny_model: Path) -> list[str]:
    make_lists(tmp_path)
    other = make_lists(tmp_path / "made", seed=4).to_dataframe()
    Lists.from_dataframe(other.assign(query_id="t" + other["query_id"])).save(tmp_path / "test" / "lists")
    found = ["--data=ListsData", f"--data.train={tmp_path / 'lists'}", "--data.validation_fraction=0.2", "--epochs=2"]
    found += ["--model=CrossEncoder", f"--model.name={tiny_model}", "--model.query_length=8", "--tracker=[]"]
    found += ["--model.document_length=24", "--model.residual_columns=bm25", "--loss=SmoothINDCG", "--batch_size=3"]
    return [*found, "--precision=fp32", "--monitor=nDCG", "--optimization.encoder_lr=1e-3", "--checkpoint_every=1"]


def test_run_of_a_residual_model_is_complete(words: list[str], tmp_path: Path) -> None:
    run, test = tmp_path / "run", tmp_path / "test" / "lists"
    train([*words, f"--data.test={test}", f"--output={run}"])
    contract = json.loads((run / "best" / "rerank.json").read_text())
    assert contract["residual"]["columns"] == ["bm25"]
    text = CrossEncoder(str(run / "best"), residual_columns=[])
    other = Lists.open(test)
    assert other.qrels is not None
    whole = CrossEncoder.load(run / "best")
    scores = score_lists(whole, whole.inputs(other), other, precision="fp32")
    by_text = score_lists(text, text.inputs(other), other, precision="fp32")
    with torch.no_grad():
        first_stage = whole.residual(torch.from_numpy(whole.residual.of_lists(other)[other.row_numbers])).numpy()
    np.testing.assert_allclose(scores - first_stage, by_text, atol=1e-5)

    card = (run / "best" / "README.md").read_text()
    assert "model-index" not in card, "the hub's library loads the text part, which was not measured"
    assert "adds z-scores of bm25 to this score" in card
    out = tmp_path / "x.trec"
    assert main(["rerank", "--model", str(run / "best"), "--lists", str(test), "--output", str(out), "--depth=7"]) == 0
    written, cut = read_run(out), other.top(7)
    expected = cut.run(score_lists(whole, whole.inputs(cut), cut))
    assert {q: [d.id for d in r] for q, r in written.items()} == {q: [d.id for d in r] for q, r in expected.items()}
    assert 0 < evaluate(written, other.qrels, "nDCG").mean["nDCG"] <= 1
    assert main(["add", "--lists", str(test), "--model", str(run / "best"), "--name=ours", "--in-sample"]) == 0
    np.testing.assert_allclose(Lists.open(test).column("ours"), whole.predict(other), atol=1e-2)


def test_train_raises_when_test_lists_lack_the_column(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "test" / "lists" / "columns" / "bm25.arrow").unlink()
    with pytest.raises(UserError, match="has no column 'bm25'"):
        train([*words, f"--data.test={tmp_path / 'test' / 'lists'}", f"--output={tmp_path / 'run'}"])
    assert not (tmp_path / "run").exists()
