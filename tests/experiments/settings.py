"""Configurations of small experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def write_experiment(folder: Path, **changes: Any) -> str:
    """Write a configuration of one fold's or three folds' ListNet, and what differs, as the command's option.

    Keys of ``base`` are merged with those of cross-encoders on the lists folder there.
    """
    data = {"class_path": "FoldsData", "init_args": {"lists": str(folder / "lists"), "folds": 3, "depth": 4}}
    model = {"class_path": "CrossEncoder", "init_args": {"name": str(folder / "model")}}
    config: dict[str, Any] = {
        "output": str(folder / "out"),
        "base": {"data": data, "model": model, "epochs": 1} | changes.pop("base", {}),
        "folds": [1, 2, 3],
        "methods": {"ListNet": {"set": {"loss": "ListNet"}}},
        "measures": "nDCG AP",
        "jobs": 1,
    }
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump(config | changes, sort_keys=False))
    return f"--config={path}"


def short_texts(folder: Path) -> dict[str, Any]:
    """Return keys of ``base`` that read all candidates of the lists, with short texts."""
    texts = {"name": str(folder / "model"), "query_length": 8, "document_length": 16}
    return {
        "data": {"class_path": "FoldsData", "init_args": {"lists": str(folder / "lists"), "folds": 3}},
        "model": {"class_path": "CrossEncoder", "init_args": texts},
        "batch_size": 4,
        "precision": "fp32",
    }
