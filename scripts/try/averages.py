"""What the average of a few trainings is worth, next to the choice of a loss: feature vectors.

    python scripts/try/averages.py --data DIR/MQ2008

The networks of where.py's study: for each of its eight relative losses the setting that validation chose, and ten seeds
in two groups of five. A group ranks a list by the mean of its networks' z-scores. Hypotheses of nDCG@10 on the test
folds, two-sided, written before an average was computed:

  A1  With a hidden layer (`centre`) five networks of the loss that validation chose, averaged, are ahead of one.
  A2  That gain is larger than what validation gains by choosing the loss: its choice less the mean of the eight losses.
  A3  With a linear model (`linear`) the average of five is within .005 of one.

Secondary: the other conditions; the average of one network of each loss. Conditions in which a seed draws its own
labels or lists are left out, since there an average has seen more of them than one network has.
"""

from __future__ import annotations

import argparse
import lzma
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from rerank.storage.files import atomic_file

where: Any = import_module("scripts.try.where")

KEPT = where.KEPT.with_name("averages.tsv.xz")
CONDITIONS = ("centre", "linear", "cut", "binary", "ohsumed-linear", "made-linear")
LOSSES = [*where.DESIGN["losses"]["direct"], *where.DESIGN["losses"]["other"]]
EACH = "one of each"
GROUPS = {1: (1, 2, 3, 4, 5), 2: (6, 7, 8, 9, 10)}

Scores = dict[tuple[int, int], Tensor]
"""Scores ``[Q, N]`` of a fold's test lists by a seed's network: by fold and seed, -inf for padding."""


def averaged(scores: Sequence[Tensor]) -> Tensor:
    """The mean of the z-scores within each list, ``[Q, N]``."""
    total = torch.zeros_like(scores[0])
    for one in scores:
        real = one > -torch.inf
        count = real.sum(dim=1, keepdim=True)
        centred = torch.where(real, one - one.masked_fill(~real, 0).sum(dim=1, keepdim=True) / count, 0)
        deviation = (centred.square().sum(dim=1, keepdim=True) / count).sqrt()
        total += torch.where(real, centred / deviation.clamp(min=1e-9), -torch.inf)
    return total / len(scores)


def networks(data: Any, condition: str, loss: str) -> Scores:
    """Ten networks a fold, with the setting that validation chose."""
    kept = pd.read_csv(where.KEPT, sep="\t", dtype={"query": str})
    row = kept[(kept["condition"] == condition) & (kept["loss"] == loss)].iloc[0]
    settings = [
        where.Setting(fold, seed, row["rate"], row["scale"]) for seed in sum(GROUPS.values(), ()) for fold in range(5)
    ]
    found = where.trained(data, where.DESIGN["conditions"][condition], where.LOSSES[loss], settings)[1]
    return {(one.fold, one.seed): scores for one, scores in zip(settings, found, strict=True)}


def rows(data: Any, condition: str, loss: str, group: int, sets: Sequence[Sequence[Scores]]) -> list[pd.DataFrame]:
    """Values per query of one network and of the average: means over the sets of networks that are averaged."""
    made = []
    for fold in range(5):
        for ranks, values in {
            "one": [where.measured(data, fold, one[fold]) for some in sets for one in some],
            "average": [where.measured(data, fold, averaged([one[fold] for one in some])) for some in sets],
        }.items():
            digits = 3 if where.DESIGN["conditions"][condition].get("lists") == "made" else 4
            value = (sum(values) / len(values)).round(digits)
            about = {"condition": condition, "loss": loss, "ranks": ranks, "seed": group}
            made.append(value.rename("value").reset_index().assign(**about))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, help="folder MQ2008 or OHSUMED, with Fold1 to Fold5")
    parser.add_argument("--output", type=Path, default=KEPT, help="values per query (.tsv.xz)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    made = [pd.read_csv(args.output, sep="\t", dtype={"query": str})] if args.output.exists() else []
    there = set(made[0]["condition"]) if made else set()
    data = where.Queries.read(str(args.data))
    for condition in CONDITIONS:
        about = where.DESIGN["conditions"][condition]
        if condition in there or about.get("data", "MQ2008") != args.data.name:
            continue
        queries = data.made() if about.get("lists") == "made" else data
        scores = {loss: networks(queries, condition, loss) for loss in LOSSES}
        for group, seeds in GROUPS.items():
            by_seed = {loss: [{f: of[f, seed] for f in range(5)} for seed in seeds] for loss, of in scores.items()}
            for loss, some in by_seed.items():
                made += rows(queries, condition, loss, group, [some])
            made += rows(queries, condition, EACH, group, [list(one) for one in zip(*by_seed.values(), strict=True)])
        with atomic_file(args.output) as path:
            path.write_bytes(lzma.compress(pd.concat(made).to_csv(sep="\t", index=False).encode(), preset=9))
        print(condition, flush=True)


if __name__ == "__main__":
    main()
