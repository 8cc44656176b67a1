"""``rerank.json``, the file beside a model's weights: what its inputs look like, which class reads it, and its files.

It is sealed, and holds the SHA-256 of every file of the model, so that no damage goes unnoticed. The card,
``README.md``, is left out: it belongs to whoever publishes the model.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rerank.described import class_path
from rerank.errors import UserError
from rerank.hashes import KEY, check_files, hash_files, read_sealed, write_sealed
from rerank.identity import is_ours

CONTRACT = "rerank.json"
"""Its name."""

CARD = "README.md"
"""The model card beside it."""

FILES = "files"
"""Its key for the hashes of the model's files."""

TRAINED_ON = "trained_on"
"""Its key for the queries of the training, see :mod:`rerank.training.in_sample`."""

AFTERWARDS = ("first_stage_weight", TRAINED_ON)
"""Its keys for what was found out after the model was saved, and decides no score."""


def read_contract(folder: Path) -> dict[str, Any]:
    """The contract saved with a model of ours; empty for other models.

    Raises:
        UserError: it is damaged.
    """
    path = folder / CONTRACT
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not a JSON object ({error}); copy the model again") from error
    if isinstance(content, dict) and FILES not in content and KEY not in content:
        return content  # of version 1, which had neither: one flipped bit cannot take away both
    return read_sealed(path)


def checked_contract(folder: Path, remembered: bool = True) -> dict[str, Any]:
    """The contract, after the model's files were compared with it; empty for other models.

    Args:
        folder: the model's folder.
        remembered: see `rerank.hashes.sha256_of`.

    Raises:
        UserError: a file is missing or damaged; names it.
    """
    contract = read_contract(folder)
    check_files(folder, contract.get(FILES, {}), remembered)
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
