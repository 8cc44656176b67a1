"""An experiment from its configuration to its tables: trains cells, chooses on validation, measures on test."""

from __future__ import annotations

import json
import logging
import sys
from collections import deque
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rerank.errors import UserError
from rerank.experiments.cells import Cell, Group, Plan
from rerank.experiments.engines import Workers, cores_at_hand, devices_at_hand, environments
from rerank.experiments.outcome import QUERIES, Failure, Outcome, read_queries
from rerank.experiments.progress import Progress
from rerank.experiments.search import Search, make_search
from rerank.experiments.worker import note

log = logging.getLogger("rerank")


@dataclass
class _State:
    """How far a group is.

    Attributes:
        search: where its points come from.
        asked: the folders of the points asked for, in that order.
        waiting: how many of them are not through yet.
        trained: value, cell and measures of those that were trained, by folder.
    """

    search: Search
    asked: list[Path] = field(default_factory=list)
    waiting: int = 0
    trained: dict[Path, tuple[float, Cell, dict[str, Any]]] = field(default_factory=dict)

    def in_order(self) -> list[tuple[float, Cell, dict[str, Any]]]:
        """What was trained, in the order in which it was asked for, whichever was through first."""
        return [self.trained[folder] for folder in dict.fromkeys(self.asked) if folder in self.trained]

    @property
    def best(self) -> tuple[float, Cell, dict[str, Any]]:
        """The best on validation; of equal ones the first."""
        return max(self.in_order(), key=lambda found: found[0])


@dataclass
class Experiment:
    """Runs what a plan says.

    A cell that is finished is not trained again, and test lists are looked at for the chosen points only, once each.

    Attributes:
        plan: the cells.
        outcomes: what came out, by group, in the order of the plan; groups that failed are missing.
        failures: cells that failed.
        trained: all cells that were trained, with what their ``measures.json`` holds, and ``seconds``.
    """

    plan: Plan
    outcomes: dict[Group, Outcome] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    trained: list[tuple[Cell, dict[str, Any]]] = field(default_factory=list)

    def run(self) -> None:
        """Do all that is not done yet."""
        config = self.plan.config
        cores = cores_at_hand()
        workers = Workers(environments(config.jobs, cores, devices_at_hand()), self.plan.output / "workers")
        states = {group: _State(search_of(self.plan, group)) for group in self.plan.groups}
        totals = dict.fromkeys(config.methods, 0)
        for group, state in states.items():
            totals[group.method] += state.search.size
        with workers, Progress(totals, live=sys.stderr.isatty()) as progress:
            self._states, self._progress = states, progress
            self._ready: deque[tuple[str, Cell]] = deque()
            for group in states:
                self._ask(group)
            running: dict[Future[dict[str, Any]], tuple[str, Cell]] = {}
            while running or self._ready:
                while self._ready and len(running) < workers.count:
                    what, cell = self._ready.popleft()
                    progress.start(cell)
                    running[workers.submit(_job(what, cell, self.plan))] = what, cell
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    what, cell = running.pop(future)
                    progress.end(cell)
                    self._through(what, cell, future.result().get("error"))
        self.outcomes = {group: self.outcomes[group] for group in states if group in self.outcomes}
        self.trained = [found[1:] for state in states.values() for found in state.in_order()]
        self.failures.sort(key=lambda failure: self.plan.groups.index(failure.cell.group))

    def _ask(self, group: Group) -> None:
        """Queue the points that can be tried now; where there are none left, the chosen one is to be measured."""
        state = self._states[group]
        while points := state.search.ask():
            state.waiting += len(points)
            for point in points:
                cell = self.plan.cell(group, point)
                state.asked.append(cell.folder)
                if cell.finished() is not None:
                    self._trained(cell, found=True)
                else:
                    self._ready.append(("train", cell))
        if not state.waiting and state.trained:
            self._finish(state.best[1])

    def _through(self, what: str, cell: Cell, error: str | None) -> None:
        if error is not None:
            self._fail(cell, error)
        if what != "train":
            if error is None:
                (self._measure if what == "refit" else self._measured)(cell)
            return
        if error is None:
            self._trained(cell)
        else:
            self._states[cell.group].waiting -= 1
            self._states[cell.group].search.tell(cell.point, None)
        self._ask(cell.group)

    def _fail(self, cell: Cell, error: str) -> None:
        if not (cell.folder / "log.txt").is_file():
            note(cell.folder, error)
        self.failures.append(Failure(cell, error))
        self._progress.fail(cell, error)

    def _trained(self, cell: Cell, found: bool = False) -> None:
        state, measures = self._states[cell.group], cell.finished()
        assert measures is not None
        value = measures.get("validation", {}).get(cell.select)
        state.waiting -= 1
        state.search.tell(cell.point, value)
        if value is None and state.search.size > 1:
            self._fail(cell, f"no validation {cell.select} to choose by; the data must give validation lists")
            return
        state.trained[cell.folder] = value or 0.0, cell, measures
        self._progress.add(cell, value or 0.0, measures["seconds"], found)

    def _finish(self, chosen: Cell) -> None:
        cell = self.plan.refitted(chosen, best_trees(chosen) if self.plan.config.refit else None)
        if cell is chosen or cell.finished() is not None:
            self._measure(cell)
        else:
            self._ready.appendleft(("refit", cell))

    def _measure(self, cell: Cell) -> None:
        config = self.plan.config
        if read_queries(cell.folder / QUERIES, config.measures, config.empty) is not None:
            self._measured(cell)
        else:
            self._ready.appendleft(("measure", cell))

    def _measured(self, cell: Cell) -> None:
        state, config = self._states[cell.group], self.plan.config
        table = read_queries(cell.folder / QUERIES, config.measures, config.empty)
        assert table is not None
        _, chosen, measures = state.best
        validation, seconds = measures.get("validation", {}), measures["seconds"]
        if cell is not chosen and (second := cell.finished()) is not None:
            seconds += second["seconds"]
        self.outcomes[cell.group] = Outcome(chosen, cell, len(state.trained), validation, table, seconds)
        self._progress.measure(cell)


