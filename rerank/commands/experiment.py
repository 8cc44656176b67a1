"""From options and a YAML file to a finished experiment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict

from rerank.commands.options import HELP, PAGES, help_page, shell_like
from rerank.errors import UserError
from rerank.progress import log, log_file
from rerank.settings.parser import join_configs, make_parser, parse
from rerank.storage.files import exclusive_lock


def experiment(argv: Sequence[str]) -> int:
    """Compare methods over folds and seeds, from a YAML file to tables.

    All are trained, chosen on validation and measured on test; an interrupted experiment resumes. Options may set keys
    of all runs: ``--base.data.path=DIR``.
    """
    from rerank.experiments.config import ExperimentConfig

    parser = make_parser("experiment", experiment, config=True)
    parser.add_argument("--dry_run", action="store_true", help="check configuration, lists and models; list the runs")
    parser.add_argument(
        "--share", help="NUMBER/COUNT, such as 3/16: train and measure only this part, alongside others; no tables"
    )
    parser.add_class_arguments(ExperimentConfig)
    if HELP & set(argv):
        print(help_page(parser, PAGES["experiment"]))
        return 0
    words = join_configs(argv, "experiment")
    print_config = {"--print_config", "--print-config"} & set(words)
    options = parse(parser, shell_like(parser, [word for word in words if word not in print_config]))
    dry_run, share, _ = (options.pop(key) for key in ("dry_run", "share", "config"))
    config = ExperimentConfig(**vars(parser.instantiate(options)))
    if print_config:  # the parser's own would take the quotes off a preset "1024"
        import yaml

        print(yaml.safe_dump(asdict(config), sort_keys=False, allow_unicode=True), end="")
        return 0
    from rerank.experiments.run import Experiment
    from rerank.experiments.runner import checked  # the help has to come without importing torch
    from rerank.experiments.table import first_stage_differences, text

    part = None if share is None else parse_share(share)
    plan = checked(config)
    if dry_run:
        plan.check_inputs()
        number, shares = part or (0, 1)
        counts = {group: len(plan.points(group)) for group in plan.groups[number::shares]}
        for group, count in counts.items():
            print(f"{group}: {count} run{'s' if count > 1 else ''}")
        print(f"{sum(counts.values())} runs, {len(counts)} of them measured on test, in {plan.output}")
        return 0
    if part is not None:
        plan.check_inputs()
        plan.trials.mkdir(parents=True, exist_ok=True)
        with exclusive_lock(plan.output / f"share-{part[0]}"), log_file(plan.output):
            done = Experiment(plan, share=part)
            done.run()
        log.info(
            "%s: share %s is through; when all are, the command without --share makes the tables", *(plan.output, share)
        )
        return len(done.failures)
    from rerank.experiments.runner import experiment as run_experiment

    found = run_experiment(config)
    print(text(found.summary), end="")
    for line in first_stage_differences(found.summary):
        print(line)
    files = ["results.json", "queries.parquet", "table.md", "table.tex"]
    log.info("%s: %s", plan.output, ", ".join(files))
    if found.failures:
        log.warning("%d runs failed; repeat the command to try them again", len(found.failures))
    return len(found.failures)


def parse_share(text: str) -> tuple[int, int]:
    """Read the share of an experiment from ``NUMBER/COUNT``.

    >>> parse_share("0/16")
    (0, 16)
    """
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None:
        raise UserError(f"--share: {text!r} is not NUMBER/COUNT; write 0/16, for example")
    number, count = int(found[1]), int(found[2])
    if number >= count:
        raise UserError(f"--share: {text!r} is out of range; use 0/{count} to {count - 1}/{count}")
    return number, count
