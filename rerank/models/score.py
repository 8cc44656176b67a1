"""Scoring pairs and lists without a graph."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import partial
from threading import Barrier, RLock
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from rerank import stops
from rerank.arrow import Array, list_numbers, starts_of
from rerank.errors import UserError
from rerank.kernels.memory import out_of_memory
from rerank.kernels.precision import Precision, autocast, resolve
from rerank.kernels.transfer import sent
from rerank.models.base import Inputs
from rerank.progress import tqdm

if TYPE_CHECKING:
    from rerank.lists.view import Lists

log = logging.getLogger("rerank")

ON_A_CPU = 2048
"""Tokens of a forward pass on a CPU: enough for a core's products, few enough for its cache."""

ALONE = RLock()
"""Held while a model scores: it takes all cores, sets the model to evaluation, and tokenizers have settings. Whoever
else scores in this process, in a thread of their own, waits."""


class Scoring(Protocol):
    """What is asked of a network that scores; :class:`rerank.models.scorer.Scorer` has it."""

    training: bool
    bf16: ClassVar[bool]
    alone: bool

    @property
    def budget(self) -> int:
        """Rows of its matrix products per forward pass, unless told otherwise."""

    def settle(self, precision: Precision) -> Any:
        """Choose among ways that lead to the same numbers."""

    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Scores of a collated batch."""

    def joined(self, scores: Tensor, beside: Tensor) -> Tensor:
        """The final scores, where its inputs have something beside."""

    def parameters(self) -> Iterator[nn.Parameter]:
        """Its weights."""

    def eval(self) -> Any:
        """Set it to evaluation."""

    def train(self, mode: bool = True) -> Any:
        """Set it to training, or back to evaluation."""


def score_candidates(
    scorer: Scoring,
    inputs: Inputs,
    rows: Array,
    starts: Array,
    *,
    budget: int | None = None,
    precision: Precision = "auto",
    progress: str | None = None,
) -> Array:
    """Score candidates without a graph, in evaluation mode.

    Threads of the caller's may call it at once, with one model, too: they take turns. On a CPU every thread of PyTorch
    scores chunks of its own: between the products of one chunk threads would wait for each other.
    Where memory runs out, what is left is scored by one thread, then cut into chunks of half the size, with a warning.

    Args:
        scorer: the model.
        inputs: what ``scorer.inputs`` made of the lists.
        rows: ``[n]`` rows of the candidates in the store, list after list.
        starts: positions in ``rows`` at which a list starts.
        budget: rows of its matrix products (padded tokens, feature vectors) per forward pass at most; None for its own.
            A thread of a CPU has no more than 2,048.
        precision: arithmetic of the encoder.
        progress: what a progress bar says; None shows none.

    Returns:
        ``[n]`` float32, in the order given.

    Raises:
        UserError: memory runs out with one pair at a time.
        Stopped: a signal came in a training, which then resumes from its checkpoint.
    """
    with ALONE:
        return _score(scorer, inputs, rows, starts, budget, precision, progress)


def _score(
    scorer: Scoring,
    inputs: Inputs,
    rows: Array,
    starts: Array,
    budget: int | None,
    precision: Precision,
    progress: str | None,
) -> Array:
    device = next(scorer.parameters()).device
    precision, _ = resolve(precision, device, scorer.bf16)
    scorer.settle(precision)
    scores = np.empty(len(rows), dtype=np.float32)
    of = list_numbers(len(rows), starts)
    training = scorer.training
    scorer.eval()
    budget, workers = budget or scorer.budget, 1
    if device.type == "cpu":
        budget, workers = min(budget, ON_A_CPU), 1 if scorer.alone else torch.get_num_threads()
    left = np.arange(len(rows))
    bar = tqdm(total=len(rows), desc=progress, unit=" documents", disable=None if progress else True, leave=False)

    def work(chunks: Iterator[Array], too_large: list[Array]) -> None:
        found = []  # fetched at the end: a GPU computes while the next chunks are collated
        with torch.inference_mode(), autocast(precision, device):
            while not too_large and not stops.asked() and (chunk := next(chunks, None)) is not None:
                try:
                    batch = inputs.collate(rows[chunk], starts_of(of[chunk]))
                    batch = {name: sent(value, device) for name, value in batch.items()}
                    found.append((chunk, scorer.score(batch)))
                    bar.update(len(chunk))
                except (RuntimeError, MemoryError) as error:
                    if not out_of_memory(error):
                        raise
                    too_large.append(chunk)
            for chunk, part in found:
                scores[chunk] = part.cpu().numpy()

    try:
        with bar:
            while len(left):
                chunks = [left[chunk] for chunk in inputs.chunks(rows[left], starts_of(of[left]), budget)]
                waiting, too_large, workers = iter(chunks), list[Array](), min(workers, len(chunks))
                _in_threads(partial(work, waiting, too_large), waiting, workers)
                stops.check()
                left = np.sort(np.concatenate([left[:0], *too_large, *waiting]))
                if too_large and workers > 1:
                    workers = 1
                    log.warning("out of memory: continuing with one thread")
                elif too_large:  # the error is gone, and with it what its frames held
                    lengths = inputs.lengths(rows[too_large[0]])
                    budget = _smaller(budget, lengths, device)
    finally:
        scorer.train(training)
    if (beside := inputs.beside(rows)) is not None:
        with torch.inference_mode():
            joined = scorer.joined(torch.from_numpy(scores).to(device), beside.to(device))
        scores = joined.cpu().numpy()
    return scores


def _in_threads(work: Callable[[], None], waiting: Iterator[Array], workers: int) -> None:
    """Let several threads work until nothing waits, or one fails; PyTorch's own threads are shared among them."""
    if workers <= 1:
        work()
        return
    threads, ready = torch.get_num_threads(), Barrier(workers + 1)

    def start() -> None:
        torch.get_num_threads()  # a thread that has never asked takes the default of that time when it first computes
        torch.set_num_threads(threads // workers)
        ready.wait()

    with ThreadPoolExecutor(workers, initializer=start) as pool:
        try:
            futures = [pool.submit(work) for _ in range(workers)]
            ready.wait()
            torch.set_num_threads(threads)  # what a thread sets for itself is also what new ones start with
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            ready.abort()  # nobody waits for a thread that could not be started
            for _ in waiting:  # the others stop after the chunk that they are at
                pass
            raise


def _smaller(budget: int, lengths: Array, device: torch.device) -> int:
    """A budget below that with which a chunk of pairs of these lengths did not fit."""
    longest = int(lengths.max())
    if len(lengths) == 1 or budget <= longest:
        raise UserError(f"out of memory with one document at a time (size {longest}); shorten the documents")
    if device.type == "cuda":
        torch.cuda.empty_cache()
    budget = max(longest, min(budget, int(lengths.sum())) // 2)
    log.warning("out of memory: continuing with a budget of %d", budget)
    return budget


def score_lists(scorer: Scoring, inputs: Inputs, lists: Lists, **options: object) -> Array:
    """Scores of every candidate of the lists, ``[T]`` float32; options as for :func:`score_candidates`."""
    return score_candidates(scorer, inputs, lists.row_numbers, lists.offsets[:-1], **options)  # type: ignore[arg-type]
