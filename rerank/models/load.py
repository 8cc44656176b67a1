"""Load a trained model of any kind.

No file decides what is imported: classes are found in a table of our own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rerank.errors import UserError
from rerank.evaluation.calibration import Calibration
from rerank.models.base import Model
from rerank.models.folder import (
    CALIBRATION,
    CONTRACT,
    FUSION,
    INTERPOLATION,
    TRAINED_ON,
    read_contract,
)

MODELS = {
    "CrossEncoder": "rerank.models.text.cross_encoder",
    "Decoder": "rerank.models.text.decoder",
    "MLP": "rerank.models.vectors.mlp",
    "ListMLP": "rerank.models.vectors.mlp",
    "SelfAttention": "rerank.models.vectors.attention",
    "LightGBM": "rerank.models.vectors.trees",
    "XGBoost": "rerank.models.vectors.trees",
}
"""Module of each model; imported at its first use."""


def load_model(folder: str | Path, interpolate: bool = True, instruction: str | None = None) -> Model:
    """Load a trained model of any kind.

    A folder without ``rerank.json``, or a name on the hub, is a reranker as sentence-transformers or Transformers saves
    it: a :class:`rerank.Decoder` if its architecture is one or it is an adapter, else a :class:`rerank.CrossEncoder`.

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
        interpolate: score with the interpolation that a ranker was measured with
            (:class:`rerank.models.interpolated.Interpolated`), or is its model alone.
        instruction: instruction for queries without one of their own, in place of the model's default.

    Raises:
        UserError: no such model, one that is damaged or of an unknown class, or an instruction without a place.
    """
    from rerank.models.interpolated import Interpolated

    contract = read_contract(Path(folder))
    interpolates = interpolate and INTERPOLATION in contract
    if interpolates:
        fusion = contract.get("class") == FUSION and not instruction
        model: Model = Interpolated(
            None if fusion else _alone(folder, contract, instruction), **contract[INTERPOLATION]
        )
    else:
        model = _alone(folder, contract, instruction)
    if CALIBRATION in contract and interpolates == (INTERPOLATION in contract):  # of what it was fitted on
        model.calibration = Calibration(**contract[CALIBRATION])
    return model


load = load_model
"""Its name in :mod:`rerank`."""


def _alone(folder: str | Path, contract: Mapping[str, Any], instruction: str | None = None) -> Model:
    if contract.get("class") == FUSION:
        raise UserError(f"{folder}: is a fusion of columns without a model")
    if not (name := contract.get("class")):
        name = "Decoder" if import_module(MODELS["Decoder"]).Decoder.knows(str(folder)) else "CrossEncoder"
    if name not in MODELS:
        raise UserError(
            f"{folder}/{CONTRACT}: class: {name} is not one of ours, and no file makes us import code; import it "
            f"yourself, then {name.rpartition('.')[2]}.load({str(folder)!r})"
        )
    options = {"instruction": instruction} if instruction and name == "Decoder" else {}
    model: Model = getattr(import_module(MODELS[name]), name).load(Path(folder), **options)
    if instruction and getattr(model, "prompt", None) is None:
        raise UserError(f"instruction: {folder} has no place for one, since it reads no template; leave it out")
    model.remembered = {key: contract[key] for key in (TRAINED_ON,) if key in contract}
    return model
