"""Scores of all candidates of some lists, part by part: processes share the parts, and a killed scoring resumes."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rerank.errors import UserError
from rerank.kernels.precision import Precision, on_cpu, resolve
from rerank.lists.split_hashes import SCALED
from rerank.lists.view import Lists
from rerank.models.added import check_added
from rerank.models.base import Model
from rerank.models.load import load_model
from rerank.models.score import score_lists
from rerank.models.scorer import Scorer
from rerank.models.vectors.boosting import Trees
from rerank.models.vectors.inputs import ListInputs
from rerank.scoring.shared import check_scoring
from rerank.scoring.together import check_gpus, together
from rerank.storage.arrow import Array, blocks, numbers, read_arrow, write_arrow
from rerank.storage.files import atomic_file, digest
from rerank.storage.hashes import UNSEALED, check_seal, seal
from rerank.storage.identity import canonical
from rerank.storage.locks import held

log = logging.getLogger("rerank")

PAIRS = 8_192
"""Candidates in a part, about; a list is never cut."""
PATIENCE = timedelta(days=7)
"""How long a process waits for the others, whose shares of millions of lists may take hours longer."""
SCHEMA = pa.schema([("score", pa.float32())], metadata=UNSEALED)


@dataclass(frozen=True)
class Share:
    """Some lists, and the model that scores them.

    Attributes:
        model: the model's folder.
        lists: the lists, with what was added to them.
    """

    model: Path
    lists: Lists


class Scoring:
    """Scores lists in this process, and in those that a launcher started beside it, here or on other machines.

    What a process can do by itself, loading and tokenising, comes before their group is made, which would not wait for
    a large collection.

    Args:
        shares: models of one kind with their lists; one model at a time is in memory.
        precision: arithmetic of the encoders.
        budget: padded tokens (documents, for feature vectors) per forward pass; None takes the model's own.

    Attributes:
        exact: the arithmetic on this device.
        main: whether this process writes what all of them found.
    """

    def __init__(self, shares: Sequence[Share], precision: Precision, budget: int | None) -> None:
        from accelerate import PartialState

        check_gpus()
        self.shares, self.budget = shares, budget
        self._model, self._number = load_model(shares[0].model), 0
        check_scoring(self._model, precision, budget)
        self._costs = [_costs(self._model, share.lists) for share in shares]
        self._state = PartialState(cpu=on_cpu(), timeout=PATIENCE)
        self.main = self._state.is_main_process
        self.exact: Precision = "fp32"
        with together():
            if isinstance(self._model, Scorer):
                self.exact, _ = resolve(precision, self._state.device, self._model.bf16)
                self._model.to(self._state.device)

    @contextmanager
    def parts(self, place: Path, name: str, made: Sequence[Mapping[str, Any]]) -> Iterator[list[Parts]]:
        """Score what is not stored yet; the block has the parts of each share, and afterwards they are gone.

        Args:
            place: a folder for the parts, which all processes see.
            name: what is scored, in words.
            made: of each share, what its scores are made from.
        """
        state = self._state
        names = getattr(self._model, "names", None) or self._model.columns  # of vectors, what training settled
        read = [name.partition("/")[0].partition(SCALED)[0] for name in names]
        scored = []
        with ExitStack() as stack:
            with together():
                for about, share in zip(made, self.shares, strict=True):
                    columns = {name: share.lists.store.column_hash(name) for name in read}
                    scored.append(Parts(place, canonical([about, columns]), share.lists))
                if self.main:
                    stack.enter_context(held(place, f"scoring {name}"))
                todo = [(number, part) for number, parts in enumerate(scored) for part in parts.missing(name)]
            if state.num_processes > 1:  # what is stored meanwhile must not change who does what
                from torch.distributed import broadcast_object_list

                agreed = [todo]
                broadcast_object_list(agreed, src=0)
                todo = agreed[0]
            costs = np.array([scored[number].cost(part, self._costs[number]) for number, part in todo])
            with together():
                for process, (number, part) in zip(deal(costs, state.num_processes), todo, strict=True):
                    if process == state.process_index:
                        title = f"{name}, {scored[number].title(part)}"
                        title += f" of share {number + 1}" if len(scored) > 1 else ""
                        lists = scored[number].lists(part)
                        scores = score_all(self._loaded(number), lists, self.exact, self.budget, title)
                        scored[number].write(part, scores)
            with together():
                yield scored
            if self.main:
                clear(place)

    def _loaded(self, number: int) -> Model:
        if number != self._number:
            self._model, self._number = load_model(self.shares[number].model), number
            if isinstance(self._model, Scorer):
                self._model.to(self._state.device)
        return self._model

    def end(self) -> None:
        """Take leave of the other processes."""
        if self._state.num_processes > 1:
            self._state.wait_for_everyone()
            self._state.destroy_process_group()


def clear(place: Path) -> None:
    """Remove the parts of all attempts."""
    shutil.rmtree(place, ignore_errors=True)


def deal(costs: Array, processes: int) -> list[int]:
    """Who does what, so that all are through at about the same time: the costliest first, to who has least to do.

    >>> deal(np.array([3, 1, 5, 2, 2]), 2)
    [1, 1, 0, 1, 0]
    """
    loads, owners = np.zeros(processes), [0] * len(costs)
    for one in np.argsort(-costs, kind="stable").tolist():
        owners[one] = int(loads.argmin())
        loads[owners[one]] += costs[one]
    return owners


def _costs(model: Model, lists: Lists) -> Array:
    """The cost of every candidate, ``[T]``; texts are tokenised for it."""
    if not isinstance(model, Scorer):
        return np.ones(lists.size, dtype=np.int64)
    inputs, rows = model.inputs(lists), lists.row_numbers
    ends = [*range(0, len(rows), 1 << 20), len(rows)]
    costs = [inputs.lengths(rows[start:end]) for start, end in pairwise(ends)]
    return np.concatenate([np.zeros(0, dtype=np.int64), *costs])


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
        which = np.concatenate([lists.queries, lists.lengths]).astype(np.int64).tobytes()
        self._folder = place / digest("3", lists.store.manifest["candidates"], which, made, str(PAIRS))
        self._lists = lists
        self._ranges = blocks(lists.offsets, PAIRS)

    def lists(self, part: int) -> Lists:
        """The lists of a part."""
        return self._lists.select(np.arange(*self._ranges[part]))

    def cost(self, part: int, costs: Array) -> int:
        """The cost of a part, of ``[T]`` costs of the candidates."""
        first, last = self._ranges[part]
        return int(costs[self._lists.offsets[first] : self._lists.offsets[last]].sum())

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
