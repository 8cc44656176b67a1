"""Which published ranking of losses replicates? Published differences next to ours: the table of docs/papers.md.

``python -m scripts.published`` prints it from the published rows of the configurations and the values per query in
configs/letor/kept, and trains nothing; published.yaml beside it has the pairs. Intervals are of 95 %, over
queries and trainings: with one seed the folds are the units.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from rerank.evaluation.crossed import Crossed, crossed_difference, paired
from rerank.evaluation.measures import parse_measures
from rerank.evaluation.significance import correct
from rerank.settings.configs import read_config
from scripts.evidence.kept import kept

CLAIMS: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
LETOR = Path(__file__).parents[1] / "configs" / "letor"
MEASURE, LINEAR = "nDCG(dcg='exp-log2')@5", "nDCG@5"
LEVEL = 0.05

Rows = Sequence[tuple[str, str, str, str]]
"""Differences to average: a configuration and its row, minus another's."""


def measure_of(name: str) -> tuple[str, int]:
    """nDCG@5 with the gain that a paper's table has it with, and its column there."""
    measures = [str(one) for one in parse_measures(read_config(LETOR / f"{name}.yaml")["measures"])]
    measure = MEASURE if MEASURE in measures else LINEAR
    return measure, measures.index(measure)


def published(name: str, row: str) -> float:
    """A number of a paper's table."""
    return float(read_config(LETOR / f"{name}.yaml")["published"]["rows"][row][measure_of(name)[1]])


def differences(name: str, row: str, other_name: str, other: str, measure: str = MEASURE) -> tuple[Any, Any]:
    """A kept row minus another, ``[S, Q]``, and the fold of each query."""
    one, two = kept(name, LETOR / "kept").table(row, measure), kept(other_name, LETOR / "kept").table(other, measure)
    assert one.index.equals(two.index)
    return paired(one.to_numpy().T, two.to_numpy().T, one.index.codes[0])


def on_mq2008(name: str) -> str:
    """The kept values that stand beside a paper's table."""
    return name if name.startswith("mq2008") else f"{name.removesuffix('-web30k')}-mq2008"


def ours(rows: Rows) -> Crossed:
    """The mean over pairs of rows of their differences per training and query, of the same tables on MQ2008."""
    sides = [(on_mq2008(one), row, on_mq2008(two), other, measure_of(one)[0]) for one, row, two, other in rows]
    gaps, folds = zip(*(differences(*side) for side in sides), strict=True)
    if len(gaps[0]) == len(set(folds[0])) == 1:
        raise ValueError(f"{rows}: one training of each; an interval over queries alone is not one of losses")
    return crossed_difference(np.mean(gaps, axis=0), folds[0])


def verdict(mean: float, p: float, signs: Sequence[float]) -> str:
    """What our difference says of the published ones, by its corrected p-value."""
    if not p < LEVEL:
        return "open"
    agree = [np.sign(sign) == np.sign(mean) for sign in signs]
    return "yes" if all(agree) else "as some" if any(agree) else "no"


def table(claims: dict[str, dict[str, Any]]) -> list[str]:
    """A Markdown row per pair; a star where a published difference is outside our interval."""
    found = {what: ours(sides["ours"]) for what, sides in claims.items()}
    corrected = correct([one.p for one in found.values()], "holm")
    lines = ["| pair | published | ours, MQ2008 | seeds × folds | p, Holm | replicates |", "|---|---|---|---|---|---|"]
    for (what, one), p in zip(found.items(), corrected, strict=True):
        there = {
            paper: float(np.mean([published(*rows[:2]) - published(*rows[2:]) for rows in pairs]))
            for paper, pairs in claims[what].items()
            if paper != "ours"
        }
        low, high = one.interval
        shown = [f"{paper} {value:+.3f}{'' if low <= value <= high else '*'}" for paper, value in there.items()]
        cells = f"{one.mean:+.3f} [{low:+.3f}, {high:+.3f}] | {one.seeds} × {one.folds} | {p:.2g}"
        lines.append(f"| {what} | {', '.join(shown)} | {cells} | {verdict(one.mean, p, [*there.values()])} |")
    return [line.replace("-0.", "−.").replace("+0.", "+.").replace(" 0.", " .") for line in lines]


if __name__ == "__main__":
    print("\n".join(table(CLAIMS)))
