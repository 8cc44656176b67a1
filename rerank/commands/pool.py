"""``rerank pool``: experiments on several collections as one table and one forest plot."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rerank.commands.pages import PAGES
from rerank.experiments.search import file_name
from rerank.html import in_markdown
from rerank.settings.configs import add_config
from rerank.settings.parser import make_parser, parse, shell_like
from rerank.storage.files import atomic_file, atomic_write, check_apart
from rerank.storage.locks import clear_within, held

log = logging.getLogger("rerank")


def pool(
    experiments: list[str],
    output: str,
    measures: str | None = None,
    baseline: str | None = None,
    methods: list[str] | None = None,
    groups: dict[str, list[str]] | None = None,
    correction: Literal["none", "bonferroni", "holm"] = "holm",
    margin: float | None = None,
    html: str | None = None,
) -> None:
    """Pool experiments on several collections: the difference of each pair of methods, and a forest plot.

    Methods are matched by name. Each collection's difference is over its queries and seeds, as in its own experiment;
    all of them are pooled as random effects.

    Args:
        experiments: folders of experiments, or their files of kept cells, PATH or NAME=PATH.
        output: folder for pool.json, table.md and the pictures.
        measures: measures separated by spaces; null takes all that the experiments have in common.
        baseline: the method to compare the others with; null compares all pairs.
        methods: methods to compare; null takes all.
        groups: groups of methods, by name. On each collection a group is represented by its best method on validation,
            and all groups are compared with each other.
        correction: how p-values are corrected for all pooled pairs, in all measures.
        margin: a difference too small to matter. Pairs are then equivalent within it, better, worse, or undecided.
        html: file for a report; the forest plot is the first thing on it.
    """
    from rerank.evaluation.render import markdown_table, text_table
    from rerank.experiments.figures.forest import forest, picture
    from rerank.experiments.pool import as_json, pool_experiments
    from rerank.experiments.pool_table import COLLECTIONS, caption, collections_table, pooled_table
    from rerank.experiments.table import CORRECTED

    if html:
        from rerank.report.page import check_suffix

        check_suffix(html)
    folder = Path(output)
    written = [folder / "pool.json", folder / "table.md", *([Path(html)] if html else [])]
    for one in experiments:
        for path in written:
            check_apart(path, experiments=one.partition("=")[2] or one)
    pooled = pool_experiments(experiments, measures, baseline, methods, groups, correction, margin)
    with held(folder, "rerank pool", wait=True):
        clear_within(folder)
        with atomic_write(folder / "pool.json") as file:
            file.write(as_json(pooled))
        with atomic_write(folder / "table.md") as file:
            lines = [*markdown_table(*pooled_table(pooled)), "", *map(in_markdown, caption(pooled)), ""]
            lines += [*markdown_table(*collections_table(pooled)), "", COLLECTIONS.format(CORRECTED[correction])]
            file.write("\n".join(lines) + "\n")
        names = ["pool.json", "table.md"]
        drawn = {}
        for measure in pooled.measures:
            figure = forest(pooled, measure)
            drawn[measure] = picture(figure, "png")
            for kind, content in (("png", drawn[measure]), ("svg", picture(figure, "svg"))):
                names.append(f"forest-{file_name(measure)}.{kind}")
                with atomic_file(folder / names[-1]) as path:
                    path.write_bytes(content)
    if html:
        from rerank.experiments.pool_table import write_page

        write_page(pooled, drawn, html)
    print("\n".join([*text_table(*pooled_table(pooled), names=3, bold=sys.stdout.isatty()), "", *caption(pooled)]))
    log.info("%s: %s", folder, ", ".join(names))


def command(argv: Sequence[str]) -> None:
    """``rerank pool`` with options and ``--config FILE``, whose keys are the options."""
    parser = make_parser("pool", pool, PAGES["pool"])
    add_config(parser)
    parser.add_function_arguments(pool)
    options = vars(parse(parser, shell_like(parser, argv)))
    options.pop("config")
    pool(**options)
