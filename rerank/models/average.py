r"""The average of models of one architecture: one model, whose weights are those of the others, averaged.

.. math:: \theta = \sum_m w_m \theta_m, \qquad \sum_m w_m = 1

Where the models started from the same weights, the average is often better than each of them (Wortsman et al., "Model
soups", 2022; with the start among them "Robust fine-tuning of zero-shot models", 2022), and it costs no more than one.
Low-rank adapters add :math:`B_m A_m` to a weight; their sum has the columns of all :math:`w_m B_m` beside each other,
and the rows of all :math:`A_m`, which is exact.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rerank.errors import UserError
from rerank.models.contract import AFTERWARDS, CARD, CONTRACT, FILES, MIX, START, checked_contract, write_contract
from rerank.models.weights import check_safetensors, find_model, write_weights
from rerank.storage.files import atomic_folder

if TYPE_CHECKING:
    from torch import Tensor

ADAPTER, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
ROWS, COLUMNS = ".lora_A.", ".lora_B."
"""Parts of the names of an adapter's two matrices."""

EMBEDDING = ".lora_embedding_"
"""In the names of those of a table of embeddings, which look rows up."""

NOT_AVERAGED = ("rank_pattern", "alpha_pattern", "use_rslora", "use_dora", "trainable_token_indices")
"""Settings of peft with which an adapter adds something else than B A, scaled alike in all layers."""


def average_models(
    folders: Sequence[str | Path],
    weights: Sequence[float] | None,
    output: str | Path,
    remembered: Mapping[str, str] | None = None,
) -> None:
    """Write the weighted average of some models of one architecture; everything but weights is the first one's.

    Of rankers that mix, the models are averaged, and the average mixes nothing. ``remembered`` is what its contract
    says of the queries that they were trained on.
    """
    weights = [1 / len(folders)] * len(folders) if weights is None and folders else list(weights or [])
    if len(folders) < 2:
        raise UserError(f"models: expected two or more, not {len(folders)}")
    if len(weights) != len(folders):
        raise UserError(f"weights: expected one for each of the {len(folders)} models, not {len(weights)}")
    if min(weights) < 0 or not math.isclose(sum(weights), 1, abs_tol=1e-6):
        raise UserError(f"weights: expected numbers of at least 0 whose sum is 1, not {', '.join(map(str, weights))}")
    places = [find_averaged(folder) for folder in folders]
    contracts = [checked_contract(place) for place in places]
    check_alike(places, contracts)
    first, others = places[0], {path.name for path in places[0].glob("*.safetensors*")} | {CONTRACT, CARD}
    with atomic_folder(output) as folder:
        for path in first.iterdir():
            if path.is_file() and path.name not in others:
                shutil.copyfile(path, folder / path.name)
        if (first / ADAPTER).is_file():
            _average_adapters(places, weights, folder)
        else:
            write_weights(folder, _averaged(places, weights))
        if contract := next((dict(contract) for contract in contracts if contract), None):
            if START in contract:
                none = {"weights": [0.0] * len(contract[START]["weights"])}  # of a published model
                columns = np.array([of.get(START, none)["weights"] for of in contracts]).T @ np.array(weights)
                contract[START] = contract[START] | {"weights": columns.tolist()}
            kept = {key: value for key, value in contract.items() if key not in (FILES, MIX, *AFTERWARDS)}
            write_contract(folder, kept | dict(remembered or {}))


def find_averaged(model: str | Path) -> Path:
    """The folder of a model whose weights can be averaged."""
    folder = Path(model)
    if (folder / CONTRACT).is_file() and not any(folder.glob("*.safetensors")):
        raise UserError(f"{model}: trees, and columns alone, have no weights to average; `write_ranker` mixes scores")
    return folder if (folder / CONTRACT).is_file() else find_model(str(model))


