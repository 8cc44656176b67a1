"""Base of networks that score candidates, and scoring without a graph."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from threading import RLock
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from rerank import stops
from rerank.errors import UserError
from rerank.kernels.memory import out_of_memory, sent
from rerank.kernels.precision import Precision, autocast, exact_float32, resolve
from rerank.lists.view import Lists
from rerank.models.base import Inputs, Model, check_lists
from rerank.progress import log, tqdm
from rerank.settings.arguments import Count, check_value
from rerank.storage.arrow import Array, list_numbers, starts_of

ON_A_CPU = 2048
"""Tokens of a forward pass on a CPU: enough for a core's products, few enough for its cache."""

ON_A_GPU = 32_768
"""Tokens of a forward pass on a GPU. With 8,192 MiniLM's kernels take less time than their launches."""

SCORING_LOCK = RLock()
"""Held while a model scores, so that other threads wait: scoring takes all cores and sets the model to evaluation, and
tokenizers have settings."""


def score_candidates(
    scorer: Scorer,
    inputs: Inputs,
    rows: Array,
    starts: Array,
    *,
    budget: int | None = None,
    precision: Precision = "auto",
    progress: str | None = None,
) -> Array:
    """Score candidates without a graph, in evaluation mode: ``[n]`` float32.

    Several threads may call it at once, even with the same model: they take turns. On a CPU every thread of PyTorch
    scores chunks of its own, since threads that share a chunk wait for each other between products. If memory runs out,
    one thread scores, in chunks of half the size, with a warning. Equal pairs are scored once.

    Args:
        scorer: the model.
        inputs: the lists as ``scorer.inputs`` prepares them.
        rows: ``[n]`` rows of the candidates, as for :meth:`rerank.models.base.Inputs.collate`.
        starts: positions in ``rows`` at which a list starts.
        budget: rows of matrix products (padded tokens, feature vectors) per forward pass at most; defaults to the
            model's. A thread of a CPU has no more than 2,048.
        precision: precision of the encoder.
        progress: title of a progress bar; without one there is none.

    Raises:
        Stopped: a signal came during a training run, which can resume from its checkpoint.
    """
    with SCORING_LOCK, exact_float32():
        device = next(scorer.parameters()).device
        precision, _ = resolve(precision, device, scorer.bf16)
        of = list_numbers(len(rows), starts)
        budget, workers = budget or scorer.budget, 1
        if device.type == "cpu":
            budget, workers = min(budget, ON_A_CPU), torch.get_num_threads()
        same = inputs.representatives(rows)  # scored once: the place in a batch changes the last digits of a score
        scores, todo = np.empty(len(rows), dtype=np.float32), np.unique(same)
        training = scorer.training
        scorer.eval()
        try:
            while True:
                chunks = [todo[chunk] for chunk in inputs.chunks(rows[todo], starts_of(of[todo]), budget)]
                workers = min(workers, len(chunks))
                try:
                    hidden = None if progress else True
                    with tqdm(total=len(todo), desc=progress, unit=" documents", disable=hidden, leave=False) as bar:
                        for chunk, values in _score_chunks(scorer, inputs, rows, of, chunks, precision, workers, bar):
                            scores[chunk] = values
                    break
                except (RuntimeError, MemoryError) as error:
                    if not out_of_memory(error):
                        raise
                # the error is gone, and with it the memory of its frames
                budget, workers = _smaller(budget, inputs.lengths(rows[todo]), workers, device), 1
        finally:
            scorer.train(training)
        scores = scores[same]
        if wrong := int((~np.isfinite(scores)).sum()):
            wider = "" if precision == "fp32" else ", or set precision to fp32"
            raise UserError(
                f"{wrong} of {len(scores)} scores are not finite: the model's weights, or the numbers that it reads, "
                f"are too large; train it with lower learning rates{wider}"
            )
        return scores


