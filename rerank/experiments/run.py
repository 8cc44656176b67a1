"""Training, choosing and measuring the trials of an experiment."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from concurrent.futures import Future, as_completed, wait
from typing import NoReturn

from rerank.evaluation.measures import Evaluator, PerQuery
from rerank.experiments.config import FIRST_STAGE, interpolated_name
from rerank.experiments.engines import Workers, local_workers
from rerank.experiments.plan import ExperimentPlan
from rerank.experiments.trials import Failure, Group, Outcome, Trial
from rerank.experiments.worker import Job, note
from rerank.progress import log
from rerank.retrieval.fuse import fuse
from rerank.retrieval.runs import Run, read_run
from rerank.stops import Stopped, name_of
from rerank.training.run_folder import TEST_RUN


class Experiment:
    """Runs a plan: a finished trial is not trained again, and test lists are ranked by the chosen trials only.

    Attributes:
        plan: the plan.
        share: the number of this process, from 0, and the count of processes that share the trials; None does all.
        outcomes: outcomes by group, in the order of the plan; groups that failed are missing.
        failures: trials that failed.
    """

    def __init__(self, plan: ExperimentPlan, share: tuple[int, int] | None = None) -> None:
        self.plan, self.share = plan, share
        self.outcomes: dict[Group, Outcome] = {}
        self.failures: list[Failure] = []
        self._evaluators: dict[int, Evaluator] = {}
        self._every: list[Trial] = []
        self._done = 0

    def run(self) -> None:
        """Train all trials, rank the test lists with the chosen ones, and measure these."""
        part, parts = self.share or (0, 1)
        groups = self.plan.groups[part::parts]
        trials = {group: self._trials(group) for group in groups}
        self._every = [trial for some in trials.values() for trial in some]
        unfinished = [trial for trial in self._every if trial.results() is None]
        self._done = len(self._every) - len(unfinished)
        with self._workers() as workers:
            self._work(workers, unfinished, train=True)
            chosen = {group: trial for group, some in trials.items() if (trial := self._best(some)) is not None}
            unranked = [trial for trial in chosen.values() if not (trial.folder / TEST_RUN).is_file()]
            self._work(workers, unranked, train=False)
        for group, trial in chosen.items():
            if (trial.folder / TEST_RUN).is_file():
                tried = sum(other.results() is not None for other in trials[group])
                self.outcomes[group] = self._outcome(trial, tried)
        self.failures.sort(key=lambda failure: self.plan.groups.index(failure.trial.group))

    def _trials(self, group: Group) -> list[Trial]:
        return [self.plan.inputs.named(self.plan.trial(group, point)) for point in self.plan.points(group)]

    def _workers(self) -> Workers:
        config = self.plan.config
        if config.engine == "local":
            logs = "workers" if self.share is None else f"workers-{self.share[0]}"
            return local_workers(config.jobs, self.plan.output / logs)
        from rerank.experiments.on_ray import ray_workers

        return ray_workers(self.plan.output, config.num_cpus, config.num_gpus, config.jobs)

    def _work(self, workers: Workers, trials: Sequence[Trial], train: bool) -> None:
        """Have trials trained, or their test lists ranked."""
        running: dict[Future[str], Trial] = {}
        try:
            for trial in trials:
                job: Job = {"settings": trial.settings, "folder": str(trial.folder.absolute())}
                running[workers.submit(job | ({"fingerprint": trial.fingerprint} if train else {}))] = trial
            for future in as_completed(running):
                self._note(running[future], future.result(), train)
        except Stopped as stop:
            self._stop(stop, workers, running)

    def _note(self, trial: Trial, error: str, train: bool) -> None:
        self._done += train
        if not error and trial.results() is None:
            error = f"left no results in {trial.folder}; do all machines see the same disk?"
        if error:
            self._fail(trial, error)
        elif train:
            value = _validation(trial)
            measured = "" if value is None else f"validation {trial.monitor} {value:.4f} "
            log.info("[%d/%d] %s: %s(%.1f s)", self._done, len(self._every), trial, measured, trial.seconds)

    def _fail(self, trial: Trial, error: str) -> None:
        if not (trial.folder / "log.txt").is_file():
            note(trial.folder, error)
        self.failures.append(Failure(trial, error))
        log.info("[%d/%d] failed: %s: %s", self._done, len(self._every), trial, error)

    def _best(self, trials: Sequence[Trial]) -> Trial | None:
        """Choose the trial with the best monitor on validation, the first of equal ones."""
        measured = []
        for trial in trials:
            if trial.results() is not None and _validation(trial) is None and len(trials) > 1:
                self._fail(trial, f"no validation {trial.monitor} to choose by; the data must give validation lists")
            elif trial.results() is not None:
                measured.append(trial)
        return max(measured, key=lambda trial: _validation(trial) or 0.0, default=None)

    def _outcome(self, trial: Trial, tried: int) -> Outcome:
        results = trial.results()
        assert results is not None
        validation = results.validation["model"].mean if results.validation else {}
        test = self._measure(trial, read_run(trial.folder / TEST_RUN))
        return Outcome(trial, tried, validation, test, trial.seconds)

    def _measure(self, trial: Trial, run: Run) -> PerQuery:
        config, lists = self.plan.config, self.plan.inputs.test(trial)
        if id(lists) not in self._evaluators:
            self._evaluators[id(lists)] = Evaluator(lists.qrels or {}, config.measures, config.empty)
        return self._evaluators[id(lists)](run, str(trial))

    def first_stage_rows(self) -> dict[Group, Outcome]:
        """Measure the first stage as deep as it was reranked, and methods interpolated with it if that is asked for.

        If methods rerank different lists, the first stage's row has those of the first method with a first stage.
        """
        config = self.plan.config
        alone: dict[Group, Outcome] = {}
        interpolated: dict[Group, Outcome] = {}
        for group, outcome in self.outcomes.items():
            lists = self.plan.inputs.test(outcome.trial)
            if config.first_stage == "hide" or lists.store.order is None:
                continue
            first = Group(FIRST_STAGE, group.fold, config.seeds[0])
            if first not in alone:
                run = lists.run(lists.store.order)  # ties as trec_eval breaks them
                alone[first] = self._untrained(first, outcome, run, 0.0)
            results = outcome.trial.results()
            if config.first_stage == "interpolate" and results and (weight := results.first_stage_weight) is not None:
                both_ranked = Group(interpolated_name(group.method), group.fold, group.seed)
                both = fuse([lists.run(), read_run(outcome.trial.folder / TEST_RUN)], [weight, 1 - weight])
                interpolated[both_ranked] = self._untrained(both_ranked, outcome, both, outcome.seconds)
        return {**alone, **self.outcomes, **interpolated}

    def _untrained(self, group: Group, like: Outcome, run: Run, seconds: float) -> Outcome:
        trial = Trial(group, {}, self.plan.folder(group), {}, like.trial.monitor)
        return Outcome(trial, 0, {}, self._measure(like.trial, run), seconds)

    def _stop(self, stop: Stopped, workers: Workers, running: dict[Future[str], Trial]) -> NoReturn:
        """Let trials write their checkpoints, and say how to resume."""
        by, output = name_of(stop.number), self.plan.output
        log.warning("%s: runs stop at their next steps; once more to leave at once", by)
        for future in running:
            future.cancel()
        workers.stop(signal.SIGTERM)
        wait(running)  # a step may take a minute; a second signal stops at once
        trained = sum(trial.results() is not None for trial in self._every)
        said = f"stopped by {by}; {trained} of {len(self._every)} runs are trained; the same command resumes {output}"
        raise Stopped(stop.number, said) from None


def _validation(trial: Trial) -> float | None:
    results = trial.results()
    return None if results is None or not results.validation else results.validation["model"].mean[trial.monitor]
