"""What is computed, to a tolerance that rounding stays below: who changes it raises a ``revision``.

Results of before would count as those of now otherwise: an id has the revisions of the classes in it, and nothing else
of our code. The numbers are no truth, only what was computed when they were written here. Where one has to change,
raise ``revision`` of the class that computes something else (``TRAINING`` in ``rerank/training/ids.py`` for the loops),
and write the new number here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from rerank import losses
from rerank.features.letor import LetorData
from rerank.features.normalise import QueryZScore
from rerank.lists.data import ListsData
from rerank.losses import ListNet, SmoothINDCG
from rerank.losses.base import Loss
from rerank.models.base import Model
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.vectors.attention import SelfAttention
from rerank.models.vectors.lightgbm import LightGBM
from rerank.models.vectors.mlp import MLP
from rerank.models.vectors.xgboost import XGBoost
from rerank.training.config import Optimization, TrainConfig
from rerank.training.fit import fit
from tests.builders import make_lists, write_folds

RAISE = "something else is computed than before: raise `revision` of the class that does, then change the number here"

SCORES = [[0.3, -1.2, 0.8, 0.0, 2.1, -0.4], [1.0, 0.2, -0.3, 0.5, 0.0, 0.0]]
LABELS = [[2, 0, 1, 0, 0, 1], [0, 1, 0, 3, 0, 0]]
LENGTHS = [6, 4]

LOSSES = {
    "ApproxAP": 0.4147819462,
    "ApproxMRR": 0.5695247923,
    "ApproxNDCG": 0.3916992084,
    "ApproxP": 0.75,
    "BCE": 0.785014126,
    "DirectMetric": 0.5100356774,
    "FastSoftSortNDCG": 0.4156993889,
    "KLDivergence": 0.7932417071,
    "LambdaLoss": 11.28350705,
    "ListAP": 0.4500675805,
    "ListMLE": 6.366391825,
    "ListNet": 1.871426637,
    "MSE": 1.8925,
    "MarginMSE": 4.052666667,
    "NeuralNDCG": 0.341488836,
    "OptimalTransportNDCG": 0.3277043186,
    "PairwiseHinge": 1.056363636,
    "PairwiseSoftmax": 0.4911158358,
    "RMSE": 2.355773789,
    "RankNet": 0.8084734158,
    "SmoothIAP": 0.5140773457,
    "SmoothINDCG": 0.5955400806,
    "SmoothIP": 0.7464660107,
    "SoftSortNDCG": 0.3695205057,
    "SoftmaxCE": 1.894264028,
    "TwinSigmoidAP": 0.4138888889,
    "TwinSigmoidNDCG": 0.3731088516,
    "TwinSigmoidNERR": 0.5473017526,
    "TwinSigmoidP": 0.75,
    "WassRank": 68.83926173,
}
"""Each loss on these two lists."""

TRAININGS = {
    "hf": (0.49331, 0.34831),
    "cls": (0.47139, 0.31610),
    "start": (0.53569, 0.25431),
    "mlp": (0.49250, 0.67222),
    "attention": (2.18176, 0.81292),
    "lightgbm": (0.66667, 0.81194),
    "lightgbm by loss": (2.41267, 0.80241),
    "xgboost": (0.66571, 0.79814),
}
"""The last loss of a short training (nDCG of the training lists without one), and nDCG of validation."""


@pytest.mark.parametrize("name", sorted(losses.load_all()))
def test_a_loss_is_what_it_was(name: str) -> None:
    make = losses.load_all()[name]
    loss: Loss = make("nDCG@3", losses.ApproxNDCG().relaxation) if name == "DirectMetric" else make()  # type: ignore[call-arg]
    scores, labels = torch.tensor(SCORES, dtype=torch.float64), torch.tensor(LABELS, dtype=torch.float64)
    mask = torch.arange(scores.shape[1]) < torch.tensor(LENGTHS)[:, None]
    value = float(loss(scores, labels, mask, seeds=torch.tensor([1, 2])))
    assert name in LOSSES, f"write {name!r}: {value!r} into LOSSES"
    assert value == pytest.approx(LOSSES[name], rel=1e-6), RAISE


def trained(name: str, folder: Path, tiny_model: Path) -> tuple[float, float]:
    models: dict[str, tuple[Model, Loss | None]] = {}
    if name in ("hf", "cls", "start"):
        make_lists(folder)
        data: Any = ListsData(str(folder / "lists"), validation_share=0.3)
        options: dict[str, Any] = {"start": "bm25"} if name == "start" else {"head": name}
        model = CrossEncoder(str(tiny_model), query_length=8, document_length=24, **options)
        models[name] = model, SmoothINDCG()
    else:
        data = LetorData(str(write_folds(folder / "made")), 1)
        models["mlp"] = MLP(hidden=[4], batch_norm="before", normalise=[QueryZScore()]), SmoothINDCG()
        models["attention"] = SelfAttention(8, 8, dropout=0.0), ListNet()
        models["lightgbm"] = LightGBM(trees=5, min_data_in_leaf=2), None
        models["lightgbm by loss"] = LightGBM(trees=5, min_data_in_leaf=2), ListNet()
        models["xgboost"] = XGBoost(trees=5), None
    model_of, loss = models[name]
    config = TrainConfig(
        data=data,
        model=model_of,
        loss=loss,
        optimization=Optimization(encoder_lr=1e-3, head_lr=1e-2),
        epochs=3,
        batch_size=4,
        precision="fp32",
        monitor="nDCG",
        test=False,
        tracker=[],
    )
    training = fit(config, folder / "run")
    lines = [json.loads(line) for line in (training.folder / "metrics.jsonl").read_text().splitlines()]
    losses_of = [line.get("loss", line.get("train", {}).get("nDCG")) for line in lines]
    values = [value for value in losses_of if value is not None]
    return values[-1], training.measures["validation"]["nDCG"]


@pytest.mark.parametrize("name", ["hf", "cls", "start", "mlp", "attention", "lightgbm", "lightgbm by loss", "xgboost"])
def test_a_training_is_what_it_was(
    name: str, tmp_path: Path, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RERANK_HOME", str(tmp_path / "home"))
    found = trained(name, tmp_path, tiny_model)
    assert name in TRAININGS, f"write {name!r}: {found!r} into TRAININGS"
    assert found == pytest.approx(TRAININGS[name], rel=2e-3), RAISE
