"""The cells of an experiment, worked through: trained, chosen among on validation, measured on test."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from rerank.errors import UserError
from rerank.evaluation.measures import PerQuery
from rerank.experiments.cells import Cell, Failure, Group, Job, Outcome
from rerank.experiments.config import mixed_name
from rerank.experiments.engines import Reply, Workers, local_workers
from rerank.experiments.plan import ExperimentPlan, Identities
from rerank.experiments.rows import UntrainedRows, stored_measurement, test_lists
from rerank.experiments.worker import note
from rerank.progress import log
from rerank.retrieval.runs import Run
from rerank.settings.configs import merged
from rerank.stops import Stopped, name_of
from rerank.storage.identity import id_of
from rerank.training.configuration import configured
from rerank.training.ids import Identity, measurement_identity, run_identity
from rerank.training.measurement import kept_test_run
from rerank.training.run_folder import newest_checkpoint
from rerank.training.validate import start_of, test_run

GRACE = 25.0
"""Seconds that cells have to write their checkpoints when the experiment is stopped."""

POLL = 2.0
"""Seconds after which the workers' room is looked at again, as machines come and go."""


class Task(NamedTuple):
    """A cell, and what is to be done with it."""

    job: Job
    cell: Cell


class Died(NamedTuple):
    """Where a cell's worker died last, and the newest checkpoint at that time; empty where there was none."""

    place: str
    checkpoint: str


class Trained(NamedTuple):
    """A cell that was trained, what it reached on validation, and what its ``measures.json`` holds."""

    value: float
    cell: Cell
    measures: dict[str, Any]


Life = Generator[list[Task], str | None, None]
"""A group from its first training to its measurement: yields the tasks that it waits for, and is sent the error of the
last one. A generator and not asyncio, whose loop cannot run inside that of a notebook."""


