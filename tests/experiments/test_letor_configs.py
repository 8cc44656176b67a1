"""Every experiment under configs/letor is trained, shortened, on generated files of its collection's format."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rerank.experiments.runner import experiment
from rerank.settings.configs import read_config
from tests.conftest import ROOT

FILES = sorted(path for path in (ROOT / "configs" / "letor").glob("*.yaml") if "methods" in read_config(path))
SMALL = {"trees": 2, "num_leaves": 4, "min_data_in_leaf": 1, "min_sum_hessian_in_leaf": 0.001, "threads": 1}
"""Trees that a few hundred documents can grow."""


def write(path: Path, features: int, grades: int, lengths: list[int], kind: str) -> None:
    """A file of lists whose grades follow their first features, as its collection writes it."""
    rng = random.Random(f"{path.name} {kind}")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for query, length in enumerate(lengths):
            for document in range(length):
                values = [rng.random() for _ in range(features)]
                grade = int((values[0] + values[1]) / 2 * (grades + 1)) * (query > 0)  # the first has none relevant
                shown = [i for i in range(features) if kind != "yahoo" or rng.random() < 0.3]
                cells = [f"{i + 1}:{values[i]:.4f}" for i in shown]
                if kind == "istella" and document == 0:
                    cells[-1] = f"{features}:1.797e308"
                comment = f" #docid = GX-{document} inc = 1 prob = 0.5" if kind == "letor" else ""
                file.write(f"{grade} qid:{path.stem[:9]}{query} {' '.join(cells)}{comment}\n")


def make(folder: Path, path: str) -> str:
    """A collection of the format of ``path``; returns what to give as ``data.path``."""
    lengths = [12, 3, 25, 11, 30, 18, 10, 22]
    if "Yahoo" in path:
        for name in ("train", "valid", "test"):
            write(folder / f"set1.{name}.txt", 699, 4, lengths, "yahoo")
        return str(folder / "set1")
    if "Istella" in path:
        for name in ("train", "test"):
            write(folder / f"{name}.txt", 220, 4, [280, *lengths], "istella")
        return str(folder)
    features, grades, kind = (136, 4, "mslr") if "MSLR" in path else (45 if "OHSUMED" in path else 46, 2, "letor")
    for name in ("train", "vali", "test"):
        write(folder / "Fold1" / f"{name}.txt", features, grades, lengths, kind)
    return str(folder)


def shortened(config: dict[str, Any]) -> dict[str, Any]:
    """One epoch of one fold, the first value of every search, two small trees."""
    for method in config["methods"].values():
        method["search"] = {key: values[:1] for key, values in method.get("search", {}).items()}
    for settings in (config["base"], *(method.get("set", {}) for method in config["methods"].values())):
        model = settings.get("model", {})
        if model.get("class_path") in ("LightGBM", "XGBoost"):
            own = SMALL if model["class_path"] == "LightGBM" else {"trees": 2}
            model["init_args"] = model.get("init_args", {}) | own
    config["base"]["epochs"] = 1
    config["folds"] = [1] if config.get("folds") else None
    config["seeds"] = config.get("seeds", [42])[:1]
    return config | {"jobs": 1}


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_letor_config_runs(path: Path, tmp_path: Path, home: Path) -> None:
    config = shortened(read_config(path)) | {"output": str(tmp_path / "out")}
    data = config["base"]["data"]["init_args"]
    data["path"] = make(tmp_path / "data", data["path"])
    results = experiment(config)
    assert not results.failures
    assert {*results.rows["method"]} >= {*config["methods"]}
    measured = results.rows.filter(regex="^test/")
    assert measured.size and np.isfinite(measured.to_numpy(float)).all()
