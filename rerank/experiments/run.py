"""Training, choosing and measuring the cells of an experiment."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from concurrent.futures import Future, as_completed, wait
from typing import NoReturn

from rerank.evaluation.measures import Evaluator, PerQuery
from rerank.experiments.cells import Cell, Failure, Group, Outcome
from rerank.experiments.config import FIRST_STAGE, interpolated_name
from rerank.experiments.engines import Workers, local_workers
from rerank.experiments.plan import ExperimentPlan
from rerank.experiments.worker import Job, note
from rerank.progress import log
from rerank.retrieval.fuse import fuse
from rerank.retrieval.runs import Run, read_run
from rerank.stops import Stopped, name_of
from rerank.training.run_folder import TEST_RUN

GRACE = 25.0
"""Seconds that cells have to write their checkpoints when the experiment is stopped."""


class Experiment:
    """Runs a plan: a finished cell is not trained again, and test lists are ranked by the chosen cells only.

    Attributes:
        plan: the plan.
        share: the number of this process, from 0, and the count of processes that share the cells; None does all.
        outcomes: outcomes by group, in the order of the plan; groups that failed are missing.
        failures: cells that failed.
    """

    def __init__(self, plan: ExperimentPlan, share: tuple[int, int] | None = None) -> None:
        self.plan, self.share = plan, share
        self.outcomes: dict[Group, Outcome] = {}
        self.failures: list[Failure] = []
        self._evaluators: dict[int, Evaluator] = {}
        self._every: list[Cell] = []
        self._done = 0

    def run(self) -> None:
        """Train all cells, rank the test lists with the chosen ones, and measure these."""
        part, parts = self.share or (0, 1)
        groups = self.plan.groups[part::parts]
        cells = {group: self._cells(group) for group in groups}
        self._every = [cell for some in cells.values() for cell in some]
        unfinished = [cell for cell in self._every if cell.results() is None]
        self._done = len(self._every) - len(unfinished)
        with self._workers() as workers:
            self._work(workers, unfinished, train=True)
            chosen = {group: cell for group, some in cells.items() if (cell := self._best(some)) is not None}
            unranked = [cell for cell in chosen.values() if not (cell.folder / TEST_RUN).is_file()]
            self._work(workers, unranked, train=False)
        for group, cell in chosen.items():
            if (cell.folder / TEST_RUN).is_file():
                tried = sum(other.results() is not None for other in cells[group])
                self.outcomes[group] = self._outcome(cell, tried)
        self.failures.sort(key=lambda failure: self.plan.groups.index(failure.cell.group))

    def _cells(self, group: Group) -> list[Cell]:
        return [self.plan.inputs.named(self.plan.cell(group, point)) for point in self.plan.points(group)]

    def _workers(self) -> Workers:
        config = self.plan.config
        if config.engine == "local":
            logs = "workers" if self.share is None else f"workers-{self.share[0]}"
            return local_workers(config.jobs, self.plan.output / logs)
        from rerank.experiments.on_ray import ray_workers

        return ray_workers(self.plan.output, config.num_cpus, config.num_gpus, config.jobs)

    def _work(self, workers: Workers, cells: Sequence[Cell], train: bool) -> None:
        """Have cells trained, or their test lists ranked."""
        running: dict[Future[str], Cell] = {}
        try:
            for cell in cells:
                job: Job = {"settings": cell.settings, "folder": str(cell.folder.absolute())}
                running[workers.submit(job | ({"fingerprint": cell.fingerprint} if train else {}))] = cell
            for future in as_completed(running):
                self._note(running[future], future.result(), train)
        except Stopped as stop:
            self._stop(stop, workers, running)

    def _note(self, cell: Cell, error: str, train: bool) -> None:
        self._done += train
        if not error and cell.results() is None:
            error = f"left no results in {cell.folder}; do all machines see the same disk?"
        if error:
            self._fail(cell, error)
        elif train:
            value = _validation(cell)
            measured = "" if value is None else f"validation {cell.monitor} {value:.4f} "
            log.info("[%d/%d] %s: %s(%.1f s)", self._done, len(self._every), cell, measured, cell.seconds)

    def _fail(self, cell: Cell, error: str) -> None:
        if not (cell.folder / "log.txt").is_file():
            note(cell.folder, error)
        self.failures.append(Failure(cell, error))
        log.info("[%d/%d] failed: %s: %s", self._done, len(self._every), cell, error)

    def _best(self, cells: Sequence[Cell]) -> Cell | None:
        """Choose the cell with the best monitor on validation, the first of equal ones."""
        measured = []
        for cell in cells:
            if cell.results() is not None and _validation(cell) is None and len(cells) > 1:
                self._fail(cell, f"no validation {cell.monitor} to choose by; the data must give validation lists")
            elif cell.results() is not None:
                measured.append(cell)
        return max(measured, key=lambda cell: _validation(cell) or 0.0, default=None)

    def _outcome(self, cell: Cell, tried: int) -> Outcome:
        results = cell.results()
        assert results is not None
        validation = results.validation["model"].mean if results.validation else {}
        test = self._measure(cell, read_run(cell.folder / TEST_RUN))
        return Outcome(cell, tried, validation, test, cell.seconds)

    def _measure(self, cell: Cell, run: Run) -> PerQuery:
        config, lists = self.plan.config, self.plan.inputs.test(cell)
        if id(lists) not in self._evaluators:
            self._evaluators[id(lists)] = Evaluator(lists.qrels or {}, config.measures, config.empty)
        return self._evaluators[id(lists)](run, str(cell))

    def first_stage_rows(self) -> dict[Group, Outcome]:
        """Measure the first stage as deep as it was reranked, and methods interpolated with it if that is asked for.

        If methods rerank different lists, the first stage's row has those of the first method with a first stage.
        """
        config = self.plan.config
        alone: dict[Group, Outcome] = {}
        interpolated: dict[Group, Outcome] = {}
        for group, outcome in self.outcomes.items():
            lists = self.plan.inputs.test(outcome.cell)
            if config.first_stage == "hide" or lists.store.order is None:
                continue
            first = Group(FIRST_STAGE, group.fold, config.seeds[0])
            if first not in alone:
                run = lists.run(lists.store.order)  # ties as trec_eval breaks them
                alone[first] = self._untrained(first, outcome, run, 0.0)
            results = outcome.cell.results()
            if config.first_stage == "interpolate" and results and (weight := results.first_stage_weight) is not None:
                both_ranked = Group(interpolated_name(group.method), group.fold, group.seed)
                both = fuse([lists.run(), read_run(outcome.cell.folder / TEST_RUN)], [weight, 1 - weight])
                interpolated[both_ranked] = self._untrained(both_ranked, outcome, both, outcome.seconds)
        return {**alone, **self.outcomes, **interpolated}

    def _untrained(self, group: Group, like: Outcome, run: Run, seconds: float) -> Outcome:
        cell = Cell(group, {}, self.plan.folder(group), {}, like.cell.monitor)
        return Outcome(cell, 0, {}, self._measure(like.cell, run), seconds)

    def _stop(self, stop: Stopped, workers: Workers, running: dict[Future[str], Cell]) -> NoReturn:
        """Let cells write their checkpoints, and say how to resume."""
        by, output = name_of(stop.number), self.plan.output
        log.warning("%s: runs stop at their next steps; once more to leave at once", by)
        for future in running:
            future.cancel()
        workers.stop(signal.SIGTERM)
        wait(running, timeout=GRACE)
        trained = sum(cell.results() is not None for cell in self._every)
        said = f"stopped by {by}; {trained} of {len(self._every)} runs are trained; the same command resumes {output}"
        raise Stopped(stop.number, said) from None


def _validation(cell: Cell) -> float | None:
    results = cell.results()
    return None if results is None or not results.validation else results.validation["model"].mean[cell.monitor]
