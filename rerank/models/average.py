"""Averages of weights (Wortsman et al., "Model soups", 2022)."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from rerank.errors import UserError
from rerank.models.contract import AFTERWARDS, CARD, INTERPOLATION, TRAINED_ON, read_contract, write_contract
from rerank.storage.files import atomic_folder

IGNORED = (INTERPOLATION, "name", *AFTERWARDS)
"""Keys of ``rerank.json`` in which averaged models may differ."""


def average_weights(models: Sequence[str | Path], output: str | Path, weights: Sequence[float] | None = None) -> None:
    r"""Average the weights of several training runs of one model: :math:`\theta = \sum_m w_m \theta_m`.

    The average is as fast as one model. It has no calibration, and does not interpolate with other columns.

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
    kept = {key: value for key, value in contracts[0].items() if key not in (INTERPOLATION, *AFTERWARDS)}
    if seen := "".join(contract.get(TRAINED_ON, "") for contract in contracts):
        kept[TRAINED_ON] = seen
    with atomic_folder(output) as folder:
        shutil.copytree(folders[0], folder, ignore=shutil.ignore_patterns(CARD, ".*"), dirs_exist_ok=True)
        for path in folder.rglob("*.safetensors"):
            states = [load_file(source / path.relative_to(folder)) for source in folders]
            average = dict(states[0])
            for name, tensor in average.items():
                if tensor.is_floating_point():
                    terms = [share * state[name].double() for share, state in zip(shares, states, strict=True)]
                    average[name] = torch.stack(terms).sum(0).to(tensor.dtype)
            save_file(average, path, metadata={"format": "pt"})
        write_contract(folder, kept)
