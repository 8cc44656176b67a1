"""A column of a trained model's scores, part by part: a killed scoring resumes behind the last whole part."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rerank.arrow import Array, blocks, numbers, read_arrow, write_arrow
from rerank.errors import UserError
from rerank.files import atomic_file, digest
from rerank.hashes import UNSEALED, check_seal, seal
from rerank.identity import id_of
from rerank.kernels.precision import Precision, on_cpu, resolve
from rerank.lists.add import Coverage, is_there
from rerank.lists.columns import as_name, check_name
from rerank.lists.store import Store
from rerank.lists.view import Lists
from rerank.locks import held
from rerank.models.added import check_added
from rerank.models.base import Model
from rerank.models.contract import AFTERWARDS, FILES, read_contract
from rerank.models.load import load_model
from rerank.models.score import score_lists
from rerank.models.scorer import Scorer
from rerank.models.vectors.boosting import Trees
from rerank.models.vectors.inputs import ListInputs
from rerank.models.weights import find_model, initial_hashes
from rerank.training.in_sample import check_out_of_sample

log = logging.getLogger("rerank")

PAIRS = 8_192
"""Candidates in a part, about; a list is never cut."""
SCHEMA = pa.schema([("score", pa.float32())], metadata=UNSEALED)


def add_model(
    folder: str | Path,
    model: str | Path,
    name: str | None = None,
    *,
    precision: Precision = "auto",
    budget: int | None = None,
    in_sample: bool = False,
) -> Coverage:
    """Score all candidates of a lists folder with a trained model, added ones included, into a column.

    Parts of some thousand candidates are whole or absent, so that the same call resumes where another was killed.
    Processes (``torchrun``) share the parts.

    Args:
        folder: the lists folder.
        model: the model's folder, such as ``runs/x/best``.
        name: the name of the column; None takes the run folder's.
        precision: arithmetic of the encoder.
        budget: padded tokens (documents, for feature vectors) per forward pass; None takes the model's own.
        in_sample: whether to score queries that the model was trained on: what learns from the column then learns to
            trust the model's memory.

    Returns:
        What the column covers.

    Raises:
        UserError: no such lists or model, lists that lack what the model reads, or share queries with its training;
            another column of this name.
    """
    from accelerate import PartialState

    name = run_name(model) if name is None else check_name(name)
    store = Store.open(folder)
    assert store.folder is not None
    lists = Lists.of(store).with_added()
    if not in_sample:
        check_out_of_sample(lists, model)
    scorer = load_model(model)
    state = PartialState(cpu=on_cpu())
    exact: Precision = "fp32"
    if isinstance(scorer, Scorer):
        scorer.to(state.device)
        exact, _ = resolve(precision, state.device, scorer.bf16)
    made = {"model": run_name(model), "sha256": model_hash(model), "precision": exact}
    parts = Parts(store.folder / "columns" / f".{name}.parts", json.dumps(made, sort_keys=True), lists)
    done = is_there(store, name, made)
    if not done:
        with held(parts.place, f"scoring column {name}") if state.is_main_process else nullcontext():
            for part in parts.missing(name):
                if part % state.num_processes != state.process_index:
                    continue
                parts.write(part, score_all(scorer, parts.lists(part), exact, budget, f"{name}, {parts.title(part)}"))
            state.wait_for_everyone()
            if state.is_main_process:
                store.add_column(name, parts.scores(), made=made)
            state.wait_for_everyone()
    if state.is_main_process:
        shutil.rmtree(parts.place, ignore_errors=True)  # also what was killed between the column and this line
    covered = Coverage.of(store, store.entry(name).values)
    log.info("%s: column %s%s: %s", store, name, ", there already" if done else "", covered)
    if state.num_processes > 1:
        state.wait_for_everyone()
        state.destroy_process_group()
    return covered


def run_name(model: str | Path) -> str:
    """A column's name after a model: that of the run folder, of which ``best`` is a part.

    >>> run_name("runs/scifact-smoothi/best")
    'scifact-smoothi'
    """
    path = Path(model)
    return as_name(path.absolute().parent.name if path.name == "best" else path.name)


def model_hash(model: str | Path) -> str:
    """The hash of what decides a model's scores."""
    contract = read_contract(Path(model))
    files = contract.get(FILES) or initial_hashes(find_model(str(model)))
    known = {key: value for key, value in contract.items() if key not in (FILES, *AFTERWARDS)}
    return id_of({"contract": known, "files": files})


def score_all(model: Model, lists: Lists, precision: Precision, budget: int | None, title: str) -> Array:
    """Scores of all candidates of some lists, ``[T]``, added ones included, which change nothing for the others."""
    if isinstance(model, Trees):
        check_added(lists, model.names)
        return model.predict(lists)
    assert isinstance(model, Scorer)
    inputs = model.inputs(lists)
    scores = score_lists(model, inputs, lists, precision=precision, budget=budget, progress=title)
    visible = ~lists.store.added_rows[lists.row_numbers]
    if isinstance(inputs, ListInputs) and not visible.all():  # it looks at whole lists: without added documents, again
        shown = replace(lists, lengths=lists.lengths - lists.store.added[lists.queries])
        scores[visible] = score_lists(model, model.inputs(shown), shown, precision=precision, budget=budget)
    return scores


class Parts:
    """Scores of some lists at a time, each a file that is whole or absent.

    Args:
        place: the folder of all attempts at the column.
        made: what the scores are made from.
        lists: what is scored.
    """

    def __init__(self, place: Path, made: str, lists: Lists) -> None:
        self.place = place
        self._folder = place / digest("1", lists.store.manifest["candidates"], made, str(PAIRS))
        self._lists = lists
        self._ranges = blocks(lists.offsets, PAIRS)

    def lists(self, part: int) -> Lists:
        """The lists of a part."""
        return self._lists.select(np.arange(*self._ranges[part]))

    def title(self, part: int) -> str:
        """A part in words."""
        return f"part {part + 1} of {len(self._ranges)}"

    def missing(self, name: str) -> list[int]:
        """The parts that are not there, or not whole."""
        missing = [part for part in range(len(self._ranges)) if not self._is_whole(part)]
        if len(missing) < len(self._ranges):
            done = len(self._ranges) - len(missing)
            log.info("%s: resuming, %d of %d parts are done", name, done, len(self._ranges))
        return missing

    def _path(self, part: int) -> Path:
        return self._folder / f"{part:06d}.arrow"

    def _is_whole(self, part: int) -> bool:
        if not self._path(part).exists():
            return False
        try:
            check_seal(self._path(part))
        except UserError:
            return False
        return True

    def write(self, part: int, scores: Array) -> None:
        """Store the scores of a part."""
        with atomic_file(self._path(part)) as temporary:
            write_arrow(temporary, SCHEMA, [{"score": scores}])
            seal(temporary)

    def scores(self) -> Iterator[Array]:
        """The scores of all parts, in order."""
        for part in range(len(self._ranges)):
            yield numbers(read_arrow(self._path(part)).column("score"))
