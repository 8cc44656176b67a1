"""The tables of docs/studies/results/papers.md: the experiments of four papers on feature vectors, and on DL 2019.

``replication.yaml`` has the pairs of methods whose published difference is compared with ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from scripts.evidence.statistics import Found, Row, difference, holm, mean, plain, probability, signed, table
from scripts.evidence.values import FIRST, ROOT, measures_of, methods_of, results, values

LETOR = ROOT / "configs" / "letor"
PAIRS: dict[str, dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("replication.yaml").read_text("utf-8"))
GAIN = "nDCG(dcg='exp-log2')"
LEVEL = 0.05

Rows = Sequence[tuple[str, str, str, str]]
"""Differences to average: a configuration and its row, minus another's."""


def judged(name: str, method: str, measure: str) -> pd.DataFrame:
    """Return the values of queries that count."""
    return values(name, measure, method=method).dropna()


def shown(name: str, method: str, measure: str) -> str:
    """Format a mean with its standard error."""
    of = judged(name, method, measure)
    return f"{mean(of)} ± {plain(difference(of, of * 0).error)}"


def short(measure: str) -> str:
    return measure.replace(GAIN, "nDCG")


def published(name: str) -> dict[str, list[float]]:
    """Read the paper's numbers, by method in the order of the measures."""
    config = yaml.safe_load((LETOR / f"{name}.yaml").read_text(encoding="utf-8"))
    rows = (config.get("published") or {}).get("rows")
    return rows or published(config["extends"].removesuffix(".yaml"))


@table("smoothi-table2", "mq2008-table2-full")
@table("ohsumed", "ohsumed")
@table("neuralndcg-fold1", "neuralndcg2021-fold1")
@table("smoothi-figure4", "mq2008-figure4")
def means(name: str) -> Iterator[Row]:
    measures = measures_of(name)
    yield ["method", *measures]
    for method in methods_of(name):
        yield [method, *(shown(name, method, measure) for measure in measures)]


@table("smoothi-published")
def smoothi_published() -> Iterator[Row]:
    """Published means, and ours minus these."""
    name = "mq2008-table2-full"
    yield ["method", *measures_of(name)]
    for method, numbers in published(name).items():
        ours = [float(judged(name, method, measure).to_numpy().mean()) for measure in measures_of(name)]
        pairs = zip(numbers, ours, strict=True)
        yield [method, *(f"{plain(number, 3)} ({signed(one - number, 3)})" for number, one in pairs)]


@table("bruch-table1", "bruch2019-table1", "bruch2019-table1-web30k")
@table("neuralndcg-table3", "neuralndcg2021-table3", "neuralndcg2021-table3-web30k")
def beside_published(name: str, config: str) -> Iterator[Row]:
    """Means on MQ2008, and the paper's on MSLR-WEB30K."""
    measures = measures_of(name)
    yield ["method", *map(short, measures), *(f"paper, WEB30K: {short(measure)}" for measure in measures)]
    for method, numbers in published(config).items():
        ours = (shown(name, method, measure) for measure in measures)
        yield [method, *ours, *(plain(number) for number in numbers)]


@table("yu-tables")
def yu_tables() -> Iterator[Row]:
    measures = [f"{GAIN}@{k}" for k in (1, 5, 10)]
    yield ["table", "method", *map(short, measures), "paper, WEB30K: nDCG@5"]
    for number in (4, 5, 6, 7):
        name = f"yu2020-table{number}"
        for method, there in published(name).items():
            yield [number, method, *(shown(name, method, measure) for measure in measures), plain(there[2])]


@table("trees")
def trees() -> Iterator[Row]:
    """Trees on direct metrics, minus LambdaMART."""
    measures = measures_of("mq2008-trees")
    yield ["− LambdaMART", *(measure.replace(GAIN, "nDCG, 2^y − 1, ") for measure in measures)]
    for method in ("TwinSigmoid", "SmoothI"):
        pairs = ([judged("mq2008-trees", one, measure) for one in (method, "LambdaMART")] for measure in measures)
        yield [method, *(difference(*pair) for pair in pairs)]


def search(experiment: str, measure: str) -> pd.DataFrame:
    """Return validation means ``[seed, value]`` of a searched key on one fold."""
    of = results("searches")
    of = of[of.experiment == experiment]
    return of.assign(value=of.point.str.partition("=")[2]).pivot(index="seed", columns="value", values=measure)


