"""``rerank.json``, the file beside a model's weights: its class, and what its inputs look like."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rerank.errors import UserError
from rerank.evaluation.calibration import Calibration
from rerank.settings.described import class_path
from rerank.storage.files import digest, read_json, write_json
from rerank.storage.fingerprint import fingerprint, is_ours

CONTRACT, CARD = "rerank.json", "README.md"

TRAINED_ON, START, MIX, CALIBRATION = "trained_on", "start", "mix", "calibration"
"""Its keys for the queries of the training run (:mod:`rerank.scoring.in_sample`), the columns that a model starts from,
the weights of a mix (:class:`rerank.models.mixed.Mixed`), and calibrated probabilities
(:class:`rerank.evaluation.calibration.Calibration`)."""

FUSION = "Fusion"
"""Its class where there is no model: a mix of columns alone."""

AFTERWARDS = (TRAINED_ON, CALIBRATION)
"""Its keys for what was found out after the model was saved, and decides no score."""


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
    if not path.is_file():
        return {}
    content = read_json(path)
    for key, check in ((MIX, check_mix), (CALIBRATION, Calibration.of)):
        if key in content:
            try:
                check(content[key])
            except (UserError, AttributeError, TypeError) as error:
                raise UserError(f"{path}: {key}: {error}; save the ranker again") from error
    return content


def check_mix(mix: Mapping[str, Any]) -> None:
    """Validate interpolation weights: one for each of the ``columns``, and one for the ``text`` model."""
    columns, cosines = mix.get("columns"), mix.get("cosines", {})
    if not isinstance(columns, Mapping) or not columns or not all(isinstance(name, str) for name in columns):
        raise UserError(f"columns: expected a weight for each column, such as {{'bm25': 0.3}}, not {columns!r}")
    for name, weight in {**columns, "text": mix.get("text")}.items():
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not (number and 0 <= weight < math.inf):
            raise UserError(f"{name}: expected a weight, a finite number of at least 0, not {weight!r}")
    if not isinstance(cosines, Mapping) or not all(
        isinstance(made, Mapping) and isinstance(made.get("model"), str) and isinstance(made.get("sha256"), str)
        for made in cosines.values()
    ):
        raise UserError(f"cosines: expected the model and its sha256 for each column, not {cosines!r}")
    if not any(columns.values()) and not mix["text"]:
        raise UserError("all weights are 0")


def write_contract(folder: Path, contract: Mapping[str, Any]) -> None:
    """Write ``rerank.json``."""
    write_json(folder / CONTRACT, contract)


def add_to_contract(folder: Path, values: dict[str, Any]) -> None:
    """Add values to ``rerank.json``."""
    write_contract(folder, read_contract(folder) | values)


def hash_model(folder: Path, mix: bool = True) -> str:
    """Return one digest of all that decides a model's scores: weights, configuration, tokenizer, ``rerank.json``.

    Args:
        folder: the model's folder.
        mix: count the weights of a ranker that mixes its model's scores with columns.
    """
    left_out = AFTERWARDS if mix else (*AFTERWARDS, MIX)
    contract = {key: value for key, value in read_contract(folder).items() if key not in left_out}
    paths = sorted({path for pattern in FILES_OF_MODEL for path in folder.glob(pattern)})
    return digest(
        fingerprint(contract), *(part for path in paths for part in (path.relative_to(folder).as_posix(), path))
    )


def class_name(kind: type) -> str:
    """Name a class as ``rerank.json`` does: ours by its short name, others by their import path."""
    return kind.__name__ if is_ours(kind) else class_path(kind)
