"""Pooled experiments as a table, and as a page that starts with the forest plot."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rerank.evaluation.power import smallest_and_largest
from rerank.evaluation.render import HeaderAndRows, interval, number, plain, probability
from rerank.experiments.pool import PooledExperiments
from rerank.experiments.table import CORRECTED
from rerank.report.page import PageTable, Picture, Report, write_report


def pooled_table(pool: PooledExperiments) -> HeaderAndRows:
    """Header and rows: a pair and measure a row."""
    header = ["row", "against", "measure", "collections", "difference", "95% interval", "prediction", "tau", "I²", "p"]
    header += ["Paule-Mandel", "tau (PM)"] if any(one.other is not None for one in pool.pairs) else []
    header += ["verdict"] if pool.margin is not None else []
    rows = []
    for one in pool.pairs:
        shown = [one.row, one.against, one.measure, str(len(one.parts))]
        if one.total is None:
            shown += ["-"] * (len(header) - len(shown))
        else:
            shown += [number(one.total.mean, "+"), interval(one.total.interval), interval(one.total.prediction)]
            shown += [number(one.total.tau), _percent(one.total.heterogeneity), probability(one.corrected)]
            if one.other is not None:
                shown += [f"{number(one.other.mean, '+')} {interval(one.other.interval)}", number(one.other.tau)]
            elif "Paule-Mandel" in header:
                shown += ["-", "-"]
            shown += [pool.verdict(one)] if pool.margin is not None else []
        rows.append(plain(*shown))
    return header, rows


def collections_table(pool: PooledExperiments) -> HeaderAndRows:
    """Header and rows: a pair, measure and collection a row."""
    header = ["row", "against", "measure", "collection", "methods", "seeds", "queries", "difference", "95% interval"]
    header += ["weight", "p"]
    rows = []
    for one in pool.pairs:
        for (name, part), weight in zip(one.parts.items(), one.total.weights if one.total else (), strict=True):
            assert part.found is not None
            shown = [one.row, one.against, one.measure, name, " − ".join(part.methods), str(part.found.seeds)]
            shown += [str(part.found.queries), number(part.found.mean, "+"), interval(part.found.interval)]
            shown += [_percent(weight), probability(part.corrected)]
            rows.append(plain(*shown))
    return header, rows


COLLECTIONS = "p of a collection: {} for all collections of its pair."


def caption(pool: PooledExperiments) -> list[str]:
    """Sentences that say what the numbers are."""
    names = ", ".join(result.name for result in pool.results)
    sentences = [
        f"Collections: {names}.",
        "Differences of a collection: paired by query, means over seeds, bootstrap intervals over queries and seeds, "
        "with one seed over folds if there are any.",
        "Pooled: random effects (REML, and Paule-Mandel to see what hangs on that; Hartung-Knapp-Sidik-Jonkman "
        "intervals); prediction: where the difference on another such collection would lie; tau: how much the "
        "collections' true differences vary; I²: its share of the spread between collections.",
        f"p: {CORRECTED[pool.correction]} for {len(pool.pairs)} comparisons.",
    ]
    if len(pool.results) == 1:
        sentences[2] = "One collection: its own interval and p."
    if pool.margin is not None:
        how = f"by two one-sided t-tests, {CORRECTED[pool.correction]} likewise"
        sentences.append(f"Equivalent: {how}; undecided: neither that nor different.")
    zeros = [
        f"{one.name} {max(one.without_relevant.values())} of {len(one.queries)} "
        + ("left out" if one.empty == "drop" else "with differences of 0")
        for one in pool.results
        if any(one.without_relevant.values())
    ]
    if zeros:
        sentences.append(f"Queries without relevant documents: {', '.join(zeros)}.")
    if lacking := sorted({name for one in pool.pairs for name in one.lacking}):
        several = [one.borrowed for one in pool.pairs if one.borrowed == one.borrowed]
        lent = (
            "pooled with the others' mean variance over trainings added (a standard deviation of "
            f"{smallest_and_largest(several)})"
            if several
            else "a difference of these trained models, not of the methods"
        )
        sentences.append(f"One seed: {', '.join(lacking)}; {lent}.")
    if any(pool.chosen.values()):
        chosen = "; ".join(
            f"{name}: {', '.join(f'{group} {method}' for group, method in found.items())}"
            for name, found in pool.chosen.items()
        )
        sentences.append(f"Best of a group: chosen by the mean validation measure of each collection ({chosen}).")
    return sentences


def write_page(pool: PooledExperiments, drawn: Mapping[str, bytes], path: str | Path) -> None:
    """Write the report: forest plots, the pooled differences, those of each collection."""
    pictures = []
    for measure, png in drawn.items():
        said = "; ".join(
            f"{one.row} minus {one.against}: {number(one.total.mean, '+')} {interval(one.total.interval)}"
            for one in pool.pairs
            if one.measure == measure and one.total is not None
        )
        pictures.append(Picture(f"Differences in {measure} over collections", png, f"Forest plot. {said}."))
    tables = [
        PageTable("Pooled differences", *pooled_table(pool), caption(pool)),
        PageTable("Collections", *collections_table(pool), [COLLECTIONS.format(CORRECTED[pool.correction])]),
    ]
    names = ", ".join(result.name for result in pool.results)
    write_report(Report(f"Experiments on {names}", tables, {}, "", pictures=pictures), path)


def _percent(share: float) -> str:
    return "-" if share != share else f"{share:.0%}"
