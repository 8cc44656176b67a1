"""Averages of weights (Wortsman et al., "Model soups", 2022)."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor

from rerank.errors import UserError
from rerank.models.contract import AFTERWARDS, CARD, CONTRACT, INTERPOLATION, TRAINED_ON, read_contract, write_contract
from rerank.models.weights import write_weights
from rerank.storage.files import atomic_folder

IGNORED = (INTERPOLATION, "name", *AFTERWARDS)
"""Keys of ``rerank.json`` in which averaged models may differ."""


def average_weights(models: Sequence[str | Path], output: str | Path, weights: Sequence[float] | None = None) -> None:
    r"""Average the weights of several training runs of one model: :math:`\theta = \sum_m w_m \theta_m`.

    The average is as fast as one model. It has no calibration, and does not interpolate with other columns.

    >>> import rerank
    >>> table = {"query_id": [1, 1, 2, 2], "doc_id": [1, 2, 1, 2], "grade": [1, 0, 0, 1], "bm25": [3, 2, 2, 1]}
    >>> lists, model = rerank.Lists.from_dataframe(table), rerank.MLP(hidden=[4], columns=["bm25"])
    >>> from tempfile import mkdtemp
    >>> run = rerank.train(model, lists, rerank.LambdaLoss(), validation=None, output=mkdtemp() + "/x")
    >>> average = mkdtemp() + "/average"
    >>> rerank.average_weights([run.folder / "best", run.folder / "best"], average)
    >>> bool((rerank.load(average).predict(lists) == run.model.predict(lists)).all())
    True

    Args:
        models: folders of trained models, such as the ``best/`` of several seeds.
        output: folder to make.
        weights: weight of each model, in sum 1; defaults to equal weights.

    Raises:
        UserError: models that differ in more than their weights, adapters, and trees.
    """
    folders, shares = [Path(model) for model in models], list(weights or [1 / max(len(models), 1)] * len(models))
    if len(folders) < 2 or len(shares) != len(folders) or not math.isclose(sum(shares), 1, abs_tol=1e-6):
        raise UserError("weights: expected two or more models, and a weight for each, in sum 1")
    contracts = [read_contract(folder) for folder in folders]
    for folder, contract in zip(folders, contracts, strict=True):
        keys = (contract.keys() | contracts[0].keys()) - {*IGNORED}
        if other := sorted(key for key in keys if contract.get(key) != contracts[0].get(key)):
            raise UserError(f"{folder}: {other[0]} differs from {folders[0]}; average training runs of one model")
        if "base" in contract or not any(folder.glob("*.safetensors")):
            raise UserError(f"{folder}: has no weights to average; merge() adapters and save() the model first")
    first = _state(folders[0])
    total = {name: shares[0] * tensor.double() for name, tensor in first.items() if tensor.is_floating_point()}
    for folder, share in zip(folders[1:], shares[1:], strict=True):
        state = _state(folder)
        if {name: tensor.shape for name, tensor in state.items()} != {n: tensor.shape for n, tensor in first.items()}:
            raise UserError(f"{folder}: has weights of other shapes than {folders[0]}")
        for name in total:
            total[name] += share * state[name].double()
    kept = {key: value for key, value in contracts[0].items() if key not in (INTERPOLATION, *AFTERWARDS)}
    if seen := "".join(contract.get(TRAINED_ON, "") for contract in contracts):
        kept[TRAINED_ON] = seen
    with atomic_folder(output) as folder:
        others = shutil.ignore_patterns("*.safetensors*", CONTRACT, CARD, ".*")
        shutil.copytree(folders[0], folder, ignore=others, dirs_exist_ok=True)
        write_weights(folder, first | {name: tensor.to(first[name].dtype) for name, tensor in total.items()})
        write_contract(folder, kept)


def _state(folder: Path) -> dict[str, Tensor]:
    return {name: tensor for path in sorted(folder.glob("*.safetensors")) for name, tensor in load_file(path).items()}