def check_alike(places: Sequence[Path], contracts: Sequence[Mapping[str, Any]]) -> None:
    """Refuse models that read their inputs in different ways, or whose weights are of other shapes."""
    read = [(place, _reading(contract)) for place, contract in zip(places, contracts, strict=True) if contract]
    for place, own in read:
        first = read[0][1]
        if key := min((key for key in own | first if own.get(key) != first.get(key)), default=None):
            raise UserError(
                f"{place}: {key} is {own.get(key)!r}, not {first.get(key)!r} as in {places[0]}; only models that "
                "differ in nothing but their weights are averaged"
            )
    shapes = [_shapes(place) for place in places]
    for place, own in zip(places, shapes, strict=True):
        if name := min((name for name in own | shapes[0] if own.get(name) != shapes[0].get(name)), default=None):
            raise UserError(
                f"{place}: the weight {name} is {own.get(name, 'missing')}, and in {places[0]} "
                f"{shapes[0].get(name, 'missing')}; models of one architecture are averaged"
            )


def _reading(contract: Mapping[str, Any]) -> dict[str, Any]:
    apart = (FILES, MIX, "name", "elsewhere", *AFTERWARDS)
    reading = {key: value for key, value in contract.items() if key not in apart}
    if START in reading:
        reading[START] = {key: value for key, value in reading[START].items() if key != "weights"}
    return reading


def _shapes(folder: Path) -> dict[str, list[int]]:
    """The shape of every weight; of adapters without their ranks."""
    shapes = {}
    for name, tensor in _slices(folder):
        shape = list(tensor.get_shape())
        shapes[name] = shape[1:] if ROWS in name else shape[:1] if COLUMNS in name else shape
    return shapes


def _slices(folder: Path) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    for path in sorted(folder.glob("*.safetensors")):
        check_safetensors(path)
        with safe_open(str(path), framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no dictionary
                yield name, file.get_slice(name)


def _averaged(places: Sequence[Path], weights: Sequence[float]) -> dict[str, Tensor]:
    """The averages of all weights, float32; one model is in memory, and a tensor of the others."""
    from safetensors import safe_open

    with ExitStack() as opened:
        files: list[dict[str, Any]] = []
        for place in places:
            paths = sorted(place.glob("*.safetensors"))
            each = [opened.enter_context(safe_open(str(path), framework="pt")) for path in paths]
            files.append({name: file for file in each for name in file.keys()})  # noqa: SIM118
        return {name: _mean([file[name].get_tensor(name) for file in files], weights) for name in files[0]}


def _mean(tensors: Sequence[Tensor], weights: Sequence[float]) -> Tensor:
    """A weighted mean, added up in float64; what is no float, such as counts, is the first one's."""
    first = tensors[0]
    if not first.is_floating_point():
        return first
    total = first.double() * weights[0]
    for tensor, weight in zip(tensors[1:], weights[1:], strict=True):
        total += tensor.double() * weight
    return total.float()


def _average_adapters(places: Sequence[Path], weights: Sequence[float], folder: Path) -> None:
    import torch

    settings = [json.loads((place / ADAPTER_CONFIG).read_text(encoding="utf-8")) for place in places]
    for place, own in zip(places, settings, strict=True):
        odd = [name for name in NOT_AVERAGED if own.get(name)]
        odd += ["adapted embeddings" for name, _ in _slices(place) if EMBEDDING in name][:1]
        if odd:
            raise UserError(
                f"{place}: adapters with {', '.join(odd)} are not averaged; their models' scores can be mixed"
            )
    scales = [own["lora_alpha"] / own["r"] for own in settings]
    rank = sum(own["r"] for own in settings)
    adapters = [{name: tensor[:] for name, tensor in _slices(place)} for place in places]
    averaged = {}
    for name in adapters[0]:
        tensors = [adapter[name] for adapter in adapters]
        if ROWS in name:
            averaged[name] = torch.cat([tensor.float() for tensor in tensors])
        elif COLUMNS in name:
            scaled = zip(tensors, weights, scales, strict=True)
            averaged[name] = torch.cat([t.float() * (weight * scale / scales[0]) for t, weight, scale in scaled], dim=1)
        else:
            averaged[name] = _mean(tensors, weights)
    write_weights(folder, averaged, ADAPTER)
    first = settings[0] | {"r": rank, "lora_alpha": scales[0] * rank}
    (folder / ADAPTER_CONFIG).write_text(json.dumps(first, indent=2) + "\n", encoding="utf-8")
