"""What there is time for within the hours of a ladder."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rerank.ladder.plan import BATCH, OWN, SEEDS, SHARES, Plan, passes, training
from rerank.ladder.split import Split
from rerank.lists.view import Lists
from rerank.models.load import load_model
from rerank.scoring.shared import scores_by
from rerank.storage.hashes import read_sealed, write_sealed
from rerank.training.fit import fit

log = logging.getLogger("rerank")

PROBE = 8
"""Steps whose pace says what fits into the hours, and lists that are scored for it."""

END = 5.0
"""Seconds that tables, intervals and the page take at the end, about."""

LATE = 1.2
"""Times the hours after which the ladder says what took so long."""


class Budget:
    """The time of one ladder.

    Args:
        plan: what is asked for.
        folder: the ladder's folder.
        started: when this process began.
        validation: the validation lists.
        done: the rungs so far, by name, as their files have them.
    """

    def __init__(
        self, plan: Plan, folder: Path, started: float, validation: Split, done: Mapping[str, dict[str, Any]]
    ) -> None:
        self.plan, self.folder, self.validation, self.done = plan, folder, validation, done
        self._started = started
        self.earlier = 0.0
        """Seconds of the rungs that an earlier process made."""

    @property
    def gone(self) -> float:
        """Seconds since the ladder was begun, those between processes not counted."""
        return self.earlier + time.perf_counter() - self._started

    @property
    def left(self) -> float:
        """Seconds that are left of the hours."""
        return float("inf") if self.plan.hours is None else 3600 * self.plan.hours - self.gone

    @property
    def late(self) -> bool:
        """Whether the hours were not kept."""
        return bool(self.plan.hours) and self.gone > LATE * 3600 * (self.plan.hours or 0.0)

    def way(self, start: tuple[str, str]) -> dict[str, Any]:
        """What there is time for: documents alone, how many seeds, and how many passes each.

        Args:
            start: the model that is trained, and what it is.
        """
        wanted = passes(len(self.plan.lists["train"]))
        if self.plan.hours is None or start[1] in ("trees", "network"):
            return {"documents": True, "seeds": SEEDS, "passes": wanted}
        path = self.folder / "budget.json"
        if not path.is_file():
            pace = self._pace(start) if self.left > END else {}
            judged = [(1, 2), *((seeds, wanted) for seeds in range(1, SEEDS + 1))]
            ways = [(False, 0, 0), (False, 1, 1), (False, 1, 2), *((True, *each) for each in judged)]
            options = [dict(zip(("documents", "seeds", "passes"), way, strict=True)) | pace for way in ways]
            fits = [way for way in options if pace and self._cost(way) < self.left]
            write_sealed(path, (fits or options[:1])[-1])
            log.info("what fits into %g hours: %s", self.plan.hours, (fits or options[:1])[-1])
        return read_sealed(path)

    def after(self, way: dict[str, Any], seeds: int) -> float:
        """Seconds of what comes after the trainings: averages and their scores, and the test lists.

        Args:
            way: what is done, as `way` says it.
            seeds: how many seeds are trained.
        """
        if "seconds to score" not in way:
            return END
        rows = self._rows()
        averages = ((seeds > 1) + len(SHARES)) * rows["validation"] if seeds else 0
        models = ("as published" in self.done) + way["documents"] + 3 * (seeds > 0)
        share = rows["test"] / self.validation.lists.size
        cosines = self.done["other evidence"]["seconds"] if "other evidence" in self.done else 0.0
        return (averages + models * rows["test"]) * way["seconds to score"] + share * cosines + END

    def _cost(self, way: dict[str, Any]) -> float:
        """Seconds until the end, of what there may be time for."""
        folder = self.folder / "lists" / OWN
        own = 8 * len(Lists.open(folder)) if way["documents"] and folder.is_dir() else 0
        judged = way["seeds"] * way["passes"] * len(self.plan.lists["train"]) * way["documents a list"]
        trainings = (way["documents"] + way["seeds"]) * way["seconds to begin"]
        rows = way["documents"] * self.validation.lists.size + way["seeds"] * self._rows()["validation"]
        scored = rows * way["seconds to score"]
        return trainings + (own + judged) * way["seconds to train"] + scored + self.after(way, way["seeds"])

    def _rows(self) -> dict[str, int]:
        """Candidates of the lists that what judgments trained is measured on."""
        held = self.validation.lists.select(self.validation.held)
        return {"validation": held.size, "test": self.plan.lists["test"].size if "test" in self.plan.lists else 0}

    def _pace(self, start: tuple[str, str]) -> dict[str, float]:
        """Seconds of a document, in a training of a few steps and in scoring a few lists, and of a training's start."""
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
