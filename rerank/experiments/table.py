"""Tables of an experiment: terminal, Markdown, LaTeX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from rerank.evaluation import render
from rerank.evaluation.measures import COUNTS, parse_measures
from rerank.evaluation.render import Best, Section, differences_section
from rerank.evaluation.significance import ROUNDING, TEST_NAMES
from rerank.experiments.config import FIRST_STAGE, ExperimentConfig, Published
from rerank.experiments.summary import Row, Summary
from rerank.experiments.trials import Failure
from rerank.html import in_markdown
from rerank.training.config import TrainConfig


def main_sections(summary: Summary) -> list[Section]:
    """Make the tables of means and, if there are any, of published numbers."""
    given = summary.config.published
    return [means(summary), *([published(summary, given)] if given else [])]


def markdown(summary: Summary, failures: Sequence[Failure]) -> str:
    """Write all tables as Markdown, with failed trials and their logs."""
    compared = [differences_section(summary.compared, [differences_caption(summary)])] if summary.compared else []
    shown = render.markdown([*main_sections(summary), *compared])
    failed = [f"{one.trial}: {one.message} ({one.trial.folder}/log.txt)" for one in failures]
    return shown + ("\nFailed:\n\n" if failed else "") + "".join(f"- {in_markdown(line)}\n" for line in failed)


def latex(summary: Summary) -> str:
    """Write the main tables in LaTeX (package booktabs)."""
    return render.latex(main_sections(summary))


def text(summary: Summary) -> str:
    """Write the main tables for a terminal."""
    return render.text(main_sections(summary))


def means(summary: Summary) -> Section:
    """Make the table of means: a row per method, a column per measure."""
    config = summary.config
    counts = {str(measure) for measure in parse_measures(config.measures) if measure.NAME in COUNTS}
    level, baseline = config.level, config.baseline
    differ = {(one.run, one.measure) for one in summary.compared if one.against == baseline and one.p_corrected < level}
    rows = []
    for method, row in summary.rows.items():
        cells = [_name(config, method, row)]
        for measure in summary.measures:
            whole = [other.means[measure] for other in summary.rows.values() if other.seeds]
            ranked = len(summary.rows) > 1 and row.seeds and measure not in counts
            best = bool(ranked) and row.means[measure] >= max(whole) - ROUNDING
            shown = _value(row, measure) + (render.MARK if (method, measure) in differ else "")
            cells.append(Best(shown) if best else shown)
        rows.append(cells)
    return Section("Test", ["method", *summary.measures], rows, caption(summary))


def published(summary: Summary, given: Published) -> Section:
    """Make the table of published numbers, with our distance from them in standard errors."""
    rows = []
    for method, numbers in given.rows.items():
        row, cells = summary.rows[method], [method]
        for measure, number in zip(summary.measures, numbers, strict=True):
            if number is None:
                cells.append("-")
                continue
            error = row.errors[measure]
            distance = f" ({(row.means[measure] - number) / error:+.1f})" if error > 0 else ""
            cells.append(f"{number:g}{distance}")
        rows.append(cells)
    about = f"Published: {given.source}. In brackets: ours minus the published mean, in our standard errors."
    return Section("Published", ["method (published)", *summary.measures], rows, [about])


def caption(summary: Summary) -> list[str]:
    """Write the caption: test lists, seeds, measures, correction."""
    config = summary.config
    folds, seeds = len(config.folds or []) > 1, len(config.seeds) > 1
    sentences = [f"Test means over {over(config)}."]
    sentences += ["Queries count alike, whatever the size of their fold."] if folds else []
    sentences += [f"Seed{'s' if seeds else ''} {', '.join(map(str, config.seeds))}."]
    if any(name.endswith(f"+ {FIRST_STAGE}") for name in summary.rows):
        sentences.append(
            f"+ {FIRST_STAGE}: interpolated with its z-normalised scores, with the weight that validation chose."
        )
    whole = [row.seeds[0] for row in summary.rows.values() if row.seeds]
    sentences += [render.queries_sentence(whole[0]), *render.gain_sentences(whole[0])] if whole else []
    monitor = config.base.get("monitor", TrainConfig.monitor)
    chosen_by = dict.fromkeys(str(m.set.get("monitor", monitor)) for m in config.methods.values() if m.search)
    if chosen_by:
        sentences.append(f"Hyper-parameters chosen on validation by {', '.join(chosen_by)}.")
    if config.baseline and summary.compared:
        mark, p = render.MARK, f"p < {config.level:g} by the {TEST_NAMES[config.test]}"
        sentences.append(f"{mark}: differs from {config.baseline}, {p} ({corrected(summary)}).")
    return sentences


def corrected(summary: Summary) -> str:
    """Name the correction of p-values."""
    return f"{render.CORRECTED[summary.config.correction]} for {len(summary.compared)} comparisons"


def differences_caption(summary: Summary) -> str:
    """Write the caption of the table of differences."""
    config = summary.config
    folds, seeds = len(config.folds or []) > 1, len(config.seeds) > 1
    units = "queries and seeds, with folds trained separately" if seeds and folds else "queries and seeds"
    units = units if seeds else "folds" if folds else "queries"
    test = "it" if config.test == "bootstrap" else f"the {TEST_NAMES[config.test]} over queries"
    return (
        f"Differences paired by query, means over seeds, with intervals by a bootstrap over {units}; queries without "
        f"relevant documents {'are left out' if config.empty == 'drop' else 'count, as differences of 0'}. Cohen's d "
        f"over queries; p by {test}, {corrected(summary)}."
    )


def first_stage_differences(summary: Summary) -> Iterator[str]:
    """Compare every method with the first stage in the first measure; nothing without a row of the first stage."""
    for method in summary.config.methods if FIRST_STAGE in summary.rows else ():
        for measure in summary.tested[:1]:
            if (found := summary.compare(method, FIRST_STAGE, measure)).queries:
                yield f"{method}: {found}"


def over(config: ExperimentConfig) -> str:
    """Name the units of the means, and the number after ±."""
    folds, seeds = len(config.folds or []), len(config.seeds)
    over = f"{folds} folds" if folds > 1 else f"{seeds} seeds" if seeds > 1 else "one fold and seed"
    within = f", each the mean of {seeds} seeds" if folds > 1 and seeds > 1 else ""
    return f"{over}{within}{', ± standard error' if folds > 1 or seeds > 1 else ''}"


def _name(config: ExperimentConfig, method: str, row: Row) -> str:
    name = f"{method} (baseline)" if method == config.baseline else method
    return name if row.seeds else f"{name} ({row.found} of {row.wanted} runs)"


def _value(row: Row, measure: str) -> str:
    mean, error = row.means[measure], row.errors[measure]
    return "-" if np.isnan(mean) else f"{mean:.4f}" + ("" if np.isnan(error) else f" ± {error:.4f}")
