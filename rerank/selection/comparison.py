"""Candidates of :func:`rerank.auto`: columns, their fusion, and models, measured on held-out queries."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pandas import DataFrame

from rerank.errors import UserError
from rerank.evaluation.measures import Evaluator
from rerank.evaluation.paired import compare_values, corrected
from rerank.evaluation.significance import ALPHA
from rerank.evaluation.weights import GRID, search_weights
from rerank.lists.columns import as_name
from rerank.lists.data import check_disjoint, content_hashes, drawn_folds, hold_out
from rerank.lists.sampling import PositivesNegatives
from rerank.lists.view import Lists
from rerank.losses import TwinSigmoidNDCG
from rerank.models.card import copy_card
from rerank.models.folder import find_model
from rerank.models.load import Interpolated, load_model
from rerank.models.text.cosines import Embedder
from rerank.models.text.cross_encoder import CrossEncoder
from rerank.models.text.decoder import Decoder
from rerank.models.text.modules import embeds
from rerank.progress import heard, log
from rerank.retrieval.fuse import z_of_candidates
from rerank.scoring.in_sample import shared_queries
from rerank.scoring.outputs import add_cosines, add_model, cosine_name, run_name
from rerank.selection.table import Selection
from rerank.storage.arrow import Array, taken
from rerank.storage.files import atomic_folder, atomic_write, exclusive_lock
from rerank.tasks.train import train
from rerank.training.config import Optimization

Weights = tuple[tuple[str, float], ...]
"""Columns of scores, and the weights of their z-scores."""

FOLDS = 5
"""Folds of the validation queries; weights are measured on queries that they were not tuned on."""

FEWEST, FEW = 10, 50
"""Validation queries that are needed, and below which the report warns."""

MOST_FUSED = 4
"""Columns in a fusion: the first stage and the best others."""

BATCH, STEPS = 4, 300
"""Lists per optimizer step, and steps that training makes by default."""

TIMED = 7
"""Queries that are timed."""


@dataclass(frozen=True)
class Candidate:
    """A weighted sum of z-scores; the last column is the model's, if there is one.

    Attributes:
        values: the measure per validation query, ``[Q]``, out of fold if the weights were tuned.
    """

    name: str
    weights: Weights
    values: Array
    model: str | None = None

    @property
    def mean(self) -> float:
        return float(self.values.mean())


class Split:
    """Lists of one split in a folder that columns of scores are added to."""

    def __init__(self, folder: Path, monitor: str) -> None:
        self.folder, self.lists = folder, Lists.open(folder)
        self._evaluator = Evaluator(self.lists.qrels or {}, monitor)
        self._z: dict[str, Array] = {}
        self._values: dict[Weights, Array] = {}

    def values(self, weights: Weights) -> Array:
        """Measure a weighted sum of z-scores, as the saved ranker computes it, per query: ``[Q]``."""
        if weights not in self._values:
            for name in dict(weights).keys() - self._z.keys():
                scores = np.split(Lists.open(self.folder).column(name), self.lists.offsets[1:-1])
                self._z[name] = np.concatenate([z_of_candidates(of_query) for of_query in scores])
            total = sum((weight * self._z[name] for name, weight in weights), start=np.zeros(self.lists.size))
            self._values[weights] = self._evaluator(self.lists.run(total.astype(np.float32))).values[0]
        return self._values[weights]


def select(
    given: Mapping[str, str | Path | Lists],
    models: Sequence[str],
    folder: Path,
    epochs: int | None,
    depth: int,
    monitor: str,
    seed: int,
) -> Selection:
    """Compare the candidates and save the best; see :func:`rerank.auto`."""
    if folder.is_dir() and not (folder / "lists").is_dir() and any(folder.glob("[!.]*")):
        raise UserError(f"output: {folder} exists and has no model selection in it; name another folder")
    called = [run_name(name) for name in models]
    if twice := next((name for name in called if called.count(name) > 1), None):
        raise UserError(f"models: two are called {twice} in the table; give copies in folders of other names")
    untrainable = {name for name in models if Decoder.knows(name)}
    encoders = {name for name in models if name not in untrainable}
    trained_heads = {name for name in encoders if not CrossEncoder(name).missing}
    trained_heads |= {name for name in untrainable if not embeds(find_model(name))}
    trains = epochs != 0 and not untrainable.issuperset(models)
    lists, notes = _splits({name: _judged(name, one) for name, one in given.items()}, trains, seed)
    _check(lists, models)
    with heard(), exclusive_lock(folder):
        for name, some in lists.items():
            _copy(some if name == "train" else some.top(depth), folder / "lists" / name)
        if trains and epochs is None:
            epochs = int(np.clip(np.ceil(STEPS * BATCH / len(lists["train"])), 2, 10))
        comparison = Comparison(folder, lists, monitor, seed, notes)
        columns = [number for of in lists["validation"].store.numbers_by_column().values() for number in of]
        embedders = [n for n in models if n not in trained_heads and (find_model(n) / "modules.json").is_file()]
        comparison.compare_columns([*columns, *map(comparison.add_cosines, embedders)])
        for name in models:
            comparison.compare_model(name, name in trained_heads, 0 if name in untrainable else epochs or 0)
        return comparison.finish()


def _judged(name: str, given: str | Path | Lists) -> Lists:
    """Open lists, and select the judged ones, without documents that were added for training."""
    lists = given if isinstance(given, Lists) else Lists.open(given)
    if not lists.judged.any():
        raise UserError(f"{name}: {lists.store} has no judgments; make it again with `rerank retrieve --qrels`")
    if lists.store.order is None:
        raise UserError(f"{name}: {lists.store} has no first-stage scores, with which candidates are compared")
    lists = replace(lists, lengths=np.minimum(lists.lengths, Lists.of(lists.store).lengths[lists.queries]))
    return lists.select(lists.judged)


def _splits(given: dict[str, Lists], trains: bool, seed: int) -> tuple[dict[str, Lists], list[str]]:
    """Split lists for choosing, testing and, if anything is trained, training; return them with remarks."""
    training = given.pop("train")
    check_disjoint(training, given)
    twins = np.isin(training.query_keys, [key for some in given.values() for key in some.query_keys])
    notes = [f"{twins.sum()} training queries with the text of another query were left out."] if twins.any() else []
    training = training.select(~twins)
    if "validation" not in given and not trains:
        given["validation"] = training
    elif "validation" not in given and len(training) >= 2 * FEWEST:
        training, held_out = hold_out(training, min(0.5, max(0.1, FEW / len(training))), seed)
        assert held_out is not None
        given["validation"] = held_out
        notes.append(f"{len(held_out)} of the training queries were held out for validation.")
    count = len(given.get("validation", training))
    if "validation" not in given or count < FEWEST:
        raise UserError(f"validation: {count} queries are too few to choose on; give at least {FEWEST}")
    if count < FEW:
        notes.append(f"{count} validation queries can only show large differences.")
    if trains:
        cut = (training.lengths < Lists.of(training.store).lengths[training.queries]).any()
        given["train"] = training if cut else training.with_added()
    return given, notes


def _check(lists: Mapping[str, Lists], models: Sequence[str]) -> None:
    """Validate that test lists have all columns, and that models were not trained on the queries that measure them."""
    validation = lists["validation"].store
    test = lists["test"].store if "test" in lists else validation
    if models and not validation.has_text:
        raise UserError(f"models: {validation} has no texts for them to read; leave them out")
    if lacking := [name for name in validation.column_names if name not in test.column_names]:
        raise UserError(f"test: {test} has no column {lacking[0]}, which {validation} has; add it with `rerank add`")
    for name in models:
        for split in lists.keys() - {"train"}:
            if seen := shared_queries(lists[split], find_model(name)):
                raise UserError(
                    f"models: {name} was trained on {len(seen)} of the {split} queries, e.g. {seen[0]!r}; "
                    f"give --{split} lists that it has not seen"
                )


def _copy(lists: Lists, place: Path) -> None:
    """Copy lists to a folder, to which columns can be added, unless an earlier call did."""
    if not place.is_dir():
        lists.save(place)
        return
    there, names = Lists.open(place), lists.store.column_names
    if content_hashes(there.with_added(), names) != content_hashes(lists, names):
        made = "was made from other lists or settings, or by a call that trained no model and held no queries out"
        raise UserError(f"output: {place.parent.parent} {made}; name another folder")


class Comparison:
    """The candidates of one folder; steps that were completed before are reused."""

    def __init__(self, folder: Path, lists: Mapping[str, Lists], monitor: str, seed: int, notes: list[str]) -> None:
        self.folder, self.monitor, self.seed = folder, monitor, seed
        self.splits = {name: Split(folder / "lists" / name, monitor) for name in lists if name != "train"}
        self.validation = self.splits["validation"]
        self.fold = drawn_folds(lists["validation"], FOLDS, seed)
        queries = ", ".join(f"{len(some)} {name}" for name, some in lists.items())
        self.notes = [f"{monitor}; queries: {queries}.", *notes]
        self.columns: list[str] = []
        self.milliseconds: dict[str, float] = {}
        self.candidates: list[Candidate] = []

    def compare_columns(self, columns: Sequence[str]) -> None:
        """Measure columns, the first stage first, and their fusion."""
        first = str(self.validation.lists.store.order)
        self.columns = list(dict.fromkeys([first, *columns]))
        for name in self.columns:
            self._add(f"{name} (first stage)" if name == first else name, ((name, 1.0),))
        if len(self.columns) > 1:
            self._add_out_of_fold("fusion, equal weights", self._equal)
            self._add_out_of_fold("fusion, tuned weights", self._tuned)

    def compare_model(self, name: str, has_head: bool, epochs: int) -> None:
        """Measure a model as it is, fine-tuned, and interpolated with the fusion."""
        title = run_name(name)
        if has_head:
            scores = self._scores(name, title)
            self._add(title, ((scores, 1.0),), name)
        if epochs:
            name = self._fine_tuned(name, has_head, epochs)
            title = f"{title} fine-tuned"
            scores = self._scores(name, title)
            self._add(title, ((scores, 1.0),), name)
        if not (has_head or epochs):
            return

        def interpolated(queries: Array) -> Weights:
            fusion = self._tuned(queries)
            options = [(*((of, weight * share) for of, weight in fusion), (scores, 1 - share)) for share in GRID[1:-1]]
            return max(options, key=lambda weights: self._mean(weights, queries))

        self._add_out_of_fold(f"{title} + fusion", interpolated, name)

    def _add(self, name: str, weights: Weights, model: str | None = None, values: Array | None = None) -> None:
        values = self.validation.values(weights) if values is None else values
        self.candidates.append(Candidate(name, weights, values, model))
        log.info("%s: %s %.4f", name, self.monitor, values.mean())

    def _add_out_of_fold(self, name: str, choose: Callable[[Array], Weights], model: str | None = None) -> None:
        """Add what is chosen on all queries, with the values per query of what is chosen on the other folds."""
        values = np.empty(len(self.fold))
        for number in np.unique(self.fold):
            own = self.fold == number
            values[own] = self.validation.values(choose(~own))[own]
        self._add(name, choose(np.ones(len(self.fold), dtype=bool)), model, values)

    def _mean(self, weights: Weights, queries: Array) -> float:
        return float(self.validation.values(weights)[queries].mean())

    def _fused(self, queries: Array) -> list[str]:
        """Select the first stage, and the other columns that are best on some queries."""
        first, *others = self.columns
        return [first, *sorted(others, key=lambda name: -self._mean(((name, 1.0),), queries))[: MOST_FUSED - 1]]

    def _equal(self, queries: Array) -> Weights:
        names = self._fused(queries)
        return tuple((name, 1 / len(names)) for name in names)

    def _tuned(self, queries: Array) -> Weights:
        names = self._fused(queries)

        def weights(shares: Sequence[float]) -> Weights:
            return tuple((name, share) for name, share in zip(names, shares, strict=True) if share > 1e-6)

        grid = GRID if len(names) == 2 else GRID[::2]
        return weights(search_weights(len(names), lambda shares: self._mean(weights(shares), queries), grid))

    def add_cosines(self, model: str) -> str:
        """Add the cosine similarities of an embedding model to the lists; returns the column's name."""
        name, encoder = cosine_name(model), Embedder(model)
        for split in self.splits.values():
            add_cosines(split.folder, model, name)
        self.milliseconds[name] = self._timed(encoder.cosines_of)
        return name

    def _scores(self, model: str, title: str) -> str:
        """Add a model's scores to the lists; returns the column's name."""
        name = as_name(f"auto-{title}")
        for split in self.splits.values():
            add_model(split.folder, model, name, interpolate=False)
        ranker = load_model(model, interpolate=False)
        self.milliseconds[name] = self._timed(ranker.scores_of, ranker.given)
        return name

    def _fine_tuned(self, model: str, has_head: bool, epochs: int) -> str:
        """Train on the training lists, without the validation queries; returns the model's folder."""
        run = train(
            CrossEncoder(model, dropout=0.0),
            self.folder / "lists" / "train",
            TwinSigmoidNDCG(alpha="adaptive"),
            output=self.folder / "trainings" / run_name(model),
            validation=None,
            sampler=PositivesNegatives(2, 10, depth=50),
            optimization=Optimization(2e-5, 2e-5) if has_head else Optimization(5e-5, 1e-3),
            batch_size=BATCH,
            epochs=epochs,
            seed=self.seed,
            monitor=self.monitor,
            tracker=[],
        )
        return str(run.folder / "best")

    def _timed(self, score: Callable[..., Any], reads: Sequence[str] = ()) -> float:
        """Measure the median milliseconds to score one query with its candidates, after a warm-up.

        ``reads`` are the columns whose values it is given.
        """
        lists, spent = self.validation.lists, []
        texts = lists.store.documents.column("text")
        picked = np.linspace(0, len(lists) - 1, TIMED).astype(int).tolist()
        for number in [picked[0], *picked]:
            one = lists.select([number])
            documents = taken(texts, one.documents).to_pylist()
            columns = [{name: one.column(name) for name in reads}] if reads else []
            begun = time.perf_counter()
            score(one.query_texts[0], documents, *columns)
            spent.append(1000 * (time.perf_counter() - begun))
        return float(np.median(spent[1:]))

    def finish(self) -> Selection:
        """Choose, measure every candidate on the test lists, and write the best one and the report."""
        base = max((one for one in self.candidates if one.model is None), key=lambda one: one.mean)
        models = [one for one in self.candidates if one.model]
        against, values = base.name, base.values[None]
        compared = [
            compare_values((one.name, against), self.monitor, one.values[None], values, "t-test") for one in models
        ]
        p = {one.run: one.p_corrected for one in corrected(compared, "holm")}
        best = max([base, *(one for one in models if p[one.name] < ALPHA)], key=lambda one: one.mean)
        weights, test = " + ".join(f"{weight:.2g} {name}" for name, weight in best.weights), self.splits.get("test")
        notes = [f"* best: {weights}, saved in {self.folder / 'best'}; rank with rerank rerank --model.", *self.notes]
        split = "test" if test else "validation"
        notes += [f"difference: from the first stage on {split}; low, high: its 95 % bootstrap interval."]
        notes += [f"p: paired t-test on validation against {base.name}, Holm-corrected."] if models else []
        notes += ["ms: milliseconds per query, one at a time, without columns that the lists already had."]
        notes += [] if test else ["The best was chosen on these queries, so its value is optimistic; give test lists."]
        table = DataFrame([self._row(one, p.get(one.name, np.nan), test) for one in self.candidates])
        selection = Selection(self.folder, best.name, table, notes)
        self._write_best(best)
        with atomic_write(self.folder / "report.txt") as file:
            file.write(f"{selection}\n")
        with atomic_write(self.folder / "report.json") as file:
            table.assign(chosen=table["candidate"] == best.name).to_json(file, orient="records", indent=1)
        return selection

    def _row(self, one: Candidate, p: float, test: Split | None) -> dict[str, Any]:
        """Collect the results of a candidate; the difference is from the first stage."""
        values, first = one.values, self.candidates[0].values
        if test is not None:
            values, first = test.values(one.weights), test.values(self.candidates[0].weights)
        found = compare_values((one.name, "first stage"), self.monitor, values[None], first[None])
        low, high = found.interval or (np.nan, np.nan)
        times = [self.milliseconds[name] for name, _ in one.weights if name in self.milliseconds]
        row = {"candidate": one.name, "validation": one.mean, "p": p, "test": values.mean() if test else np.nan}
        row |= {"difference": found.difference, "low": low, "high": high}
        return row | {"ms": sum(times) if times else np.nan, "weights": dict(one.weights)}

    def _write_best(self, best: Candidate) -> None:
        """Save the chosen ranker, which computes cosine similarities itself if lists lack them."""
        weights, store = dict(best.weights), Lists.open(self.validation.folder).store
        share = weights.pop(best.weights[-1][0]) if best.model else 0.0
        made = {name: store.entry(name.partition("/")[0]).made for name in weights}
        cosines = {name: entry for name, entry in made.items() if entry.get("number") == "cosine"}
        shutil.rmtree(self.folder / "best", ignore_errors=True)
        alone = load_model(best.model, interpolate=False) if best.model else None
        ranker = Interpolated(alone, weights, share, cosines) if weights or alone is None else alone
        with atomic_folder(self.folder / "best") as folder:
            ranker.save(folder)
            if best.model:
                copy_card(Path(best.model), folder)
