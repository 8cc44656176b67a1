"""``rerank.auto``: climbing the ladder, rung by rung."""

from __future__ import annotations

import json
import logging
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import UserError
from rerank.evaluation.beside import beside
from rerank.evaluation.crossed import paired, standard_error
from rerank.evaluation.weights import GRID, search_weights
from rerank.ladder.plan import Plan, passes, planned, training, whole
from rerank.ladder.result import LADDER, Ladder, Rung, write_ladder
from rerank.ladder.split import Ranker, Split
from rerank.lists.columns import as_name
from rerank.lists.view import Lists
from rerank.models.average import average_models
from rerank.models.mixed import write_ranker
from rerank.progress import heard, log_file
from rerank.settings.ranges import Count, NotNegative, Seed, check_arguments
from rerank.storage.arrow import Array
from rerank.storage.hashes import read_sealed, write_sealed
from rerank.storage.locks import clear_within, held
from rerank.training.fit import fit

log = logging.getLogger("rerank")

PLAN = "plan.json"
"""Whose ladder a folder holds; the first file that is written."""

SEEDS = 3
PROBE = 8
"""Steps whose pace says what fits into the hours."""

MOST_FUSED = 4
"""Columns that are fused at most: the first stage and the best of the others."""

SHARES = (0.25, 0.5, 0.75)
"""Shares of the best seed in its average with what it started from."""


def auto(
    train: str | Path | Lists,
    validation: str | Path | Lists | None = None,
    test: str | Path | Lists | None = None,
    model: Sequence[str] | str | None = None,
    hours: NotNegative | None = None,
    *,
    output: str | Path,
    depth: Count = 150,
    monitor: str = "nDCG@10",
    seed: Seed = 42,
) -> Ladder:
    """Climb a ladder of rankers over the same candidates, and keep the highest that earns its place on validation.

    The rungs are the first stage; other evidence; both fused; a text model as published, fine-tuned, averaged; and its
    mix with the fused first stage. A rung stays if it is better than the highest below it that stayed by more than one
    standard error of their difference over the validation queries. The test lists are looked at once, at the end. The
    same call resumes where another was killed, and a finished ladder is only read.

    Args:
        train: lists to train on: a folder, a feature file, or lists.
        validation: lists to choose on; None keeps a share of the training queries back.
        test: lists to measure every rung on.
        model: names of text models, or ``LightGBM``, ``MLP`` and the like for feature vectors; an embedding model also
            gives a column of cosines. None takes MiniLM, or LightGBM.
        hours: how long it may take: decides how many seeds and passes there are; None takes all.
        output: the ladder's folder.
        depth: candidates of a validation or test query that take part.
        monitor: the measure that decides.
        seed: decides which queries are kept back for validation.

    Returns:
        The ladder; ``output/ranker`` is the ranker, as :func:`rerank.load_model` takes it.

    Raises:
        UserError: what cannot work, before any work is done; a folder that holds something else.
    """
    check_arguments(auto, {"hours": hours, "output": output, "depth": depth, "seed": seed})
    started, folder = time.perf_counter(), Path(output)
    models = [model] if isinstance(model, str) else None if model is None else list(model)
    plan = planned({"train": train, "validation": validation, "test": test}, models, hours, monitor, depth, seed)
    _check_folder(folder, plan)
    with heard():
        if (folder / LADDER).is_file():
            log.info("%s is complete; name another output to climb again", folder)
            return Ladder.read(folder)
        with held(folder, "rerank auto"):
            folder.mkdir(parents=True, exist_ok=True)
            clear_within(folder)
            write_sealed(folder / PLAN, {"id": plan.id})
            with log_file(folder):
                return _climbed(plan, folder, started)


def _check_folder(folder: Path, plan: Plan) -> None:
    if folder.is_file() or (folder.is_dir() and not (folder / PLAN).is_file() and any(folder.glob("[!.]*"))):
        raise UserError(f"output: {folder} exists and holds no ladder; name another one")
    if (folder / PLAN).is_file() and read_sealed(folder / PLAN)["id"] != plan.id:
        raise UserError(f"output: {folder} holds a ladder of other lists, models or hours; name another one")


def _climbed(plan: Plan, folder: Path, started: float) -> Ladder:
    for name, lists in plan.lists.items():
        if not (folder / "lists" / name).is_dir():
            (whole(lists) if name == "train" else lists).save(folder / "lists" / name)
    climb = Climb(plan, folder, started)
    steps, left_out = climb.all()
    ladder = climb.measured(steps, left_out)
    if not (folder / "ranker").is_dir():
        ranker = next(step["ranker"] for step in reversed(steps) if step["kept"])
        place = None if ranker.model is None else climb.validation.place(ranker.model)
        write_ranker(place, dict(ranker.columns), ranker.text if ranker.model else 0.0, folder / "ranker", ranker.by)
    write_ladder(ladder)
    return Ladder.read(folder)


