"""Scores of lists in parts, files that are complete or absent, so that a killed scoring resumes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rerank.lists.content import content_hashes
from rerank.lists.view import Lists
from rerank.models.base import Model
from rerank.models.mixed import unmixed
from rerank.models.scorer import Scorer
from rerank.progress import log
from rerank.scoring.together import together
from rerank.storage.arrow import Array, blocks, read_arrow, write_arrow
from rerank.storage.files import atomic_file
from rerank.storage.fingerprint import fingerprint
from rerank.storage.locks import exclusive_lock

PAIRS, MOST = 8_192, 1 << 19
"""Candidates in a part, about, and on a GPU at the most; a list is never cut."""

WORK = 7.5e12
"""Candidates times weights of a part on a GPU: ten seconds at 300 TFLOP/s, with 200 tokens a candidate. The GPU waits
while a part is written and the next one begun."""

SCHEMA = pa.schema([("score", pa.float32())])


class Parts:
    """Parts of the scores of lists, one file each."""

    def __init__(self, place: Path, model: Model, lists: Lists, made: Mapping[str, Any]) -> None:
        model.check(lists)
        names = getattr(model, "names", None) or model.columns  # of vectors, what training settled
        content = content_hashes(lists, sorted({name.partition("/")[0] for name in names}))
        pairs = pairs_of(model)
        self._folder = place / fingerprint({"made": made, "lists": content, "pairs": pairs})[:16]
        self._lists, self._ranges = lists, blocks(lists.offsets, pairs)

    def lists(self, part: int) -> Lists:
        return self._lists.select(np.arange(*self._ranges[part]))

    def cost(self, part: int, costs: Array) -> int:
        """Sum the candidates' costs ``[T]`` over a part."""
        first, last = self._ranges[part]
        return int(costs[self._lists.offsets[first] : self._lists.offsets[last]].sum())

    def title(self, part: int) -> str:
        return f"part {part + 1} of {len(self._ranges)}"

    def missing(self, name: str) -> list[int]:
        missing = [part for part in range(len(self._ranges)) if not self._path(part).exists()]
        if len(missing) < len(self._ranges):
            done = len(self._ranges) - len(missing)
            log.info("%s: resuming, %d of %d parts are done", name, done, len(self._ranges))
        return missing

    def _path(self, part: int) -> Path:
        return self._folder / f"{part:06d}.arrow"

    def write(self, part: int, scores: Array) -> None:
        with atomic_file(self._path(part)) as temporary:
            write_arrow(temporary, SCHEMA, [{"score": scores}])

    def scores(self) -> Array:
        parts = (read_arrow(self._path(part))["score"].to_numpy() for part in range(len(self._ranges)))
        return np.concatenate([np.zeros(0, np.float32), *parts])


def pairs_of(model: Model) -> int:
    """Return the candidates per part, from the model and its device alone, so that a resumed scoring divides alike."""
    scorer = unmixed(model)
    if not isinstance(scorer, Scorer) or next(scorer.parameters()).device.type == "cpu":
        return PAIRS
    return int(min(MOST, max(PAIRS, WORK // sum(p.numel() for p in scorer.parameters()))))


@contextmanager
def kept_in(place: Path, name: str, main: bool) -> Iterator[None]:
    """Lock a folder of parts, and remove it after the block; if the block fails, the parts stay."""
    with ExitStack() as stack:
        with together():
            if main:
                stack.enter_context(exclusive_lock(place))
        yield
        if main:
            shutil.rmtree(place, ignore_errors=True)
