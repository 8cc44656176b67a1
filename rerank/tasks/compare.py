"""Which ranker, how deep, and what fits into the time there is: ``rerank.compare``, and the command of that name."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rerank.errors import UserError
from rerank.progress import log
from rerank.settings.ranges import Count, Positive, check_arguments
from rerank.tasks.arguments import ListsLike, ModelLike

if TYPE_CHECKING:
    from rerank.lists.view import Lists
    from rerank.scoring.contenders import Contender
    from rerank.storage.arrow import Array
    from rerank.tasks.compared import Compared


DEPTHS = (10, 20, 50, 100)
"""Depths where nobody says: those that the lists have."""

TIMED = 7
"""Queries whose answers are timed."""


def compare(
    lists: ListsLike,
    models: list[ModelLike],
    depths: list[Count] | None = None,
    measure: str = "nDCG@10",
    budget_ms: Positive | None = None,
    output: str | None = None,
) -> Compared:
    """Compare rankers by what they are worth at each depth and what they cost, before anything is trained.

    Each reorders the top candidates of the same lists; those below keep their places. The measure is beside the first
    stage's, with the interval of the difference over queries. Times are those of one query at a time, as a service
    answers them.

    >>> import rerank
    >>> table = {"query": [f"query {i}" for i in range(40) for _ in range(4)], "grade": [1, 0, 0, 0, 0, 1, 0, 0] * 20}
    >>> table["bm25"] = [2.5, 1.5, 1.0, 0.5] * 40
    >>> lists = rerank.Lists.from_dataframe(table | {"text": [f"text {i}" for i in range(160)]})
    >>> compared = rerank.compare(lists, ["bm25"], depths=[4])
    >>> str(compared).splitlines()[0].split()[:3]
    ['ranker', 'depth', 'nDCG@10']

    Args:
        lists: judged lists, such as those of validation: what is chosen on test lists has no test left.
        models: trained or published rankers (folders, or names on the hub), columns of the lists, and addresses of
            servers that answer as Cohere's and Jina's do, such as http://127.0.0.1:8000/rerank.
        depths: how many candidates are reordered; None takes 10, 20, 50 and 100, as far as the lists go.
        measure: the measure.
        budget_ms: milliseconds that a query may take; a sentence says what is best within them.
        output: folder for compare.txt and compare.json.

    Returns:
        The comparison: it prints, shows itself in notebooks, and has ``to_dataframe()``.

    Raises:
        UserError: no such lists or ranker, lists without judgments or first stage, or that lack what a ranker reads.
    """
    import numpy as np

    from rerank.evaluation.beside import beside
    from rerank.evaluation.compare import judgments_of
    from rerank.evaluation.measure_names import parse_measure
    from rerank.evaluation.measures import COUNTS, Evaluator
    from rerank.features.letor import open_lists
    from rerank.lists.view import Lists
    from rerank.scoring.contenders import contenders
    from rerank.storage.files import check_folder
    from rerank.tasks.compared import Compared, Reranked, Size

    check_arguments(compare, {"depths": depths, "budget_ms": budget_ms})
    check_folder(output)
    parsed = parse_measure(measure, "measure")
    if parsed.NAME in COUNTS:
        raise UserError(f"measure: {measure} measures no quality; name another, such as nDCG@10")
    opened = lists if isinstance(lists, Lists) else open_lists(lists)
    judged = judgments_of(opened)
    opened = opened.select(opened.judged & (opened.lengths > 0))
    first = opened.store.order
    if first is None:
        raise UserError(f"lists: nothing ranked {opened.store}, so there is no first stage to compare with")
    chosen = _depths(depths, opened)
    rankers = contenders([models] if isinstance(models, str | Path) else models, opened)
    for ranker in rankers:
        ranker.open(opened)  # all of them, so that what cannot work is told before hours of scoring
        ranker.close()
    evaluator = Evaluator(judged, parsed)
    start = evaluator(opened.run(_places(opened, 0, np.zeros(0))), first)  # in the order that rankers change
    rows: list[Reranked] = []
    sizes: list[Size] = []
    for ranker in rankers:
        gc.collect()  # the one before is no part of this one's memory
        ranker.open(opened)
        times = [_milliseconds(ranker, opened, depth) for depth in chosen]
        sizes.append(Size(ranker.name, ranker.kind, ranker.parameters, ranker.size, ranker.peak(), ranker.trained_on))
        for depth, spent, scores in zip(chosen, times, ranker.scores(opened, chosen), strict=True):
            values = evaluator(opened.run(_places(opened, depth, scores)), ranker.name).values
            if (found := beside(values, start.values, str(parsed))) is not None:
                low, high = found.interval or (None, None)
                rows.append(Reranked(ranker.name, depth, found.ours, found.difference, low, high, spent))
                log.info("%s, depth %d: %s", ranker.name, depth, found)
        ranker.close()
    about = str(opened.store), len(judged), str(parsed), first, float(start.mean[str(parsed)])
    compared = Compared(*about, rows, sizes, _machine(), TIMED, budget_ms)
    if output is not None:
        compared.write(output)
    return compared


def _depths(given: Sequence[int] | None, lists: Lists) -> list[int]:
    """Depths in ascending order, none beyond the longest list."""
    longest = int(lists.lengths.max(initial=0))
    if not longest:
        raise UserError(f"lists: {lists.store} has no candidates of judged queries")
    if given is None:
        return sorted({min(depth, longest) for depth in DEPTHS})
    if deep := [depth for depth in given if depth > longest]:
        raise UserError(f"depths: {deep[0]} is more than the {longest} candidates of the longest list; name fewer")
    if not given:
        raise UserError("depths: expected at least one, such as 50")
    return sorted(set(given))


def _milliseconds(ranker: Contender, lists: Lists, depth: int) -> float | None:
    """The median of some queries' answers, of lists that have so many candidates, after one that is not counted."""
    import numpy as np

    order = np.argsort(-np.minimum(lists.lengths, depth), kind="stable")
    full = order[: max(TIMED, int((lists.lengths >= depth).sum()))]
    picked = full[np.linspace(0, len(full) - 1, TIMED).astype(np.int64)]
    spent = []
    for number in [picked[0], *picked]:
        answer = ranker.answer(lists.select([number]).top(depth))
        if answer is None:
            return None
        start = time.perf_counter()
        answer()
        spent.append(1000 * (time.perf_counter() - start))
    return float(np.median(spent[1:]))


def _places(lists: Lists, depth: int, scores: Array) -> Array:
    """Scores of all candidates, ``[T]``, by which the top is ranked anew and the rest stays behind it.

    Places in place of the scores themselves, as these are comparable with nothing below.
    """
    import numpy as np

    place = np.arange(lists.size) - np.repeat(lists.offsets[:-1], lists.lengths)
    value = -place.astype(np.float64)
    top, of = np.flatnonzero(place < depth), np.repeat(np.arange(len(lists)), np.minimum(lists.lengths, depth))
    value[top[np.lexsort((-scores, of))]] = value[top]
    return value


def _machine() -> str:
    import torch

    if torch.cuda.is_available():
        return f"on {torch.cuda.get_device_name()}"
    threads = torch.get_num_threads()
    return f"on a CPU with {threads} thread{'s' if threads > 1 else ''}"