def _score_chunks(
    scorer: Scorer,
    inputs: Inputs,
    rows: Array,
    of: Array,
    chunks: list[Array],
    precision: Precision,
    workers: int,
    bar: Any,
) -> Sequence[tuple[Array, Array]]:
    """Score chunks of candidates; several threads share PyTorch's, and an error stops all at their next chunk."""
    device = next(scorer.parameters()).device
    waiting = iter(chunks)  # gives each chunk to one thread only

    def work() -> list[tuple[Array, Array]]:
        scored = []  # fetched at the end: a GPU computes while the next chunks are collated
        with torch.inference_mode(), autocast(precision, device):
            for chunk in waiting:
                stops.check()
                batch = inputs.collate(rows[chunk], starts_of(of[chunk]))
                on_device: dict[str, Any] = {name: sent(value, device) for name, value in batch.items()}
                scored.append((chunk, scorer.score(on_device)))
                bar.update(len(chunk))
            return [(chunk, values.cpu().numpy()) for chunk, values in scored]

    if workers <= 1:
        return work()
    threads = torch.get_num_threads()
    torch.set_num_threads(threads // workers)  # also for threads that start from here on
    pool = ThreadPoolExecutor(workers)
    try:
        futures = [pool.submit(work) for _ in range(workers)]
        wait(futures, return_when=FIRST_EXCEPTION)
    finally:
        deque(waiting, maxlen=0)  # no thread takes another chunk
        pool.shutdown()
        torch.set_num_threads(threads)
    return [part for future in futures for part in future.result()]


def _smaller(budget: int, costs: Array, workers: int, device: torch.device) -> int:
    """Return the budget of one thread after chunks of several threads, or larger ones, did not fit."""
    largest = int(costs.max())
    if workers == 1 and budget <= largest:
        raise UserError(f"out of memory with one document at a time (size {largest}); shorten the documents")
    if device.type == "cuda":
        torch.cuda.empty_cache()
    budget = max(largest, min(budget, int(costs.sum())) // 2)
    log.warning("out of memory: continuing with one thread and a budget of %d", budget)
    return budget


def score_lists(scorer: Any, inputs: Inputs, lists: Lists, **options: Any) -> Array:
    """Score every candidate of lists: ``[T]`` float32; options are those of :func:`score_candidates`."""
    return score_candidates(scorer, inputs, lists.row_numbers, lists.offsets[:-1], **options)


def score_whole(scorer: Scorer, lists: Lists, inputs: Inputs | None = None, **options: Any) -> Array:
    """Score lists like :func:`score_lists`; added documents do not change the scores of the others."""
    read = scorer.inputs(lists) if inputs is None else inputs
    scores = score_lists(scorer, read, lists, **options)
    visible = ~lists.store.added_rows[lists.row_numbers]
    listwise = read.listwise or bool(getattr(scorer, "normalisers", ()))
    if listwise and not visible.all():  # again, without what was added
        retrieved = (lists.store.ends - lists.store.added)[lists.queries] - lists.starts
        shown = replace(lists, lengths=np.minimum(lists.lengths, retrieved))
        scores[visible] = score_lists(scorer, scorer.inputs(shown), shown, **options | {"progress": None})
    return scores


class Scorer(Model, nn.Module):
    """A network that scores the candidates of lists."""

    bf16: ClassVar[bool] = True
    """True if ``precision: auto`` may choose bf16."""

    @property
    def uses_batch_norm(self) -> bool:
        """True if the network has batch norm, so that one process has to take a whole batch."""
        return any(isinstance(module, nn.BatchNorm1d) for module in self.modules())

    @property
    def budget(self) -> int:
        """Default number of rows of matrix products (padded tokens, feature vectors) per forward pass."""
        return ON_A_CPU if next(self.parameters()).device.type == "cpu" else ON_A_GPU

    def prepare(self, train: Lists, seed: int) -> None:
        """Fit normalisers and widths to the training lists, and initialise new weights from the seed."""

    @abstractmethod
    def inputs(self, lists: Lists) -> Inputs:
        """Prepare (tokenise, normalise) a lists folder for this model."""

    @abstractmethod
    def score(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Score a collated batch: ``[n]`` float32."""

    def predict(self, lists: Lists, budget: int | None = None, precision: Precision = "auto") -> Array:
        """Score every candidate of lists: ``[T]`` float32, in their order.

        Args:
            lists: the lists.
            budget: rows of matrix products (padded tokens, feature vectors) per forward pass; defaults to the model's.
            precision: precision of the encoder.

        Raises:
            UserError: lists that lack what the model reads.
        """
        check_lists(lists)
        check_value("budget", budget, Count | None)
        check_value("precision", precision, Precision)
        self.check_trained()
        with SCORING_LOCK:
            return score_whole(self, lists, budget=budget, precision=precision)

    @abstractmethod
    def head_parameters(self) -> set[str]:
        """Return the names of the parameters that ``head_lr`` trains; ``encoder_lr`` trains the others."""
