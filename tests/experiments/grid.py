"""An experiment of three methods over three folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

MEASURES = ["nDCG@5", "AP", "P@1"]


def write_config(folder: Path, **changes: Any) -> Path:
    """Three methods over three folds: two that choose among two points, and one whose loss stops being finite."""
    smoothi = {"class_path": "DirectMetric", "init_args": {"measure": "nDCG", "relaxation": "SmoothI"}}
    config: dict[str, Any] = {
        "output": str(folder / "out"),
        "base": {
            "data": {"class_path": "FoldsData", "init_args": {"lists": str(folder / "lists"), "folds": 3}},
            "model": {
                "class_path": "CrossEncoder",
                "init_args": {"name": str(folder / "model"), "query_length": 8, "document_length": 16},
            },
            "epochs": 1,
            "batch_size": 4,
            "precision": "fp32",
            "monitor": "nDCG@5",
            "measures": "AP",
        },
        "folds": [1, 2, 3],
        "methods": {
            "SmoothI": {
                "set": {"loss": smoothi, "optimization.encoder_lr": 0.001},
                "search": {"loss.relaxation.alpha": [0.1, 1000.0]},
            },
            "Tuned | 50%": {
                "set": {"loss": "ListNet"},
                "search": {"optimization.encoder_lr": [1e-5, 1e-2]},
            },
            "Broken": {"set": {"loss": "ListNet", "batch_size": 1, "optimization": {"encoder_lr": 1e30}}},
        },
        "first_stage": "hide",
        "measures": " ".join(MEASURES),
        "test": "t-test",
        "published": {"source": "Nobody, 2020", "rows": {"SmoothI": [0.5, None, 0.25]}},
        "figures": {
            "alpha": {"kind": "search", "x": "loss.relaxation.alpha", "methods": ["SmoothI"]},
            "table": {"kind": "methods"},
            "training": {"kind": "curves"},
        },
        "jobs": 2,
    }
    (folder / "experiment.yaml").write_text(yaml.safe_dump(config | changes, sort_keys=False))
    return folder / "experiment.yaml"
