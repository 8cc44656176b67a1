"""Climbing the ladder, rung by rung."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from rerank.errors import UserError
from rerank.evaluation.beside import beside
from rerank.evaluation.weights import GRID, search_weights
from rerank.ladder.budget import LATE, LEAST, Budget
from rerank.ladder.own import own_lists
from rerank.ladder.plan import BATCH, OWN, SEEDS, SHARES, Plan, planned, training, whole
from rerank.ladder.result import LADDER, Ladder, Rung, write_ladder
from rerank.ladder.split import AVERAGES, DOCUMENTS, TRAININGS, Blend, Split, kept
from rerank.lists.columns import as_name
from rerank.lists.view import Lists
from rerank.models.average import average_models
from rerank.models.mixed import write_ranker
from rerank.progress import heard, log, log_file
from rerank.scoring.in_sample import remember_all
from rerank.scoring.outputs import add_cosines, cosine_name
from rerank.storage.arrow import Array
from rerank.storage.files import atomic_write
from rerank.storage.hashes import read_sealed, write_sealed
from rerank.storage.locks import clear_within, held
from rerank.training.fit import fit
from rerank.training.run_folder import read_provenance

PLAN = "plan.json"
"""Whose ladder a folder holds; the first file that is written."""

SHOWN = "other evidence"
"""The rung that is shown and does not stay where there is a fusion, of which one column is a case."""

MOST_FUSED = 4
"""Columns that are fused at most: the first stage and the best of the others."""


def climbed(
    given: Mapping[str, str | Path | Lists | None],
    model: Sequence[str] | str | None,
    hours: float | None,
    folder: Path,
    depth: int,
    monitor: str,
    seed: int,
) -> Ladder:
    """The ladder of a folder, climbed as far as it is not, see :func:`rerank.auto`."""
    started = time.perf_counter()
    models = [model] if isinstance(model, str) else None if model is None else list(model)
    plan = planned(given, models, hours, monitor, depth, seed)
    _check_folder(folder, plan)
    with heard():
        if (folder / LADDER).is_file():
            log.info("%s is complete; name another output to climb again", folder)
            return Ladder.read(folder)
        with held(folder, "rerank auto"):
            folder.mkdir(parents=True, exist_ok=True)
            clear_within(folder, deep=True)
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
        made = {name: climb.validation.lists.store.entry(name.partition("/")[0]).made for name, _ in ranker.columns}
        cosines = {name: by for name, by in made.items() if by.get("number") == "cosine"}
        text = ranker.text if ranker.model else 0.0
        write_ranker(place, dict(ranker.columns), text, folder / "ranker", ranker.by, cosines)
    write_ladder(ladder)
    return Ladder.read(folder)


class Climb:
    """The rungs of one ladder."""

    def __init__(self, plan: Plan, folder: Path, started: float) -> None:
        self.plan, self.folder = plan, folder
        self.validation = Split(folder, "validation", plan.monitor, plan.held)
        self.columns = plan.columns
        self.done: dict[str, dict[str, Any]] = {}
        self.budget = Budget(plan, folder, started, self.validation, self.done)
        self._weights: dict[bytes, Blend] = {}

    def all(self) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """The rungs, lowest first, each with whether it is kept; and why others are left out."""
        rungs: dict[str, Callable[[], dict[str, Any] | str]] = {
            "first stage": self._first_stage,
            "other evidence": self._other_evidence,
            "fused": self._fused,
            "as published": self._as_published,
            "from documents alone": self._from_documents,
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
            log.info("%s: %s %.4f (%s)", name, self.plan.monitor, self._mean(step), step["ranker"])
            steps.append(step)
        if not steps:
            raise UserError(f"nothing ranks these lists: {'; '.join(f'{k}: {v}' for k, v in left_out.items())}")
        names = [step["name"] for step in steps]
        able = [step for step in steps if step["name"] != SHOWN or "fused" not in names or step is steps[0]]
        stays = dict(zip((step["name"] for step in able), kept([step["values"] for step in able]), strict=True))
        below = None
        for step in steps:
            step |= {"kept": stays.get(step["name"], False), "below": below}
            below = step["name"] if step["kept"] else below
        return steps, left_out

    def _step(self, name: str, make: Callable[[], dict[str, Any] | str]) -> dict[str, Any]:
        """A rung from its file, or made and written there."""
        path, begun = self.folder / "rungs" / f"{as_name(name)}.json", self.budget.gone
        if not path.is_file():
            made = make()
            content = {"left out": made} if isinstance(made, str) else made
            write_sealed(path, {"name": name} | content | {"seconds": round(self.budget.gone - begun, 1)})
        else:
            self.budget.earlier += read_sealed(path)["seconds"]
        step = read_sealed(path)
        if "left out" not in step:
            columns = tuple(step["columns"].items())
            step["ranker"] = Blend(step["model"], columns, step["text"], step["by"])
            step["values"] = np.array(step["values"], dtype=float)  # null is NaN
            self.done[name] = step
        return step

    def _mean(self, step: dict[str, Any]) -> float:
        """What a rung is worth on the queries that no training saw."""
        return float(step["values"][self.validation.held].mean())

    def _chosen(self, choose: Callable[[Array], Blend], note: str = "") -> dict[str, Any]:
        """A rung as its file has it."""
        ranker, values = self.validation.crossed(choose)
        own = {"model": ranker.model, "columns": dict(ranker.columns), "text": ranker.text, "by": ranker.by}
        return own | {"values": [None if np.isnan(value) else value for value in values.tolist()], "note": note}

    def _best(self, options: Sequence[Blend], note: str = "") -> dict[str, Any]:
        return self._chosen(lambda queries: self.validation.best(options, queries), note)

    def _first_stage(self) -> dict[str, Any] | str:
        order = self.validation.lists.store.order
        return "nothing ordered the lists" if order is None else self._best([Blend(columns=((order, 1.0),))])

    def _others(self) -> list[str]:
        names = dict.fromkeys([*self.columns, *self.cosines(self.validation)])
        return [name for name in names if name != self.validation.lists.store.order]

    def cosines(self, split: Split) -> list[str]:
        """The columns of embedding models, which are added to the ladder's own copy of the lists where missing."""
        names = {cosine_name(model): model for model, kind in self.plan.models.items() if kind == "embedding"}
        for name, model in names.items():
            if name not in self.columns:
                add_cosines(self.folder / "lists" / split.name, model, name)
        return list(names)

    def _other_evidence(self) -> dict[str, Any] | str:
        others = self._others()
        if not others:
            return "the lists have no other column, and no embedding model gives one"
        return self._best([Blend(columns=((name, 1.0),)) for name in others])

    def _fused(self) -> dict[str, Any] | str:
        if len(self._columns) < 2:
            return "there is one column"

        def choose(queries: Array) -> Blend:
            ranks = Blend(columns=tuple((name, 1.0) for name in self._fusable(queries)), text=0.0, by="rrf")
            return self.validation.best([self._by_z(queries), ranks], queries)

        return self._chosen(choose)

    @cached_property
    def _columns(self) -> list[str]:
        order = self.validation.lists.store.order
        return [*([] if order is None else [order]), *self._others()]

    def _fusable(self, queries: Array) -> list[str]:
        """The first stage and the columns that alone are best on some queries."""
        first = self._columns[: self.validation.lists.store.order is not None]
        alone = {name: self.validation.values(Blend(columns=((name, 1.0),))) for name in self._columns}
        others = sorted(self._columns[len(first) :], key=lambda name: -alone[name][queries].mean())
        return [*first, *others[: MOST_FUSED - len(first)]]

    def _by_z(self, queries: Array) -> Blend:
        """The sum of z whose weights are best on some queries."""
        if queries.tobytes() not in self._weights:
            names = self._fusable(queries)

            def mixed(weights: tuple[float, ...]) -> Blend:
                return Blend.mix(zip(names, weights, strict=True))

            def mean(weights: tuple[float, ...]) -> float:
                return float(self.validation.values(mixed(weights))[queries].mean())

            grid = GRID if len(names) == 2 else GRID[::2]
            self._weights[queries.tobytes()] = mixed(search_weights(len(names), mean, grid))
        return self._weights[queries.tobytes()]

    def _as_published(self) -> dict[str, Any] | str:
        heads = [Blend(name) for name, kind in self.plan.models.items() if kind == "head"]
        return self._best(heads) if heads else "no model has a trained head"

    def _from_documents(self) -> dict[str, Any] | str:
        (start, kind), *_ = self._starts()
        if why := self._untrainable(kind, start):
            return why
        if kind in ("trees", "network"):
            return "the documents have no texts"
        folder = self.folder / "lists" / OWN
        others = {key for name, lists in self.plan.lists.items() if name != "train" for key in lists.query_keys}
        try:
            own = own_lists(Lists.open(self.folder / "lists" / "train").with_added(), others, folder)
        except UserError as error:
            return str(error)
        if not self.budget.documents((start, kind)):
            return f"a pass over {len(own)} of the documents' own queries does not fit into {self.plan.hours:g} hours"
        made, left_out = self._trained(start, kind, 1, 1, OWN), own.store.manifest["retriever"]["left_out"]
        same = f", {left_out} more are validation or test queries and left out" if left_out else ""
        return self._best([made], f"{len(own)} {own.store.manifest['retriever']['queries']}{same}")

    def _untrainable(self, kind: str, name: str) -> str:
        """Why a model is not trained; nothing where it can be."""
        from rerank.models.text.decoder import Decoder

        if self.plan.hours == 0:
            return "there are 0 hours"
        if kind == "head" and Decoder.knows(name):
            return f"{name} is a decoder; `rerank train --model Decoder` trains it"
        return ""

    def _starts(self) -> list[tuple[str, str]]:
        """What is trained, with what it is: every model of feature vectors, or the best text model so far."""
        names = [name for name in ("as published", "from documents alone") if name in self.done]
        if names:
            best = max(names, key=lambda name: self.done[name]["values"].mean())
            return [(self.validation.place(self.done[best]["model"]), "head")]
        kinds = self.plan.models
        text = next(((name, kind) for name, kind in kinds.items() if kind in ("embedding", "encoder")), None)
        return [text] if text else list(kinds.items())

    def _fine_tuned(self) -> dict[str, Any] | str:
        starts = self._starts()
        if why := next((why for name, kind in starts if (why := self._untrainable(kind, name))), ""):
            return why
        epochs = self.budget.passes(starts[0])
        steps = None if epochs else self.budget.steps(starts[0])
        if not (epochs or steps):
            return f"{LEAST} steps do not fit into {self.plan.hours:g} hours"
        made: list[Blend] = []
        for seed in range(1, SEEDS + 1):
            begun = self.budget.gone
            for model, kind in starts:
                if seed == 1 or kind != "trees":  # seeds change no tree
                    made.append(self._trained(model, kind, seed, epochs or 1, steps=steps))
            took = self.budget.gone - begun
            if seed < SEEDS and self.budget.left - self.budget.after(starts[0], seed + 1) < took:
                break
        lists = [f"{steps * BATCH} of {len(self.plan.lists['train'])} training lists"] if steps else []
        fit = " and ".join([*lists, *([] if seed == SEEDS else [f"{seed} of {SEEDS} seeds"])])
        found = self._best(made, f"{fit} fit into {self.plan.hours:g} hours" if fit else "")
        return found | {"models": [ranker.model for ranker in made]}

    def _trained(
        self, model: str, kind: str, seed: int, epochs: int, on: str = "train", steps: int | None = None
    ) -> Blend:
        own = "" if kind in ("head", "encoder", "embedding") else f"{model}-"
        name = DOCUMENTS if on == OWN else f"{TRAININGS}{own}seed-{seed}"
        folder, begun = self.folder / "lists" / on, time.perf_counter()
        fit(training(model, kind, folder, seed, epochs, self.plan.monitor, steps), self.folder / name)
        spent = sum(start.get("seconds", 0.0) for start in read_provenance(self.folder / name))
        self.budget.earlier += max(0.0, spent - (time.perf_counter() - begun))  # where a killed process finished it
        return Blend(f"{name}/best")

    def _averaged(self) -> dict[str, Any] | str:
        if "fine-tuned" not in self.done:
            return "nothing was fine-tuned"
        seeds = self.done["fine-tuned"]["models"]
        if not self.validation.lists.store.has_text:
            return "models of feature vectors start from different weights"
        parts: dict[str, tuple[list[str], list[float] | None]] = {}
        if len(seeds) > 1:
            parts[f"{AVERAGES}seeds"] = seeds, None
        if (start := self._starts()[0])[1] == "head":
            for share in SHARES:
                shares = [1 - share, *[share / len(seeds)] * len(seeds)]
                parts[f"{AVERAGES}start-and-{share:g}-seeds"] = [start[0], *seeds], shares
        if not parts:
            return "there is one seed, from a head that was drawn"
        for name, (models, weights) in parts.items():
            if not (self.folder / name).is_dir():
                places = [self.validation.place(each) for each in models]
                average_models(places, weights, self.folder / name, remember_all(places))
        return self._best([Blend(name) for name in parts]) | {"models": list(parts)}

    def _mixed(self) -> dict[str, Any] | str:
        steps = [step for step in self.done.values() if step["model"]]
        models = [model for step in steps for model in step.get("models", [step["model"]])]
        if not models:
            return "there is no model to mix in"
        if not self._columns:
            return "there is no column to mix in"

        def choose(queries: Array) -> Blend:
            columns = self._by_z(queries).columns
            options = [
                Blend.mix(((name, share * weight) for name, weight in columns), model, 1 - share)
                for model in models
                for share in GRID[1:-1]
            ]
            return self.validation.best(options, queries)

        return self._chosen(choose)

    def measured(self, steps: Sequence[dict[str, Any]], left_out: dict[str, str]) -> Ladder:
        """The rungs beside the first and beside what was kept below them: on test, if there is any, for once."""
        begun = time.perf_counter()
        if "test" in self.plan.lists:
            on, test = "test", Split(self.folder, "test", self.plan.monitor)
            self.cosines(test)
            values, queries = {step["name"]: test.values(step["ranker"]) for step in steps}, test.lists.query_ids
        else:
            on, held = "validation", self.validation.held
            values = {step["name"]: step["values"][held] for step in steps}
            queries = self.validation.lists.select(held).query_ids
        with atomic_write(self.folder / "queries.csv") as file:
            DataFrame(values, index=queries).to_csv(file, index_label="query_id", float_format="%.6g")
        rungs = []
        for step in steps:
            first, below = (
                None if other in (None, step["name"]) else self._beside(values[step["name"]], values[other], other)
                for other in (steps[0]["name"], step["below"])
            )
            low, high = (first or {}).get("interval") or (None, None)
            own = {key: step[key] for key in ("name", "kept", "note", "seconds")} | {"what": str(step["ranker"])}
            tested = float(values[step["name"]].mean()) if on == "test" else None
            gain: dict[str, Any] = {"difference": first and first["difference"], "low": low, "high": high}
            rungs.append(Rung(**own, **gain, below=below, validation=self._mean(step), test=tested))
        counts = {name: len(lists) for name, lists in self.plan.lists.items()} | {"validation": self.plan.held}
        notes = [*self.plan.notes, *self._late(steps, time.perf_counter() - begun)]
        return Ladder(self.folder, self.plan.monitor, rungs, left_out, notes, counts, on)

    def _late(self, steps: Sequence[dict[str, Any]], testing: float) -> list[str]:
        """What took so long, where the hours were not kept; nothing where they were, or none was asked for."""
        hours = self.plan.hours
        if not hours or self.budget.gone <= LATE * 3600 * hours:
            return []
        parts = sorted([(testing, "test lists"), *((step["seconds"], step["name"]) for step in steps)], reverse=True)
        longest = ", ".join(f"{name} {seconds:.0f} s" for seconds, name in parts[:3])
        return [f"It took {self.budget.gone / 3600:.2g} hours, not {hours:g}: {longest}."]

    def _beside(self, ours: Array, theirs: Array, against: str) -> dict[str, Any] | None:
        found = beside(ours[None], theirs[None], self.plan.monitor, against)
        return None if found is None else asdict(found)
