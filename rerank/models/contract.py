"""``rerank.json``, the file beside a model's weights that says what its inputs look like and which class reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rerank.errors import UserError
from rerank.files import atomic_write

CONTRACT = "rerank.json"
"""Its name."""


def read_contract(folder: Path) -> dict[str, Any]:
    """The contract saved with a model of ours; empty for other models."""
    path = folder / CONTRACT
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text()))
    except (json.JSONDecodeError, TypeError, ValueError) as error:
        raise UserError(f"{path}: not a JSON object ({error}); copy the model again") from error


def write_contract(folder: Path, contract: dict[str, Any]) -> None:
    """Write ``rerank.json``, whole or not at all."""
    with atomic_write(folder / CONTRACT) as file:
        json.dump(contract, file, indent=2)
        file.write("\n")


def class_path(kind: type) -> str:
    """The import path of a class."""
    return f"{kind.__module__}.{kind.__qualname__}"
