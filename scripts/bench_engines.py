"""A grid of 24 cells by two workers of this machine, and on a Ray cluster of two nodes of one CPU each: time and bytes.

    python scripts/bench_engines.py --letor MQ2008/Fold1 [--epochs 10]

Two losses, six seeds, two learning rates of a small network. Seconds are those of whole commands by the clock, with the
tables; the cluster (``ray.cluster_utils``, on this machine) is started before. Wants a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml


def configuration(letor: Path, epochs: int) -> dict[str, Any]:
    """The grid."""
    fold = letor.name.removeprefix("Fold")
    return {
        "base": {
            "data": {"class_path": "LetorData", "init_args": {"path": str(letor.parent.resolve()), "fold": int(fold)}},
            "model": {"class_path": "MLP", "init_args": {"hidden": [64, 32]}},
            "loss": "ListNet",
            "epochs": epochs,
            "batch_size": 16,
            "monitor": "nDCG@10",
            "measures": "AP",
            "tracker": [],
        },
        "methods": {
            name: {"set": {"loss": name}, "search": {"optimization.head_lr": [0.01, 0.001]}}
            for name in ("ListNet", "RankNet")
        },
        "seeds": [1, 2, 3, 4, 5, 6],
        "measures": "nDCG@10 AP",
        "first_stage": "hide",
    }


def seconds(words: list[str], **more: str) -> float:
    """How long an experiment takes."""
    started = time.perf_counter()
    command = [sys.executable, "-m", "rerank.cli", "experiment", *words]
    done = subprocess.run(command, env=os.environ | more, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return time.perf_counter() - started


def found(output: Path) -> dict[str, bytes]:
    """What cells found, by their place."""
    names = ("cells/**/measures.json", "cells/**/test-*.json")
    return {str(path.relative_to(output)): path.read_bytes() for name in names for path in output.glob(name)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--letor", type=Path, required=True, help="a fold's folder, such as MQ2008/Fold1")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    from ray.cluster_utils import Cluster

    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        (place / "grid.yaml").write_text(yaml.safe_dump(configuration(options.letor, options.epochs)))
        words = ["--config", str(place / "grid.yaml"), "--output"]
        here = seconds([*words, str(place / "here"), "--jobs=2"])
        head = {"num_cpus": 1, "include_dashboard": False, "_system_config": {"worker_niceness": 0}}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            cluster.add_node(num_cpus=1)
            cluster.wait_for_nodes()
            there = seconds([*words, str(place / "ray"), "--engine=ray"], RAY_ADDRESS=cluster.address)
        finally:
            cluster.shutdown()
        cells, same = found(place / "here"), found(place / "here") == found(place / "ray")
        print("| engine | cells | seconds | the same bytes |\n|---|---:|---:|---|")
        trained = sum(name.endswith("measures.json") for name in cells)
        print(f"| two workers of this machine | {trained} | {here:.1f} | |")
        print(f"| Ray, two nodes of one CPU | {trained} | {there:.1f} | {'yes' if same else 'no'} |")


if __name__ == "__main__":
    main()
