"""``rerank.json``, the file beside a model's weights: what its inputs look like, which class reads it, and its files.

It is sealed, and holds the SHA-256 of every file of the model, so that no damage goes unnoticed. The card,
``README.md``, is left out: it belongs to whoever publishes the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rerank.errors import UserError
from rerank.evaluation.calibration import Calibration
from rerank.models.weights import check_names, check_plain
from rerank.settings.described import class_path
from rerank.storage.hashes import check_files, hash_files, read_sealed, write_sealed
from rerank.storage.identity import is_ours

CONTRACT, CARD = "rerank.json", "README.md"

FILES, TRAINED_ON, LAYOUT, START, MIX, CALIBRATION = "files", "trained_on", "layout", "start", "mix", "calibration"
"""Its keys for the hashes of the model's files, the queries of the training (:mod:`rerank.scoring.in_sample`), which
feature of a file is which number (:mod:`rerank.features.letor`), the columns that a model starts from, the weights of a
mix (:class:`rerank.models.mixed.Mixed`), and what makes probabilities of the scores
(:class:`rerank.evaluation.calibration.Calibration`)."""

FUSION = "Fusion"
"""Its class where there is no model: a mix of columns alone."""

PARTS = {
    **dict.fromkeys(("class", "name", "head", "long", TRAINED_ON), str),
    **dict.fromkeys(("query_length", "document_length", "positions", "trees", "depth"), int),
    **dict.fromkeys((START, "template", "base", "settings", LAYOUT, MIX, CALIBRATION, FILES), dict),
    **dict.fromkeys(("columns", "normalise", "weights"), list),
    **dict.fromkeys(("first_stage_weight", "elsewhere"), float),
}
"""Types of its values, and of those of ``start``."""

LISTS = {"columns": str, "normalise": dict, "weights": float}
"""Types of what is in its lists."""

AFTERWARDS = ("first_stage_weight", TRAINED_ON, CALIBRATION)
"""Its keys for what was found out after the model was saved, and decides no score."""


def read_contract(folder: Path) -> dict[str, Any]:
    """The contract saved with a model of ours; empty for other models."""
    check_plain(folder)
    path = folder / CONTRACT
    if not path.is_file():
        return {}
    content = read_sealed(path)
    if FILES not in content:
        raise UserError(f"{path}: names no {FILES}; save the model again")
    check_parts(path, content)
    check_names(path, content[FILES])
    return content


def check_parts(where: Path, content: Mapping[str, Any]) -> None:
    """Refuse values of other types than those that are written."""
    for key, kind in PARTS.items():
        value = content.get(key)
        fits = isinstance(value, int | float if kind is float else kind) and not isinstance(value, bool)
        if key in content and not fits:
            raise UserError(f"{where}: {key}: expected {kind.__name__}, not {value!r}; save the model again")
        if isinstance(value, list) and key in LISTS and not all(isinstance(inner, LISTS[key]) for inner in value):
            raise UserError(f"{where}: {key}: expected a list of {LISTS[key].__name__}; save the model again")
    if START in content:
        check_parts(where, content[START])
    for key, check in ((MIX, check_mix), (CALIBRATION, Calibration.of)):
        if key in content:
            try:
                check(content[key])
            except UserError as error:
                raise UserError(f"{where}: {key}: {error}; save the ranker again") from error


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


def checked_contract(folder: Path) -> dict[str, Any]:
    """The contract, after the model's files were compared with it; empty for other models."""
    contract = read_contract(folder)
    check_files(folder, contract.get(FILES, {}))
    return contract


def write_contract(folder: Path, contract: dict[str, Any]) -> None:
    """Write ``rerank.json`` with the hashes of all other files of the folder, which are there already."""
    others = (path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
    names = sorted(path.name for path in others if path.name not in (CONTRACT, CARD))
    write_sealed(folder / CONTRACT, contract | {FILES: hash_files(folder, names)})


def add_to_contract(folder: Path, values: dict[str, Any]) -> None:
    """Add what was found out after the model was saved."""
    write_sealed(folder / CONTRACT, read_contract(folder) | values)


def class_name(kind: type) -> str:
    """A class as a contract has it: ours by its short name, so that it may move; a user's by its import path."""
    return kind.__name__ if is_ours(kind) else class_path(kind)
