"""The cells of an experiment, worked through: trained, chosen among on validation, measured on test."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from rerank.errors import NoModelError
from rerank.evaluation.measures import PerQuery
from rerank.experiments.cells import Cell, Group, Job, Plan
from rerank.experiments.engines import Reply, Workers, local_workers
from rerank.experiments.identities import Identities
from rerank.experiments.keep import Kept, collect, key_of, merge, restore, still_lacking, write_kept
from rerank.experiments.outcome import Failure, Outcome
from rerank.experiments.power import power_before
from rerank.experiments.progress import Progress
from rerank.experiments.rows import Rows, test_lists
from rerank.experiments.search import Search, make_search
from rerank.experiments.worker import note
from rerank.retrieval.runs import Run
from rerank.settings.configs import merged
from rerank.stops import Stopped, name_of
from rerank.storage.identity import id_of
from rerank.storage.locks import held, tidied
from rerank.training.configuration import configured
from rerank.training.ids import Identity, file_of, measurement_identity, run_identity
from rerank.training.measurement import kept_test_run, read_measurement
from rerank.training.validate import test_run

log = logging.getLogger("rerank")

GRACE = 25.0
"""Seconds that cells have to write their checkpoints when the experiment is stopped."""
POLL = 2.0
"""Seconds after which the workers' room is looked at again, as machines come and go."""


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
        mixed: the same, mixed with the first stage, where that is asked for.
        failures: cells that failed.
        trained: all cells that were trained, with what their ``measures.json`` holds, and ``seconds``.
        identities: which trainings the cells are.
        stopped: methods that the rule of futility gave up, with their mean on validation and the best one's.
        share: of several processes that do parts of it side by side, the number of this one, from 0, and how many
            there are; None does all of it.
    """

    plan: Plan
    outcomes: dict[Group, Outcome] = field(default_factory=dict)
    mixed: dict[Group, Outcome] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    trained: list[tuple[Cell, dict[str, Any]]] = field(default_factory=list)
    identities: Identities = field(default_factory=Identities)
    stopped: dict[str, tuple[float, float]] = field(default_factory=dict)
    share: tuple[int, int] | None = None

    def run(self) -> None:
        """Do all that is not done yet."""
        config = self.plan.config
        if config.keep and Path(config.keep).is_file() and (count := restore(config.keep, self.plan.output)):
            log.info("%s: %d files of finished cells restored from it", config.keep, count)
        log.info("%s", self.power())
        part, parts = self.share or (0, 1)
        workers = workers_of(self.plan, "workers" if self.share is None else f"workers-{part}")
        states = {group: _State(search_of(self.plan, group)) for group in self.plan.groups[part::parts]}
        totals = dict.fromkeys(config.methods, 0)
        for group, state in states.items():
            totals[group.method] += state.search.size
        with workers, Progress(totals, live=sys.stderr.isatty()) as progress:
            self._states, self._progress = states, progress
            self._ready: deque[tuple[Job, Cell]] = deque()
            self._died: dict[tuple[Job, Path], str] = {}
            self._next_keep = 0.0
            early = config.seeds if config.futility is None else config.seeds[: config.futility.after]
            late = [group for group in states if group.seed not in early]
            for group in states:
                if group not in late:
                    self._ask(group)
            running: dict[Future[Reply], tuple[Job, Cell]] = {}
            try:
                self._work(workers, running, late)
            except Stopped as stop:
                self._stop(stop, workers, running)
        self.outcomes = {group: self.outcomes[group] for group in states if group in self.outcomes}
        self.trained = self._trained_cells()
        for cell in [*(one.measured for one in self.outcomes.values()), *(cell for cell, _ in self.trained)]:
            tidied(cell.folder)
        self.failures.sort(key=lambda failure: self.plan.groups.index(failure.cell.group))

    def _work(self, workers: Workers, running: dict[Future[Reply], tuple[Job, Cell]], late: list[Group]) -> None:
        """Let the workers do what is ready until nothing is."""
        while running or self._ready or late:
            if not running and not self._ready:
                self._give_up()
                for group in late:
                    if group.method not in self.stopped:
                        self._ask(group)
                    else:
                        self._progress.totals[group.method] -= self._states[group].search.size
                late = []
            self._submit(workers, running)
            if self._ready and not running:
                time.sleep(POLL)  # a cluster without a machine that has room
            done, _ = wait(running, timeout=POLL, return_when=FIRST_COMPLETED)
            for future in done:
                job, cell = running.pop(future)
                self._progress.end(cell)
                reply = future.result()
                if not self._try_again(job, cell, reply):
                    self._through(job, cell, error_of(reply))

    def _stop(self, stop: Stopped, workers: Workers, running: Mapping[Future[Reply], tuple[Job, Cell]]) -> NoReturn:
        """Let the cells under way write their checkpoints, and say how to resume.

        Raises:
            Stopped: always.
        """
        by, output = name_of(stop.number), self.plan.output
        log.warning("%s: cells stop at their next steps; once more to leave at once", by)
        workers.ask_to_stop()
        wait(running, timeout=GRACE)
        for future, (job, cell) in running.items():
            if future.done() and error_of(future.result()) is None:
                self._through(job, cell, None)
        self.keep(through=False)
        trained, cells = len(self._trained_cells()), sum(self._progress.totals.values())
        said = f"stopped by {by}; {trained} of {cells} cells are trained; the same command resumes {output}"
        raise Stopped(stop.number, said) from None

    def _submit(self, workers: Workers, running: dict[Future[Reply], tuple[Job, Cell]]) -> None:
        """Start what is ready, as far as workers are free."""
        waiting = []
        while self._ready:
            job, cell = self._ready.popleft()
            elsewhere = self._died.get((job, cell.folder))
            future = workers.submit(self._words(job, cell), avoid=elsewhere)
            if future is not None:
                self._progress.start(cell)
                running[future] = job, cell
                continue
            waiting.append((job, cell))
            if elsewhere is None:  # a cell that waits for another machine does not keep the others back
                break
        self._ready.extendleft(reversed(waiting))

    def _try_again(self, job: Job, cell: Cell, reply: Reply) -> bool:
        """Queue a job again whose worker died, or was stopped by others, for the first time; elsewhere if it can be."""
        if not {"died", "stopped"} & reply.keys() or (job, cell.folder) in self._died:
            return False
        self._died[job, cell.folder] = reply["place"]
        log.warning("%s: %s; trying again", cell, error_of(reply))
        self._ready.appendleft((job, cell))
        return True

    def _words(self, job: Job, cell: Cell) -> dict[str, Any]:
        """A job as it is sent to a worker."""
        words = {"do": job, "settings": cell.settings, "folder": str(cell.folder.absolute()), "id": cell.id}
        if job is not Job.MEASURE:
            return words
        config = self.plan.config
        expected = id_of(self._measurement_identity(cell, self.identities.data(cell).test or {}))
        return words | {"measures": config.measures, "empty": config.empty, "expected": expected}

    def power(self) -> str:
        """A sentence on the differences that this experiment could find."""
        return power_before(self.plan, self.identities, lambda cell: self.measurement(cell)[0])

    def _give_up(self) -> None:
        """Apply the rule of futility to what the first seeds reached on validation."""
        found: dict[str, list[float]] = {}
        for group, state in self._states.items():
            if state.trained:
                found.setdefault(group.method, []).append(state.best[0])
        rule, means = self.plan.config.futility, {method: sum(got) / len(got) for method, got in found.items()}
        best = max(means.values(), default=0.0)
        for method, mean in means.items():
            if rule is not None and mean <= best - rule.difference and method != self.plan.config.baseline:
                self.stopped[method] = mean, best
                log.info(
                    "%s: stopped for futility after %d seeds: validation %.4f, the best %.4f, rule: %g below",
                    *(method, rule.after, mean, best, rule.difference),
                )

    def _trained_cells(self) -> list[tuple[Cell, dict[str, Any]]]:
        return [found[1:] for state in self._states.values() for found in state.in_order()]

    def kept(self) -> list[Kept]:
        """The files by which this experiment resumes on another machine."""
        return collect(self.plan.output, self._trained_cells(), [*self.outcomes.values(), *self.mixed.values()])

    def keep(self, through: bool = True) -> None:
        """Write what is finished to the file that the configuration names; other parts of the experiment stay there.

        Args:
            through: whether the experiment is: until then what the file has of groups still to come stays, too.
        """
        path = self.plan.config.keep
        if path is not None and self.share is None:
            planned = [key_of(group) for group in self.plan.groups if group.method not in self.stopped]
            with held(path, "rerank experiment", wait=True):  # other parts of the experiment may write there, too
                files = merge(path, self.kept(), planned if through else [])
                write_kept(path, files, still_lacking(path, files, planned))

    def _ask(self, group: Group) -> None:
        """Queue the points that can be tried now; where there are none left, the chosen one is to be measured."""
        state = self._states[group]
        while points := state.search.ask():
            state.waiting += len(points)
            for point in points:
                cell = self.identities.named(self.plan.cell(group, point))
                state.asked.append(cell.folder)
                if cell.finished() is not None:
                    self._trained(cell, found=True)
                else:
                    self._ready.append((Job.TRAIN, cell))
        if not state.waiting and state.trained:
            self._finish(state.best[1])

    def _through(self, job: Job, cell: Cell, error: str | None) -> None:
        if error is not None:
            self._fail(cell, error)
        match job:
            case Job.TRAIN:
                if error is None:
                    self._trained(cell)
                else:
                    self._states[cell.group].waiting -= 1
                    self._states[cell.group].search.tell(cell.point, None)
                self._ask(cell.group)
            case Job.REFIT if error is None:
                self._measure(cell)
            case Job.MEASURE if error is None:
                self._measured(cell)
        if error is None and time.perf_counter() >= self._next_keep:
            started = time.perf_counter()
            self.keep(through=False)
            now = time.perf_counter()
            self._next_keep = now + 20 * (now - started)  # a twentieth of the time at most

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
        """Train what validation chose a second time, where that is asked for, and measure it."""
        if not self.plan.config.refit:
            self._measure(chosen)
            return
        _, _, measures = self._states[chosen.group].best
        trees = measures.get("trees") if "validation" in measures else None
        cell = self.identities.named(self.plan.refitted(chosen, trees))
        if cell.finished() is not None:
            self._measure(cell)
        else:
            self._ready.appendleft((Job.REFIT, cell))

    def _measure(self, cell: Cell) -> None:
        if self.measurement(cell)[0] is not None:
            self._measured(cell)
        elif cell.restored:
            self._train_again(cell, "a measurement on these test lists")
        else:
            self._ready.appendleft((Job.MEASURE, cell))

    def _train_again(self, cell: Cell, lacking: str) -> None:
        log.warning("%s: kept without %s; it is trained again", cell, lacking)
        with held(cell.folder, "rerank experiment", wait=True):
            if cell.restored:  # another part of the experiment may have trained it again already
                shutil.rmtree(cell.folder)
        self._ready.appendleft((Job.REFIT, cell))

    def _measured(self, cell: Cell) -> None:
        state = self._states[cell.group]
        table, file = self.measurement(cell)
        assert table is not None
        _, chosen, measures = state.best
        validation, seconds = measures.get("validation", {}), measures["seconds"]
        if cell.again and (second := cell.finished()) is not None:
            seconds += second["seconds"]

        def run() -> Run:
            hashes = self.identities.data(cell).test
            kept = kept_test_run(cell.folder, run_identity({"training": cell.id}, hashes or {}))
            if kept is not None:
                return kept
            return test_run(cell.folder, cell.id, configured(cell.settings), test_lists(cell))

        outcome = Outcome(chosen, cell, len(state.trained), validation, table, seconds, run, file)
        try:
            mixed = Rows(self.plan, self.identities).mixed(outcome)
        except NoModelError:
            if not cell.restored:
                raise
            self._train_again(cell, "its mixture with the first stage")
            return
        self.outcomes[cell.group] = outcome
        if mixed is not None:
            self.mixed[mixed.group] = mixed
        self._progress.measure(cell)

    def measurement(self, cell: Cell) -> tuple[PerQuery | None, Path | None]:
        """The test measures of every query, where the cell was measured on the test lists as they are; their file."""
        test = self.identities.data(cell).test
        if test is None:
            return None, None
        identity = self._measurement_identity(cell, test)
        found = read_measurement(cell.folder, identity)
        return (None, None) if found is None else (found[0], cell.folder / file_of(id_of(identity)))

    def _measurement_identity(self, cell: Cell, test: dict[str, str]) -> Identity:
        config = self.plan.config
        return measurement_identity({"training": cell.id}, test, config.measures, config.empty)


def workers_of(plan: Plan, logs_in: str = "workers") -> Workers:
    """The workers of an experiment, on this machine or on a cluster; their logs are in a folder of its."""
    config, logs = plan.config, plan.output / logs_in
    if config.engine == "local":
        return local_workers(config.jobs, logs)
    from rerank.experiments.on_ray import ray_workers

    told = [merged(config.base, method.set).get("precision", "auto") for method in config.methods.values()]
    return ray_workers(plan.output, logs, config.num_cpus, config.num_gpus, "auto" in told, config.jobs)


def error_of(reply: Mapping[str, Any]) -> str | None:
    """Why a worker did not do a job; None where it did."""
    return f"its process was stopped ({reply['stopped']})" if "stopped" in reply else reply.get("error")


def search_of(plan: Plan, group: Group) -> Search:
    """The search of a method on a fold with a seed."""
    return make_search(plan.config.methods[group.method].search, plan.config.trials, group.seed)
