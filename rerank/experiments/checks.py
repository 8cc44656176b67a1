"""Whether an experiment can be done, as far as that can be told before anything is trained."""

from __future__ import annotations

from typing import Any

from rerank.errors import UserError
from rerank.experiments.cells import Plan
from rerank.experiments.config import ExperimentConfig
from rerank.experiments.figures.data import check_figures
from rerank.training.configuration import check


def checked(config: ExperimentConfig) -> Plan:
    """The plan of an experiment whose cells and pictures there can be.

    Raises:
        UserError: what cannot be, with its key.
    """
    plan = Plan(config)
    check_cells(plan)
    check_figures(plan)
    return plan


def check_cells(plan: Plan) -> None:
    """Let training's own parser read every method, and every value of its search.

    Raises:
        UserError: what it refuses, with the method.
    """
    for group in {group.method: group for group in plan.groups}.values():
        for point in _corners(plan.config.methods[group.method].search):
            cell = plan.cell(group, point)
            told = {f"methods.{group.method}": cell} | ({"refit": plan.refitted(cell)} if plan.config.refit else {})
            for where, one in told.items():
                try:
                    check(one.settings)
                except UserError as error:
                    shown = ", ".join(f"{key}: {value}" for key, value in point.items())
                    raise UserError(f"{where}{f' ({shown})' if shown else ''}: {error}") from error


def _corners(space: dict[str, Any]) -> list[dict[str, Any]]:
    """A smallest set of points that covers every value of every key; of a range that is its ends."""
    values = {key: given if isinstance(given, list) else [given["low"], given["high"]] for key, given in space.items()}
    count = max(map(len, values.values()), default=1)
    return [{key: options[min(i, len(options) - 1)] for key, options in values.items()} for i in range(count)]
