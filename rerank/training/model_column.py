"""A column of a trained model's scores, part by part: a killed scoring resumes behind the last whole part."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from torch import device as Device

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
    name = run_name(model) if name is None else check_name(name)
    store = Store.open(folder)
    lists = Lists.of(store).with_added()
    if not in_sample:
        check_out_of_sample(lists, model)
    made = {"model": run_name(model), "sha256": model_hash(model)}
    return score_column(store, name, [Share(Path(model), lists)], made, precision, budget)


@dataclass(frozen=True)
class Share:
    """Some lists, and the model that scores them.

    Attributes:
        model: the model's folder.
        lists: the lists, with what was added to them.
    """

    model: Path
    lists: Lists


def score_column(
    store: Store, name: str, shares: Sequence[Share], made: Mapping[str, Any], precision: Precision, budget: int | None
) -> Coverage:
    """Score all candidates of a folder into a column, each list by the model whose share it is.

    One model at a time is in memory; of several, the scores are, too.

    Args:
        store: the lists.
        name: the name of the column.
        shares: models of one kind with their lists, which together are all lists of the store, each once.
        made: what the column remembers of what it was made from.
        precision: arithmetic of the encoders.
        budget: padded tokens (documents, for feature vectors) per forward pass; None takes the model's own.

    Returns:
        What the column covers.

    Raises:
        UserError: lists that lack what a model reads; another column of this name.
    """
    from accelerate import PartialState

    assert store.folder is not None
    state = PartialState(cpu=on_cpu())
    model = _loaded(shares[0].model, state.device)
    exact: Precision = "fp32"
    if isinstance(model, Scorer):
        exact, _ = resolve(precision, state.device, model.bf16)
    made = {**made, "precision": exact}
    place = store.folder / "columns" / f".{name}.parts"
    scored = [Parts(place, json.dumps({**made, "scorer": model_hash(share.model)}), share.lists) for share in shares]
    done = is_there(store, name, made)
    if not done:
        with held(place, f"scoring column {name}") if state.is_main_process else nullcontext():
            for i, (share, parts) in enumerate(zip(shares, scored, strict=True)):
                missing = parts.missing(name)
                if missing and i:
                    model = _loaded(share.model, state.device)
                for part in missing:
                    if part % state.num_processes == state.process_index:
                        title = f"{name}, {parts.title(part)}" + (f" of share {i + 1}" if len(shares) > 1 else "")
                        parts.write(part, score_all(model, parts.lists(part), exact, budget, title))
            state.wait_for_everyone()
            if state.is_main_process:
                store.add_column(name, _together(shares, scored), made=made)
            state.wait_for_everyone()
    if state.is_main_process:
        shutil.rmtree(place, ignore_errors=True)  # also what was killed between the column and this line
    covered = Coverage.of(store, store.entry(name).values)
    log.info("%s: column %s%s: %s", store, name, ", there already" if done else "", covered)
    if state.num_processes > 1:
        state.wait_for_everyone()
        state.destroy_process_group()
    return covered


def _loaded(folder: Path, device: Device) -> Model:
    model = load_model(folder)
    if isinstance(model, Scorer):
        model.to(device)
    return model


def _together(shares: Sequence[Share], scored: Sequence[Parts]) -> Array | Iterator[Array]:
    """The scores of all shares in the order of the store."""
    if len(shares) == 1:
        return scored[0].scores()
    values = np.empty(len(shares[0].lists.store.document), dtype=np.float32)
    for share, parts in zip(shares, scored, strict=True):
        values[share.lists.row_numbers] = np.concatenate([np.zeros(0, np.float32), *parts.scores()])
    return values


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
        queries = lists.queries.astype(np.int64).tobytes()  # shares of one store may have the same model
        self._folder = place / digest("2", lists.store.manifest["candidates"], queries, made, str(PAIRS))
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
