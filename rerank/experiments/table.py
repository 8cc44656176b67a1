"""Tables of an experiment: terminal, Markdown, LaTeX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rerank.evaluation import render
from rerank.evaluation.measures import COUNTS, parse_measures
from rerank.evaluation.paired import paired_difference
from rerank.evaluation.render import Section, TableCell, interval, number, plain, probability
from rerank.evaluation.significance import ROUNDING, TEST_NAMES
from rerank.experiments.cells import Failure
from rerank.experiments.config import FIRST_STAGE, ExperimentConfig
from rerank.experiments.summary import Row, Summary, Value
from rerank.html import in_markdown
from rerank.training.config import TrainConfig


def sections(summary: Summary) -> list[Section]:
    """Make all tables: means, published numbers, differences."""
    return [*main_sections(summary), *([differences(summary)] if summary.compared else [])]


def main_sections(summary: Summary) -> list[Section]:
    """Make the tables of means and, if there are any, of published numbers."""
    return [means(summary), *([published(summary)] if summary.config.published else [])]


def markdown(summary: Summary, failures: Sequence[Failure]) -> str:
    """Write all tables as Markdown, with failed cells and their logs."""
    blocks = []
    for table in sections(summary):
        blocks += ["\n".join(table.markdown()), in_markdown(" ".join(table.caption))]
    failed = [f"{one.cell}: {one.message} ({one.cell.folder}/log.txt)" for one in failures]
    if failed:
        blocks += ["Failed:", "\n".join(f"- {in_markdown(line)}" for line in failed)]
    return "\n\n".join(blocks) + "\n"


def latex(summary: Summary) -> str:
    """Write the main tables in LaTeX (package booktabs)."""
    return "\n".join(table.latex() for table in main_sections(summary))


def text(summary: Summary, bold: bool = False) -> str:
    """Write the main tables for a terminal."""
    blocks = (block for table in main_sections(summary) for block in (table.text(bold), table.caption))
    return "\n\n".join(map("\n".join, blocks)) + "\n"


def means(summary: Summary) -> Section:
    """Make the table of means: a row per method, a column per measure."""
    counts = {str(measure) for measure in parse_measures(summary.config.measures) if measure.NAME in COUNTS}
    rows = []
    for method, row in summary.rows.items():
        cells = [TableCell(_name(summary.config, method, row))]
        for measure in summary.measures:
            value = row.values[measure]
            ranked = len(summary.rows) > 1 and row.whole and measure not in counts
            best = ranked and value.mean >= summary.best(measure) - ROUNDING
            marked = render.MARKS[summary.config.test] if value.corrected < summary.config.level else ""
            cells.append(TableCell(_value(value), best, marked))
        rows.append(cells)
    return Section("Test", ["method", *summary.measures], rows, caption(summary))


def published(summary: Summary) -> Section:
    """Make the table of published numbers, with our distance from them in standard errors."""
    assert summary.config.published is not None
    rows = [
        plain(method, *(_published(row.values[measure]) for measure in summary.measures))
        for method, row in summary.rows.items()
        if any(value.published is not None for value in row.values.values())
    ]
    said = "In brackets: ours minus the published mean, in our standard errors."
    about = [f"Published: {summary.config.published.source}. {said}"]
    return Section("Published", ["method (published)", *summary.measures], rows, about)


def caption(summary: Summary) -> list[str]:
    """Write the caption: test lists, seeds, measures, correction."""
    config = summary.config
    seeds = len(config.seeds)
    sentences = [f"Test means over {over(config)}."]
    sentences += ["Queries count alike, whatever the size of their fold."] if len(config.folds or []) > 1 else []
    sentences += [f"Seed{'s' if seeds > 1 else ''} {', '.join(map(str, config.seeds))}."]
    if any(name.endswith(f"+ {FIRST_STAGE}") for name in summary.rows):
        sentences.append(
            f"+ {FIRST_STAGE}: interpolated with its z-normalised scores, with the weight that validation chose."
        )
    tables = summary.pooled
    if tables:
        first = next(iter(tables.values()))
        sentences += [render.queries_sentence(first), *render.gain_sentences(first)]
    monitor = config.base.get("monitor", TrainConfig.monitor)
    chosen_by = dict.fromkeys(str(m.set.get("monitor", monitor)) for m in config.methods.values() if m.search)
    if chosen_by:
        sentences.append(f"Hyper-parameters chosen on validation by {', '.join(chosen_by)}.")
    if len(tables) > 1 and (summary.comparisons or summary.compared):
        against = config.baseline or "the best of the column"
        pooled = f"{TEST_NAMES[config.test]} over queries pooled over folds"
        by = resampled(config) if config.test == "bootstrap" else pooled
        sentences.append(
            f"{render.MARKS[config.test]}: differs from {against}, p < {config.level:g} by the {by} "
            f"({corrected(config, summary.comparisons)})."
        )
    return sentences


def corrected(config: ExperimentConfig, count: int) -> str:
    """Name the correction of p-values."""
    return f"{render.CORRECTED[config.correction]} for {count} comparisons" if count else "not corrected"


def resampled(config: ExperimentConfig) -> str:
    """Name the units that the bootstrap resamples, see :func:`rerank.evaluation.crossed.crossed_difference`."""
    folds, seeds = len(config.folds or []) > 1, len(config.seeds) > 1
    if seeds:
        return "bootstrap over queries and seeds" + (", folds being trained apart" if folds else "")
    return "bootstrap over folds" if folds else "bootstrap over queries"


def first_stage_differences(summary: Summary) -> Iterator[str]:
    """Compare every method with the first stage in the first measure; nothing without a row of the first stage."""
    first = summary.rows.get(FIRST_STAGE)
    measure = next((str(m) for m in parse_measures(summary.config.measures) if m.NAME not in COUNTS), None)
    if first is None or measure is None or not first.by_seed:
        return
    for method in summary.config.methods:
        if (row := summary.rows.get(method)) is not None and row.by_seed:
            found = paired_difference(row.by_seed[measure], first.by_seed[measure], measure, folds=summary.folds)
            if found is not None:
                yield f"{method}: {found}"


def differences(summary: Summary) -> Section:
    """Make the table of differences: a row per planned comparison and measure."""
    config = summary.config
    header = ["row", "against", "measure", "difference", "95% interval", "Cohen's d", "wins/ties/losses", "p"]
    rows = []
    for one in summary.compared:
        shown = [one.row, one.against, one.measure]
        if one.found is None:
            rows.append(plain(*shown, *["-"] * (len(header) - 3)))
            continue
        shown += [number(one.found.mean, "+"), interval(one.found.interval), number(one.effect, "+", 2)]
        shown += ["/".join(map(str, one.counts)), probability(one.corrected)]
        rows.append(plain(*shown))
    title = "Differences" if config.pairs == "all" else f"Differences from {config.baseline}"
    return Section(title, header, rows, [differences_caption(summary)])


def differences_caption(summary: Summary) -> str:
    """Write the caption of the table of differences."""
    config = summary.config
    test = "it" if config.test == "bootstrap" else f"the {TEST_NAMES[config.test]} over queries"
    return (
        f"Differences paired by query, means over seeds, with intervals by {resampled(config)}; queries without "
        f"relevant documents {'are left out' if config.empty == 'drop' else 'count, as differences of 0'}. Cohen's d "
        f"over queries; p by {test}, {corrected(config, len(summary.compared))}."
    )


def over(config: ExperimentConfig) -> str:
    """Name the units of the means, and the number after ±."""
    folds, seeds = len(config.folds or []), len(config.seeds)
    over = f"{folds} folds" if folds > 1 else f"{seeds} seeds" if seeds > 1 else "one fold and seed"
    within = f", each the mean of {seeds} seeds" if folds > 1 and seeds > 1 else ""
    return f"{over}{within}{', ± standard error' if folds > 1 or seeds > 1 else ''}"


def _name(config: ExperimentConfig, method: str, row: Row) -> str:
    name = f"{method} (baseline)" if method == config.baseline else method
    return name if row.whole else f"{name} ({row.found} of {row.wanted} runs)"


def _value(value: Value) -> str:
    if np.isnan(value.mean):
        return "-"
    return f"{value.mean:.4f}" + ("" if np.isnan(value.error) else f" ± {value.error:.4f}")


def _published(value: Value) -> str:
    if value.published is None:
        return "-"
    distance = "" if np.isnan(value.distance) else f" ({value.distance:+.1f})"
    return f"{value.published:g}{distance}"
