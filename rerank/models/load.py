"""Loading a trained model of any kind.

No file decides what is imported: classes are found in a table of our own.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rerank.errors import UserError, nearest
from rerank.evaluation.calibration import Calibration
from rerank.models.base import Model
from rerank.models.contract import CALIBRATION, CONTRACT, FUSION, LAYOUT, MIX, TRAINED_ON, read_contract

MODELS = {
    "CrossEncoder": "rerank.models.text.cross_encoder",
    "Decoder": "rerank.models.text.decoder",
    "MLP": "rerank.models.vectors.mlp",
    "ListMLP": "rerank.models.vectors.mlp",
    "SelfAttention": "rerank.models.vectors.attention",
    "LightGBM": "rerank.models.vectors.lightgbm",
    "XGBoost": "rerank.models.vectors.xgboost",
}
"""Where each model is defined; imported at its first use."""

NORMALISERS = dict.fromkeys(("QueryZScore", "Standardise", "SignedLog1p", "ShiftedLog"), "rerank.features.normalise")
"""Where each normaliser is defined."""


def load_model(folder: str | Path, mix: bool = True) -> Model:
    """Load a trained model of any kind.

    A folder without ``rerank.json``, or a name on the hub, is a cross-encoder, if it is neither an adapter nor one of
    the decoders whose prompts are known (Qwen3-Reranker, mxbai-rerank-v2, bge-reranker-v2-gemma).

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists = rerank.Lists.from_dataframe(table)
    >>> from tempfile import mkdtemp
    >>> model = rerank.MLP(hidden=[4], columns=["bm25"])
    >>> run = rerank.train(model, lists, rerank.LambdaLoss(), validation=None, output=mkdtemp() + "/x")
    >>> rerank.load_model(run.folder / "best").predict(lists).shape
    (4,)

    Args:
        folder: what training left, such as ``runs/x/best``, or a ranker.
        mix: whether a ranker mixes its model's scores with columns, as it was measured
            (:class:`rerank.models.mixed.Mixed`), or is its model alone.

    Raises:
        UserError: no such model, one that is damaged, or one of an unknown class.
    """
    contract = read_contract(Path(folder))
    mixes = mix and MIX in contract
    model: Model = import_module("rerank.models.mixed").Mixed.load(Path(folder)) if mixes else _alone(folder, contract)
    if CALIBRATION in contract and mixes == (MIX in contract):  # of what it was fitted on
        model.calibration = Calibration.of(contract[CALIBRATION])
    return model


load = load_model
"""Its name in :mod:`rerank`."""


def _alone(folder: str | Path, contract: Mapping[str, Any]) -> Model:
    if contract.get("class") == FUSION:
        raise UserError(f"{folder}: mixes columns alone, there is no model in it")
    if not (name := contract.get("class")):  # nobody saved it with ours: adapters and known rerankers are decoders'
        name = "Decoder" if import_module(MODELS["Decoder"]).Decoder.knows(str(folder)) else "CrossEncoder"
    if "." in name:  # a user's
        kind = name.rpartition(".")[2]
        raise UserError(
            f"{folder}/{CONTRACT}: class: {name} is not one of ours, and no file makes us import code; import it "
            f"yourself, then {kind}.load({str(folder)!r})"
        )
    if name not in MODELS:
        raise UserError(f"{folder}/{CONTRACT}: class: there is no model {name!r}{nearest(name, MODELS)}")
    kind_of_model: type[Model] = getattr(import_module(MODELS[name]), name)
    model = kind_of_model.load(Path(folder))
    model.remembered = {key: contract[key] for key in (TRAINED_ON, LAYOUT) if key in contract}
    return model


def copy_model(model: str | Path, folder: Path) -> None:
    """Put a model's files into an empty folder: a folder's as they are, a published model's as ours are saved."""
    if (Path(model) / CONTRACT).is_file():
        shutil.copytree(model, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
    else:
        load_model(model).save(folder)


def find_normaliser(path: str, base: type) -> Any:
    """The class of a normaliser that a contract names; a user's only where the user has imported it."""
    if path in NORMALISERS:
        found: Any = getattr(import_module(NORMALISERS[path]), path)
    else:
        module, _, kind = path.rpartition(".")
        found = vars(sys.modules.get(module, sys)).get(kind)  # a module's own __getattr__ may import more
    if not (isinstance(found, type) and issubclass(found, base)):
        raise UserError(f"normalise: {path} is not one of ours, nor one that you have imported")
    return found