class Climb:
    """The rungs of one ladder.

    Args:
        plan: what is asked for.
        folder: where everything is kept.
        started: when this process began.
    """

    def __init__(self, plan: Plan, folder: Path, started: float) -> None:
        self.plan, self.folder, self._started = plan, folder, started
        self.validation = Split(folder, "validation", plan.monitor)
        self.columns = plan.columns
        self.done: dict[str, dict[str, Any]] = {}
        self._weights: dict[bytes, Ranker] = {}
        self._earlier = 0.0

    def all(self) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The rungs, lowest first, each with whether it is kept; and why others are left out."""
        rungs: dict[str, Callable[[], dict[str, Any] | str]] = {
            "first stage": self._first_stage,
            "other evidence": self._other_evidence,
            "fused": self._fused,
            "as published": self._as_published,
            "fine-tuned": self._fine_tuned,
            "averaged": self._averaged,
            "mixed": self._mixed,
        }
        steps: list[dict[str, Any]] = []
        left_out = {}
        for name, make in rungs.items():
            step = self._step(name, make)
            if "left out" in step:
                left_out[name] = step["left out"]
                log.info("%s: left out, %s", name, step["left out"])
                continue
            below = next((other for other in reversed(steps) if other["kept"]), None)
            step["kept"] = below is None or better(step["values"], below["values"])
            step["below"] = None if below is None else below["name"]
            mean, what = step["values"].mean(), "kept" if step["kept"] else "not kept"
            log.info("%s: %s %.4f on validation, %s (%s)", name, self.plan.monitor, mean, what, step["ranker"])
            steps.append(step)
        if not steps:
            raise UserError(f"nothing ranks these lists: {'; '.join(f'{k}: {v}' for k, v in left_out.items())}")
        return steps, left_out

    def _step(self, name: str, make: Callable[[], dict[str, Any] | str]) -> dict[str, Any]:
        """A rung from its file, or made and written there."""
        path, begun = self.folder / "rungs" / f"{as_name(name)}.json", time.perf_counter()
        if not path.is_file():
            made = make()
            content = {"left out": made} if isinstance(made, str) else made
            write_sealed(path, {"name": name} | content | {"seconds": round(time.perf_counter() - begun, 1)})
        else:
            self._earlier += read_sealed(path)["seconds"]
        step = read_sealed(path)
        if "left out" not in step:
            columns = tuple(step["columns"].items())
            step["ranker"] = Ranker(step["model"], columns, step["text"], step["by"])
            step["values"] = np.array(step["values"])
            self.done[name] = step
        return step

    def _chosen(self, choose: Callable[[Array], Ranker], note: str = "") -> dict[str, Any]:
        """A rung as its file has it."""
        ranker, values = self.validation.crossed(choose)
        own = {"model": ranker.model, "columns": dict(ranker.columns), "text": ranker.text, "by": ranker.by}
        return own | {"values": values.tolist(), "note": note}

    def _best(self, options: Sequence[Ranker], note: str = "") -> dict[str, Any]:
        return self._chosen(lambda queries: self.validation.best(options, queries), note)

    def _first_stage(self) -> dict[str, Any] | str:
        order = self.validation.lists.store.order
        return "nothing ordered the lists" if order is None else self._best([Ranker(columns=((order, 1.0),))])

    def _others(self) -> list[str]:
        order = self.validation.lists.store.order
        return [*(name for name in self.columns if name != order), *self.cosines(self.validation)]

    def cosines(self, split: Split) -> list[str]:
        """The columns of embedding models, which are added to the ladder's own copy of the lists where missing."""
        models = [name for name, kind in self.plan.models.items() if kind == "embedding"]
        from rerank.scoring.cosines import add_cosines

        names = [as_name(f"cosine-{Path(name).name}") for name in models]
        for model, name in zip(models, names, strict=True):
            add_cosines(self.folder / "lists" / split.name, model, name)
        return names

    def _other_evidence(self) -> dict[str, Any] | str:
        others = self._others()
        if not others:
            return "the lists have no other column, and no embedding model gives one"
        return self._best([Ranker(columns=((name, 1.0),)) for name in others])

    def _fused(self) -> dict[str, Any] | str:
        names = self._fusable()
        if len(names) < 2:
            return "there is one column"
        ranks = Ranker(columns=tuple((name, 1.0) for name in names), text=0.0, by="rrf")
        return self._chosen(lambda queries: self.validation.best([self._by_z(names, queries), ranks], queries))

    def _fusable(self) -> list[str]:
        """The first stage and the columns that alone are best."""
        order, others, all_queries = self.validation.lists.store.order, self._others(), slice(None)
        alone = {name: self.validation.values(Ranker(columns=((name, 1.0),)))[all_queries].mean() for name in others}
        first = [] if order is None else [order]
        return [*first, *sorted(others, key=lambda name: -alone[name])[: MOST_FUSED - len(first)]]

    def _by_z(self, names: Sequence[str], queries: Array) -> Ranker:
        """The sum of z whose weights are best on some queries."""
        if queries.tobytes() not in self._weights:

            def mixed(weights: tuple[float, ...]) -> Ranker:
                return Ranker.mix(zip(names, weights, strict=True))

            def mean(weights: tuple[float, ...]) -> float:
                return float(self.validation.values(mixed(weights))[queries].mean())

            grid = GRID if len(names) == 2 else GRID[::2]
            self._weights[queries.tobytes()] = mixed(search_weights(len(names), mean, grid))
        return self._weights[queries.tobytes()]

    def _as_published(self) -> dict[str, Any] | str:
        heads = [Ranker(name) for name, kind in self.plan.models.items() if kind == "head"]
        return self._best(heads) if heads else "no model has a trained head"

    def _starts(self) -> list[tuple[str, str]]:
        """What is trained, with what it is: every model of feature vectors, or one text model."""
        kinds = self.plan.models
        if published := self.done.get("as published"):
            return [(published["ranker"].model, "head")]
        text = next(((name, kind) for name, kind in kinds.items() if kind in ("embedding", "encoder")), None)
        return [text] if text else list(kinds.items())

    def _fine_tuned(self) -> dict[str, Any] | str:
        from rerank.models.text.decoder import Decoder

        if self.plan.hours == 0:
            return "there are 0 hours"
        starts = self._starts()
        if any(kind == "head" and Decoder.knows(name) for name, kind in starts):
            return f"{starts[0][0]} is a decoder; `rerank train --model Decoder` trains it"
        seeds, epochs = self._budget(starts[0])
        if not seeds:
            return f"one pass over the training lists does not fit into {self.plan.hours:g} hours"
        made: list[Ranker] = []
        note = "" if seeds == SEEDS else f"{seeds} of {SEEDS} seeds fit into {self.plan.hours:g} hours"
        for seed in range(1, seeds + 1):
            begun = time.perf_counter()
            for model, kind in starts:
                if seed == 1 or kind != "trees":  # seeds change no tree
                    made.append(self._trained(model, kind, seed, epochs))
            if seed < seeds and self._left() < time.perf_counter() - begun:
                note = f"{seed} of {SEEDS} seeds fit into {self.plan.hours:g} hours"
                break
        return self._best(made, note) | {"trained": [ranker.model for ranker in made]}

    def _trained(self, model: str, kind: str, seed: int, epochs: int) -> Ranker:
        own = "" if kind in ("head", "encoder", "embedding") else f"{model}-"
        name = f"trainings/{own}seed-{seed}"
        fit(training(model, kind, self.folder / "lists", seed, epochs, self.plan.monitor), self.folder / name)
        return Ranker(f"{name}/best")

    def _left(self) -> float:
        """Seconds that are left of the hours."""
        if self.plan.hours is None:
            return float("inf")
        return 3600 * self.plan.hours - self._earlier - (time.perf_counter() - self._started)

    def _budget(self, start: tuple[str, str]) -> tuple[int, int]:
        """How many seeds there is time for, and how many passes each."""
        wanted = passes(len(self.plan.lists["train"]))
        if self.plan.hours is None or start[1] in ("trees", "network"):
            return SEEDS, wanted
        path = self.folder / "budget.json"
        if not path.is_file():
            step, validation = self._pace(start)
            ways = [(1, 1), (1, 2), (2, 2), (3, 2), (3, wanted)]
            fits = [way for way in ways if self._cost(*way, step, validation) < self._left()]
            seeds, epochs = fits[-1] if fits else (0, 0)
            found = {"seconds a step": step, "seconds of validation": validation}
            write_sealed(path, {"seeds": seeds, "passes": epochs} | found)
            log.info("%.3g s a step, %.3g s to validate: %d seeds, %d passes", step, validation, seeds, epochs)
        budget = read_sealed(path)
        return budget["seeds"], budget["passes"]

    def _cost(self, seeds: int, epochs: int, step: float, validation: float) -> float:
        """Seconds until the end: trainings, averages, and scores of the test lists."""
        lists = self.plan.lists
        steps = -(-len(lists["train"]) // 4)
        scorings = seeds * (epochs + 2) + (seeds > 1) + len(SHARES)
        test = 3 * lists["test"].size / max(1, lists["validation"].size) if "test" in lists else 0
        return seeds * epochs * steps * step + (scorings + test) * validation

    def _pace(self, start: tuple[str, str]) -> tuple[float, float]:
        """Seconds of a step and of a validation, by a training of a few steps."""
        place = self.folder / "trainings" / "pace"
        shutil.rmtree(place, ignore_errors=True)
        fit(training(*start, self.folder / "lists", 0, 1, self.plan.monitor, PROBE), place)
        lines = [json.loads(line) for line in (place / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
        step = next(4 / line["lists/s"] for line in reversed(lines) if "lists/s" in line)
        validation = next(line["seconds"] for line in reversed(lines) if "seconds" in line)
        shutil.rmtree(place)
        return step, validation

    def _averaged(self) -> dict[str, Any] | str:
        if "fine-tuned" not in self.done:
            return "nothing was fine-tuned"
        best, seeds = self.done["fine-tuned"]["model"], self.done["fine-tuned"]["trained"]
        if not self.validation.lists.store.has_text:
            return "models of feature vectors start from different weights"
        parts: dict[str, tuple[list[str], list[float] | None]] = {}
        if len(seeds) > 1:
            parts["averages/seeds"] = seeds, None
        if (start := self._starts()[0])[1] == "head":
            parts |= {f"averages/start-and-{share:g}-best": ([start[0], best], [1 - share, share]) for share in SHARES}
        if not parts:
            return "there is one seed, from a head that was drawn"
        made = []
        for name, (models, weights) in parts.items():
            if not (self.folder / name).is_dir():
                average_models([self.validation.place(each) for each in models], weights, self.folder / name)
            made.append(Ranker(name))
        return self._best(made)

    def _mixed(self) -> dict[str, Any] | str:
        text = [self.done[name]["ranker"] for name in ("as published", "fine-tuned", "averaged") if name in self.done]
        if not text:
            return "there is no model to mix in"
        if not (names := self._fusable()):
            return "there is no column to mix in"

        def choose(queries: Array) -> Ranker:
            columns = self._by_z(names, queries).columns
            options = [
                Ranker.mix(((name, share * weight) for name, weight in columns), model.model, 1 - share)
                for model in text
                for share in GRID[1:-1]
            ]
            return self.validation.best(options, queries)

        return self._chosen(choose)

    def measured(self, steps: Sequence[dict[str, Any]], left_out: dict[str, str]) -> Ladder:
        """The rungs beside the first and beside what was kept below them: on test, if there is any, for once."""
        on, values = "validation", {step["name"]: step["values"] for step in steps}
        if "test" in self.plan.lists:
            on, test = "test", Split(self.folder, "test", self.plan.monitor)
            self.cosines(test)
            values = {step["name"]: test.values(step["ranker"]) for step in steps}
        rungs = []
        for step in steps:
            first, below = (
                None if other in (None, step["name"]) else self._beside(values[step["name"]], values[other], other)
                for other in (steps[0]["name"], step["below"])
            )
            low, high = (first or {}).get("interval") or (None, None)
            rung = Rung(
                name=step["name"],
                what=str(step["ranker"]),
                kept=step["kept"],
                validation=float(step["values"].mean()),
                test=float(values[step["name"]].mean()) if on == "test" else None,
                difference=first["difference"] if first else None,
                low=low,
                high=high,
                below=below,
                note=step["note"],
                seconds=step["seconds"],
            )
            rungs.append(rung)
        queries = {name: len(lists) for name, lists in self.plan.lists.items()}
        return Ladder(self.folder, self.plan.monitor, rungs, left_out, list(self.plan.notes), queries, on)

    def _beside(self, ours: Array, theirs: Array, against: str) -> dict[str, Any] | None:
        found = beside(ours[None], theirs[None], self.plan.monitor, against)
        return None if found is None else asdict(found)


def better(ours: Array, theirs: Array) -> bool:
    """Whether the mean difference over queries is more than its standard error."""
    difference, _ = paired(ours[None], theirs[None])
    error, _ = standard_error(difference)
    return bool(difference.mean() > max(error, 0.0))
