"""Which Hessian trees should be given with the gradient of a loss: five-fold validation means of several.

    python scripts/bench_hessian.py DIR/MQ2008 [FILE]

Every candidate is proportional to what is named here; all are positive, and 0 for lists that teach nothing.

- mean: the mean of |g| over all documents (what `rerank.training.objective.Objective` does)
- list: the mean of |g| over the documents of the list
- abs: |g| of the document
- curvature: Hutchinson's estimate of the diagonal, v * (grad(s + 0.1 v) - grad(s)) / 0.1 with random signs v, not
  below a tenth of the mean of |g|
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import yaml

from rerank.described import described
from rerank.features.letor import LetorData
from rerank.lists.view import Lists
from rerank.losses import DirectMetric, LambdaLoss, ListNet
from rerank.losses.base import Loss
from rerank.models.vectors.lightgbm import LightGBM
from rerank.relaxations import Approx, SmoothI, TwinSigmoid
from rerank.training.config import TrainConfig
from rerank.training.ids import identity_of
from rerank.training.objective import Objective
from rerank.training.run_folder import RunFolder
from rerank.training.targets import Targets
from rerank.training.trees import TreeTrainer

LOSSES: dict[str, Loss | None] = {
    "LambdaMART": None,
    "SmoothI nDCG": DirectMetric("nDCG", SmoothI()),
    "Approx(alpha=1) nDCG": DirectMetric("nDCG", Approx(alpha=1)),
    "TwinSigmoid nDCG": DirectMetric("nDCG", TwinSigmoid(alpha=1)),
    "ListNet": ListNet(),
    "LambdaLoss": LambdaLoss(),
}
MONITOR = "nDCG@10"


class Candidate(Objective):
    """An objective with another Hessian."""

    def __init__(self, kind: str, loss: Loss, lists: Lists, seed: int) -> None:
        targets = Targets(lists, loss)
        super().__init__(targets, targets.usable(), seed)
        self.kind, self.offsets = kind, lists.offsets

    def __call__(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Remember where the gradient is taken."""
        self.at = np.asarray(scores)
        return super().__call__(scores)

    def hessian(self, gradient: np.ndarray) -> np.ndarray:
        """The candidate's."""
        mean = super().hessian(gradient)
        if self.kind == "abs":
            return np.abs(gradient)
        if self.kind == "list":
            sums = np.add.reduceat(np.abs(gradient), self.offsets[:-1])
            return np.repeat(sums / np.diff(self.offsets), np.diff(self.offsets))
        if self.kind == "curvature":
            signs = np.random.default_rng(self.calls).choice([-1.0, 1.0], len(gradient))
            moved, _ = self.gradient(self.at + 0.1 * signs, self.calls - 1)
            return np.maximum(signs * (moved - gradient) / 0.1, 0.1 * mean).astype(np.float32) * self.taught
        return mean


def validation(folder: str, fold: int, loss: Loss | None, kind: str) -> float:
    with tempfile.TemporaryDirectory() as output:
        config = TrainConfig(
            data=LetorData(path=folder, fold=fold),
            model=LightGBM(trees=300, num_leaves=15),
            loss=loss,
            monitor=MONITOR,
            patience=50,
            test=False,
        )
        splits = config.data.splits(config.seed)
        identity = identity_of(config, splits)
        folder_of_run = RunFolder(Path(output) / "run", identity, yaml.safe_dump(described(config)))
        trainer = TreeTrainer(config, splits, folder_of_run)
        if loss is not None:
            trainer.objective = Candidate(kind, loss, trainer.splits.train, config.seed)
        return float(trainer.run()["validation"][MONITOR])


def main(folder: str, output: str | None = None) -> None:
    table: dict[str, dict[str, float]] = {}
    for name, loss in LOSSES.items():
        table[name] = {}
        for kind in ("mean",) if loss is None else ("mean", "list", "abs", "curvature"):
            started = time.perf_counter()
            value = float(np.mean([validation(folder, fold, loss, kind) for fold in range(1, 6)]))
            table[name][kind] = value
            print(f"{name:22} {kind:10} {value:.4f}  {time.perf_counter() - started:.0f} s", flush=True)
    if output is not None:
        Path(output).write_text(json.dumps(table, indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