def search_of(plan: Plan, group: Group) -> Search:
    """The search of a method on a fold with a seed."""
    return make_search(plan.config.methods[group.method].search, plan.config.trials, group.seed)


def check_unchanged(plan: Plan) -> None:
    """Refuse to train again where cells of other settings are.

    Raises:
        UserError: there are some.
    """
    cells = [plan.cell(group, point) for group in plan.groups for point in search_of(plan, group).ask()]
    if changed := [(cell, key) for cell in cells if (key := cell.changed())]:
        methods = ", ".join(dict.fromkeys(cell.group.method for cell, _ in changed))
        cell, key = changed[0]
        raise UserError(
            f"{cell.folder}: was trained with another {key}; {len(changed)} cells are not as they were ({methods}). "
            f"Name another output, or remove the folders of these methods in {plan.output / 'cells'}"
        )


def check_cells(plan: Plan) -> None:
    """Let training's own parser read every method, and every value of its search.

    Raises:
        UserError: what it refuses, with the method.
    """
    import tempfile

    import yaml

    from rerank.training.command import check

    with tempfile.TemporaryDirectory() as folder:
        for group in {group.method: group for group in plan.groups}.values():
            for point in _corners(plan.config.methods[group.method].search):
                cell, file = plan.cell(group, point), Path(folder) / "cell.yaml"
                told = {f"methods.{group.method}": cell} | ({"refit": plan.refitted(cell)} if plan.config.refit else {})
                for where, one in told.items():
                    file.write_text(yaml.safe_dump(one.settings, sort_keys=False))
                    try:
                        check([f"--config={file}"])
                    except UserError as error:
                        shown = ", ".join(f"{key}: {value}" for key, value in point.items())
                        raise UserError(f"{where}{f' ({shown})' if shown else ''}: {error}") from error


def _corners(space: dict[str, Any]) -> list[dict[str, Any]]:
    """As few points as have every value of every key in them."""
    values = {key: options if isinstance(options, list) else list(_bounds(options)) for key, options in space.items()}
    count = max(map(len, values.values()), default=1)
    return [{key: options[min(i, len(options) - 1)] for key, options in values.items()} for i in range(count)]


def _bounds(options: dict[str, Any]) -> tuple[Any, Any]:
    return options["low"], options["high"]


def best_trees(cell: Cell) -> int | None:
    """How many trees of a finished cell were kept; None for networks."""
    with (cell.folder / "metrics.jsonl").open(encoding="utf-8") as file:
        lines = [line for line in map(json.loads, file) if "validation" in line]
    if not lines or "mean_loss" in lines[0]:
        return None
    monitor = next(iter(lines[0]["validation"]))
    return max(lines, key=lambda line: line["validation"][monitor])["epoch"]


def _job(what: str, cell: Cell, plan: Plan) -> dict[str, Any]:
    if what != "measure":
        return {"do": "train", "settings": cell.settings}
    return {"do": "measure", "output": str(cell.folder), "measures": plan.config.measures, "empty": plan.config.empty}


def cell_count(plan: Plan) -> int:
    """How many cells there are in all."""
    return sum(search_of(plan, group).size for group in plan.groups)