@dataclass
class Experiment:
    """Runs what a plan says.

    A cell that is finished is not trained again, and test lists are looked at for the chosen points only, once each.

    Attributes:
        outcomes: what came out, by group, in the order of the plan; groups that failed are missing.
        mixed: the same, mixed with the first stage, where that is asked for.
        trained: all cells that were trained, with what their ``measures.json`` holds, and ``seconds``.
        share: of several processes that do parts of it side by side, the number of this one, from 0, and how many
            there are; None does all of it.
    """

    plan: ExperimentPlan
    outcomes: dict[Group, Outcome] = field(default_factory=dict)
    mixed: dict[Group, Outcome] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    trained: list[tuple[Cell, dict[str, Any]]] = field(default_factory=list)
    identities: Identities = field(default_factory=Identities)
    share: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        self._trained: dict[Group, dict[Path, Trained | None]] = {}  # by folder, in the order asked for
        self._lives: dict[Group, Life] = {}
        self._waiting: dict[Group, int] = {}  # tasks that each life waits for
        self._ready: deque[Task] = deque()
        self._died: dict[tuple[Job, Path], Died] = {}
        self._cells = self._done = self._done_before = 0
        self._started = 0.0

    def _trained_cells(self) -> list[tuple[Cell, dict[str, Any]]]:
        return [(one.cell, one.measures) for group in self._trained for one in self._in_order(group)]

    def run(self) -> None:
        part, parts = self.share or (0, 1)
        workers = workers_of(self.plan, "workers" if self.share is None else f"workers-{part}")
        groups = self.plan.groups[part::parts]
        running: dict[Future[Reply], Task] = {}
        self._cells = sum(len(self.plan.points(group)) for group in groups)
        with workers:
            try:
                for group in groups:
                    self._lives[group] = self._life(group)
                    self._advance(group)
                self._started = time.perf_counter()
                self._work(workers, running)
            except Stopped as stop:
                self._stop(stop, workers, running)
        self.outcomes = {group: self.outcomes[group] for group in groups if group in self.outcomes}
        order = [replace(group, method=mixed_name(group.method)) for group in groups]
        self.mixed = {group: self.mixed[group] for group in order if group in self.mixed}
        self.trained = self._trained_cells()
        self.failures.sort(key=lambda failure: self.plan.groups.index(failure.cell.group))

    def _life(self, group: Group) -> Life:
        cells = [self.identities.named(self.plan.cell(group, point)) for point in self.plan.points(group)]
        if self.identities.data(cells[0]).test is None:
            raise UserError(f"{cells[0]}: the data give no test lists, which an experiment measures on")
        self._trained[group] = {cell.folder: None for cell in cells}
        unfinished = [cell for cell in cells if cell.finished() is None]
        for cell in cells:
            if cell not in unfinished:
                self._note_trained(cell, before=True)
        yield [Task(Job.TRAIN, cell) for cell in unfinished]
        if not (results := self._in_order(group)):
            return
        best = max(results, key=lambda result: result.value)  # of equal ones the first
        if self.measurement(best.cell)[0] is None and (yield [Task(Job.MEASURE, best.cell)]) is not None:
            return
        self._note_measured(best, len(results))

    def _in_order(self, group: Group) -> list[Trained]:
        """What was trained, in the order in which it was asked for, whichever was through first."""
        return [result for result in self._trained[group].values() if result is not None]

    def _note_trained(self, cell: Cell, before: bool = False) -> None:
        measures = cell.finished()
        assert measures is not None
        value = measures.get("validation", {}).get(cell.monitor)
        if value is None and len(self._trained[cell.group]) > 1:
            self._fail(cell, f"no validation {cell.monitor} to choose by; the data must give validation lists")
            return
        self._trained[cell.group][cell.folder] = Trained(value or 0.0, cell, measures)
        self._done += 1
        self._done_before += before
        if not before:
            validated = "" if value is None else f"validation {cell.monitor} {value:.4f} "
            self._say("%s: %s(%.1f s%s)", cell, validated, measures["seconds"], self._left())

    def _left(self) -> str:
        """The time that the others would take at the pace of those that were trained."""
        if self._done >= self._cells:
            return ""
        pace = (time.perf_counter() - self._started) / (self._done - self._done_before)
        minutes, seconds = divmod(round(pace * (self._cells - self._done)), 60)
        return f"; {minutes // 60}:{minutes % 60:02}:{seconds:02} left"

    def _say(self, message: str, *values: object) -> None:
        log.info("[%d/%d] " + message, self._done, self._cells, *values)

    def _note_measured(self, best: Trained, tried: int) -> None:
        """Add the outcome of a group."""
        cell = best.cell
        table, file = self.measurement(cell)
        assert table is not None
        seconds, validation = best.measures["seconds"], best.measures.get("validation", {})
        start = start_of(best.measures)
        outcome = Outcome(cell, tried, validation, table, seconds, lambda: self._run(cell), file, start)
        self.outcomes[cell.group] = outcome
        mixed = UntrainedRows(self.plan, self.identities).mixed(outcome)
        if mixed is not None:
            self.mixed[mixed.group] = mixed

    def _run(self, cell: Cell) -> Run:
        identity = run_identity({"training": cell.id}, self.identities.data(cell).test or {})
        if (stored := kept_test_run(cell.folder, identity)) is not None:
            return stored
        return test_run(cell.folder, cell.id, configured(cell.settings), test_lists(cell))

    def _advance(self, group: Group, error: str | None = None) -> None:
        """Let a group go on until it waits for tasks, or is at its end."""
        try:
            while not (tasks := self._lives[group].send(error)):
                pass
        except StopIteration:
            return
        self._waiting[group] = len(tasks)
        for task in tasks:
            if task.job is Job.TRAIN:
                self._ready.append(task)
            else:  # what ends a group comes first
                self._ready.appendleft(task)

    def _work(self, workers: Workers, running: dict[Future[Reply], Task]) -> None:
        while running or self._ready:
            self._submit(workers, running)
            if self._ready and not running:
                time.sleep(POLL)  # a cluster without a machine that has room
            done, _ = wait(running, timeout=POLL, return_when=FIRST_COMPLETED)
            for future in done:
                task = running.pop(future)
                reply = future.result()
                if not self._try_again(task, reply):
                    self._through(task, error_of(reply))

    def _submit(self, workers: Workers, running: dict[Future[Reply], Task]) -> None:
        """Start what is ready, as far as workers are free."""
        waiting = []
        while self._ready:
            task = self._ready.popleft()
            died = self._died.get((task.job, task.cell.folder))
            avoid = died and died.place
            future = workers.submit(self._words(task), avoid)
            if future is not None:
                running[future] = task
                continue
            waiting.append(task)
            if avoid is None:  # a cell that waits for another machine does not keep the others back
                break
        self._ready.extendleft(reversed(waiting))

    def _try_again(self, task: Task, reply: Reply) -> bool:
        """Queue a task again whose worker died, or was stopped by others: once, and again whenever it got further."""
        key, checkpoint = (task.job, task.cell.folder), newest_checkpoint(task.cell.folder)
        died = self._died.get(key)
        if not {"died", "stopped"} & reply.keys() or (died and checkpoint <= died.checkpoint):
            return False
        self._died[key] = Died(reply["place"], checkpoint)
        log.warning("%s: %s; trying again", task.cell, error_of(reply))
        self._ready.appendleft(task)
        return True

    def _through(self, task: Task, error: str | None) -> None:
        if error is not None:
            self._fail(task.cell, error)
        elif task.job is Job.TRAIN:
            self._note_trained(task.cell)
        group = task.cell.group
        self._waiting[group] -= 1
        if not self._waiting[group]:
            self._advance(group, error)

    def _fail(self, cell: Cell, error: str) -> None:
        if not (cell.folder / "log.txt").is_file():
            note(cell.folder, error)
        self.failures.append(Failure(cell, error))
        self._done += 1
        self._say("failed: %s: %s", cell, error)

    def _stop(self, stop: Stopped, workers: Workers, running: Mapping[Future[Reply], Task]) -> NoReturn:
        """Let the cells under way write their checkpoints, and say how to resume."""
        by, output = name_of(stop.number), self.plan.output
        log.warning("%s: cells stop at their next steps; once more to leave at once", by)
        workers.ask_to_stop()
        wait(running, timeout=GRACE)
        for future, task in running.items():
            if future.done() and error_of(future.result()) is None:
                self._through(task, None)
        trained = len(self._trained_cells())
        said = f"stopped by {by}; {trained} of {self._cells} cells are trained; the same command resumes {output}"
        raise Stopped(stop.number, said) from None

    def _words(self, task: Task) -> dict[str, Any]:
        job, cell = task
        words = {"do": job, "settings": cell.settings, "folder": str(cell.folder.absolute()), "id": cell.id}
        if job is not Job.MEASURE:
            return words
        config = self.plan.config
        expected = id_of(self._measurement_identity(cell, self.identities.data(cell).test or {}))
        return words | {"measures": config.measures, "empty": config.empty, "expected": expected}

    def measurement(self, cell: Cell) -> tuple[PerQuery | None, Path | None]:
        """The test measures of every query, where the cell was measured on the test lists as they are; their file."""
        test = self.identities.data(cell).test
        if test is None:
            return None, None
        return stored_measurement(cell.folder, self._measurement_identity(cell, test))

    def _measurement_identity(self, cell: Cell, test: dict[str, str]) -> Identity:
        config = self.plan.config
        return measurement_identity({"training": cell.id}, test, config.measures, config.empty)


def workers_of(plan: ExperimentPlan, logs_in: str = "workers") -> Workers:
    """The workers of an experiment, on this machine or on a cluster; their logs are in a folder of its."""
    config, logs = plan.config, plan.output / logs_in
    if config.engine == "local":
        return local_workers(config.jobs, logs)
    from rerank.experiments.on_ray import ray_workers

    precisions = [merged(config.base, method.set).get("precision", "auto") for method in config.methods.values()]
    return ray_workers(plan.output, logs, config.num_cpus, config.num_gpus, "auto" in precisions, config.jobs)


def error_of(reply: Mapping[str, Any]) -> str | None:
    """Why a worker did not do a job; None where it did."""
    return f"its process was stopped ({reply['stopped']})" if "stopped" in reply else reply.get("error")
