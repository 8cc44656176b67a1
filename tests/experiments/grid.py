"""An experiment of three methods over three folds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.experiments.settings import short_texts, write_experiment

MEASURES = ["nDCG@5", "AP", "P@1"]
PUBLISHED = {"source": "Nobody, 2020", "rows": {"SmoothI": [0.5, None, 0.25]}}


def write_config(folder: Path, **changes: Any) -> Path:
    """Three methods over three folds: two that choose among two points, and one whose loss stops being finite."""
    smoothi = {"class_path": "DirectMetric", "init_args": {"measure": "nDCG", "relaxation": "SmoothI"}}
    base = short_texts(folder) | {"monitor": "nDCG@5", "measures": "AP"}
    methods = {
        "SmoothI": {
            "set": {"loss": smoothi, "optimization.encoder_lr": 0.001},
            "search": {"loss.relaxation.alpha": [0.1, 1000.0]},
        },
        "Tuned | 50%": {"set": {"loss": "ListNet"}, "search": {"optimization.encoder_lr": [1e-5, 1e-2]}},
        "Broken": {"set": {"loss": "ListNet", "batch_size": 1, "optimization": {"encoder_lr": 1e30}}},
    }
    settings = {"methods": methods, "first_stage": "hide", "jobs": 2, "test": "t-test", "baseline": "SmoothI"}
    write_experiment(folder, **{"base": base, "measures": " ".join(MEASURES)} | settings | changes)
    return folder / "experiment.yaml"
