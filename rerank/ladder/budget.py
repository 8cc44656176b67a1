"""What there is time for within the hours of a ladder."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rerank.ladder.plan import BATCH, OWN, SHARES, STEPS, Plan, passes, training
from rerank.ladder.split import Split
from rerank.lists.view import Lists
from rerank.models.load import load_model
from rerank.progress import log
from rerank.scoring.shared import scores_by
from rerank.storage.hashes import read_sealed, write_sealed
from rerank.training.fit import fit

PROBE = 8
"""Steps whose pace says what fits into the hours, and lists that are scored for it."""

LEAST = 50
"""Steps of the shortest training that is worth its time."""

END = 5.0
"""Seconds that tables, intervals and the page take at the end, about."""

LATE = 1.2
"""Times the hours after which the ladder says what took so long."""


class Budget:
    """The time of one ladder."""

    def __init__(
        self, plan: Plan, folder: Path, started: float, validation: Split, done: Mapping[str, dict[str, Any]]
    ) -> None:
        self.plan, self.folder, self.validation, self.done = plan, folder, validation, done
        self._started = started
        self.earlier = 0.0
        """Seconds of the rungs and trainings that an earlier process made."""

    @property
    def gone(self) -> float:
        """Seconds since the ladder was begun, those between processes not counted."""
        return self.earlier + time.perf_counter() - self._started

    @property
    def left(self) -> float:
        """Seconds that are left of the hours."""
        return float("inf") if self.plan.hours is None else 3600 * self.plan.hours - self.gone

    def documents(self, start: tuple[str, str]) -> bool:
        """Whether there is time for documents alone, and two passes over the judged lists after it, or 300 steps."""

        def fits() -> bool:
            if self.left < END:
                return False
            pace = self._pace(start)
            own = 8 * len(Lists.open(self.folder / "lists" / OWN)) * pace["seconds to train"]
            scored = (self.validation.lists.size + self._rows("test")) * pace["seconds to score"]
            alone = pace["seconds to begin"] + own + scored
            judged = min(2 * self._pass(pace), STEPS * self._step(pace))
            return alone + self._seed(pace) + judged + self.after((OWN, "head"), 1) < self.left

        return self.plan.hours is None or bool(self._decided("documents", fits))

    def passes(self, start: tuple[str, str]) -> int:
        """How many passes over the judged lists there is time for, by one seed; at most as many as are wanted."""
        wanted = passes(len(self.plan.lists["train"]))
        if self.plan.hours is None or start[1] in ("trees", "network"):
            return wanted

        def most() -> int:
            if self.left < END:
                return 0
            fit = int(np.clip(self._room(start) // self._pass(self._pace(start)), 0, wanted))
            log.info("%d of %d passes of a seed fit into %g hours", fit, wanted, self.plan.hours)
            return fit

        return int(self._decided("passes", most))

    def steps(self, start: tuple[str, str]) -> int:
        """How many steps there is time for where one pass takes too long; 0 where they are too few to learn from."""

        def most() -> int:
            fit = int(self._room(start) // self._step(self._pace(start))) if self.left > END else 0
            return fit if fit >= LEAST else 0

        return int(self._decided("steps", most))

    def after(self, start: tuple[str, str], seeds: int) -> float:
        """Seconds of what comes after the training of the seeds: averages and their scores, and the test lists."""
        if self.plan.hours is None or start[1] in ("trees", "network"):
            return END
        averages = (seeds > 1) + len(SHARES) * (start[1] == "head")  # a drawn head is no part of an average
        trained = 3 if averages else 1  # the best seed, and perhaps others: an average, what is mixed
        models = sum(name in self.done for name in ("as published", "from documents alone")) + trained
        rows = averages * self._rows("validation") + models * self._rows("test")
        share = self._rows("test") / self.validation.lists.size
        cosines = self.done["other evidence"]["seconds"] if "other evidence" in self.done else 0.0
        return rows * self._pace(start)["seconds to score"] + share * cosines + END

    def _room(self, start: tuple[str, str]) -> float:
        """Seconds for the steps of one seed."""
        return self.left - self._seed(self._pace(start)) - self.after(start, 1)

    def _seed(self, pace: Mapping[str, float]) -> float:
        """Seconds of one seed but for its passes: its beginning, and its scores on validation."""
        return pace["seconds to begin"] + self._rows("validation") * pace["seconds to score"]

    def _pass(self, pace: Mapping[str, float]) -> float:
        """Seconds of one pass over the judged lists."""
        return len(self.plan.lists["train"]) / BATCH * self._step(pace)

    def _step(self, pace: Mapping[str, float]) -> float:
        """Seconds of one step."""
        return BATCH * pace["documents a list"] * pace["seconds to train"]

    def _rows(self, name: str) -> int:
        """Candidates of the lists that what judgments trained is measured on."""
        if name == "validation":
            return self.validation.lists.select(self.validation.held).size
        return self.plan.lists[name].size if name in self.plan.lists else 0

    def _decided(self, name: str, decide: Callable[[], Any]) -> Any:
        """What was decided, by this process or by one that was killed later."""
        path = self.folder / "budget.json"
        if not (path.is_file() and name in read_sealed(path)):
            decision = decide()  # which may decide something else first
            write_sealed(path, (read_sealed(path) if path.is_file() else {}) | {name: decision})
        return read_sealed(path)[name]

    def _pace(self, start: tuple[str, str]) -> dict[str, float]:
        """Seconds of a document, in training and in scoring, and of a training's start."""
        return self._decided("pace", lambda: self._measured(start))

    def _measured(self, start: tuple[str, str]) -> dict[str, float]:
        """The same, from a training of a few steps and the scores of a few lists."""
        place, begun = self.folder / "trainings" / "pace", time.perf_counter()
        shutil.rmtree(place, ignore_errors=True)
        fit(training(*start, self.folder / "lists" / "train", 0, 1, self.plan.monitor, PROBE), place)
        took = time.perf_counter() - begun
        lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        last = [line for line in lines if "lists/s" in line][-1]
        score, lists = scores_by(load_model(place / "best", mix=False), "auto", None), self.validation.lists
        some = lists.select(np.unique(np.linspace(0, len(lists) - 1, PROBE).astype(int)))
        score(some.select([0]), "first")  # tokens, kernels
        begun = time.perf_counter()
        score(some, "some")
        scoring = (time.perf_counter() - begun) / some.size
        shutil.rmtree(place)
        steps = sum("lists/s" in line for line in lines)
        return {
            "seconds to begin": max(0.0, took - steps * BATCH / last["lists/s"]),
            "seconds to train": 1 / last["documents/s"],
            "documents a list": last["documents/s"] / last["lists/s"],
            "seconds to score": scoring,
        }