@table("bruch-figure2", "bruch2019-figure2", "10.0")
@table("bruch-figure3", "bruch2019-figure3", "B64")
def searched(experiment: str, baseline: str) -> Iterator[Row]:
    """Validation nDCG@5 by the searched value, and differences within seeds."""
    of = search(experiment, f"{GAIN}@5")
    points = sorted(of, key=lambda value: float(value.removeprefix("B")))
    yield ["", *points]
    yield ["nDCG@5", *(plain(of[point].mean()) for point in points)]
    gaps = {point: (of[point] - of[baseline]).to_frame(0) for point in points if point != baseline}
    found = {point: over_seeds(gap[0]) for point, gap in gaps.items()}
    yield [f"less {baseline}", *(found.get(point, "") for point in points)]


def over_seeds(gaps: pd.Series) -> Found:
    return Found(float(gaps.mean()), float(gaps.std() / len(gaps) ** 0.5), len(gaps) - 1)


@table("smoothi-figure3")
def smoothi_figure3() -> Iterator[Row]:
    """Validation nDCG by alpha and delta, means over folds."""
    of = results("searches")
    of = of[of.experiment == "mq2008-figure3"]
    keys = of.point.str.extract(r"alpha=(?P<alpha>[\d.]+),delta=(?P<delta>[\d.]+)").astype(float)
    grid = of.assign(**keys).groupby(["alpha", "delta"]).nDCG.mean().unstack()
    yield ["alpha", *(f"delta {delta:g}" for delta in grid)]
    for alpha, row in grid.iterrows():
        yield [f"{alpha:g}", *map(plain, row)]


def on_mq2008(name: str) -> str:
    """Return the saved values that correspond to a paper's table."""
    return name.removesuffix("-web30k")


def measure_of(name: str) -> str:
    """Return nDCG@5 with the gain that the paper's table has."""
    return f"{GAIN}@5" if f"{GAIN}@5" in measures_of(on_mq2008(name)) else "nDCG@5"


def theirs(name: str, row: str, other_name: str, other: str) -> float:
    """Return a published difference."""

    def number(name: str, row: str) -> float:
        return published(name)[row][measures_of(on_mq2008(name)).index(measure_of(name))]

    return number(name, row) - number(other_name, other)


def gaps_of(rows: Rows) -> pd.DataFrame:
    """Average our differences, per query and seed, over pairs of rows."""
    frames = [
        judged(on_mq2008(one), row, measure_of(one)) - judged(on_mq2008(two), other, measure_of(two))
        for one, row, two, other in rows
    ]
    return sum(frames[1:], frames[0]) / len(frames)


def verdict(mean: float, p: float, signs: Iterable[float]) -> str:
    """Say if the published differences replicate, by the corrected p-value of ours."""
    if not p < LEVEL:
        return "open"
    agree = [np.sign(sign) == np.sign(mean) for sign in signs]
    return "yes" if all(agree) else "as some" if any(agree) else "no"


@table("replication")
def replication() -> Iterator[Row]:
    """Published differences in nDCG@5 and ours; a star marks those outside our interval."""
    yield ["pair", "published", "ours, MQ2008", "seeds × folds", "p (Holm)", "replicates"]
    frames = {pair: gaps_of(sides["ours"]) for pair, sides in PAIRS.items()}
    found = {pair: difference(frame, frame * 0) for pair, frame in frames.items()}
    corrected = holm([one.p for one in found.values()])
    for (pair, one), p in zip(found.items(), corrected, strict=True):
        papers = {
            paper: float(np.mean([theirs(*rows) for rows in of]))
            for paper, of in PAIRS[pair].items()
            if paper != "ours"
        }
        outside = {paper: "*" * (abs(value - one.mean) > one.half) for paper, value in papers.items()}
        there = ", ".join(f"{paper} {signed(value, 3)}{outside[paper]}" for paper, value in papers.items())
        size = f"{frames[pair].shape[1]} × {frames[pair].index.get_level_values('fold').nunique()}"
        ends = f"{signed(one.mean, 3)} [{signed(one.mean - one.half, 3)}, {signed(one.mean + one.half, 3)}]"
        yield [pair, there, ends, size, probability(p), verdict(one.mean, p, papers.values())]


@table("dl19")
def dl19() -> Iterator[Row]:
    measures = measures_of("dl19")
    yield ["method", *(column for measure in measures for column in (measure, "− BM25"))]
    for method in methods_of("dl19"):
        found = [difference(judged("dl19", method, one), judged("dl19", FIRST, one)) for one in measures]
        gaps = [""] * len(measures) if method == FIRST else found
        pairs = zip((mean(judged("dl19", method, measure)) for measure in measures), gaps, strict=True)
        yield [method, *(cell for pair in pairs for cell in pair)]
