"""``rerank.json``, the file next to a model's weights: its class and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rerank.settings.described import class_path
from rerank.storage.files import digest, read_json, write_json
from rerank.storage.fingerprint import fingerprint, is_ours

CONTRACT, CARD = "rerank.json", "README.md"

TRAINED_ON, INTERPOLATION, CALIBRATION = "trained_on", "interpolation", "calibration"
"""Its keys for the queries of the training run (:mod:`rerank.scoring.in_sample`), the interpolation weights
(:class:`rerank.models.interpolated.Interpolated`), and calibrated probabilities
(:class:`rerank.evaluation.calibration.Calibration`)."""

FUSION = "Fusion"
"""Its class if there is no model: a fusion of columns alone."""

FILES_OF_MODEL = (
    *("config.json", "adapter_config.json", "*.safetensors", "*.safetensors.index.json"),
    *("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model"),
    *("model.txt", "model.json"),
    *("modules.json", "chat_template.jinja", "*_*/config.json", "*_*/model.safetensors"),
)
"""Weights, configuration and tokenizer; trees; sentence-transformers' modules."""


def read_contract(folder: Path) -> dict[str, Any]:
    """Read ``rerank.json`` of a model of ours; empty for other models."""
    path = folder / CONTRACT
    return read_json(path) if path.is_file() else {}


def write_contract(folder: Path, contract: Mapping[str, Any]) -> None:
    """Write ``rerank.json``."""
    write_json(folder / CONTRACT, contract)


def add_to_contract(folder: Path, values: dict[str, Any]) -> None:
    """Add values to ``rerank.json``."""
    write_contract(folder, read_contract(folder) | values)


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


def class_name(kind: type) -> str:
    """Return the name of a class for ``rerank.json``: the short name of ours, the import path of others."""
    return kind.__name__ if is_ours(kind) else class_path(kind)
