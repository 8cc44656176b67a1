"""Accumulate the exact gradient of one batch over micro-batches, chunks and processes, within the available memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rerank import stops
from rerank.errors import UserError
from rerank.kernels.memory import free_memory, kept, out_of_memory, return_freed, sent
from rerank.kernels.precision import Precision, autocast
from rerank.lists.view import Lists
from rerank.models.base import Inputs
from rerank.models.scorer import Scorer
from rerank.progress import log
from rerank.scoring.shared import deal
from rerank.storage.arrow import Array, list_numbers, starts_of
from rerank.training.batches import ActiveTerm, ListSample, MicroBatchLoss, Targets

if TYPE_CHECKING:
    from accelerate import Accelerator

UNLIMITED = 1 << 62
"""Stands for any number of tokens."""

CHUNKS = 6
"""Checkpointed chunks on a CPU after which freed memory is returned."""


class StepResult(NamedTuple):
    """Totals of one step, over all processes."""

    loss: float  # of the batch; 0 if no list had a signal
    documents: int
    lists: int  # lists with a signal, judged by their targets; 0 if the step is skipped
    stop: bool = False  # a signal came to a process


@dataclass
class MemoryLimits:
    """Memory limits, found before training starts and saved with checkpoints.

    Attributes:
        token_budget: padded tokens per forward pass; halved if memory runs out. 0 before anything is known.
        full_tokens: tokens of a micro-batch up to which ``auto`` keeps the graph.
    """

    token_budget: int = 0
    full_tokens: int = UNLIMITED


class ScoringModule(nn.Module):
    """Score a collated batch through ``forward``, which Accelerate wraps: it reaches every trained parameter."""

    def __init__(self, scorer: Scorer) -> None:
        super().__init__()
        self.scorer = scorer

    def forward(self, batch: Mapping[str, Tensor], cached: bool = False) -> Tensor:
        """Score a batch; ``cached`` keeps no graph, and the backward pass scores again with the same random numbers."""
        if not cached:
            return self.scorer.score(batch)
        scores: Tensor = checkpoint(self.scorer.score, batch, use_reentrant=False)
        return scores


class GradientAccumulator:
    r"""Accumulate the gradient of a loss, or of a weighted sum of losses, over a batch of lists.

    With ``"mean"`` reduction the gradient is that of :math:`\frac{1}{|L|} \sum_{b \in L} \ell_b` over the lists
    :math:`L` of the *whole* batch that carry a signal. Targets alone tell which ones do, so they are counted, term by
    term, before anything is scored; each micro-batch contributes its sum divided by :math:`|L|`, times the number of
    processes, since Accelerate averages over processes. Hence processes, micro-batches and chunks do not change the
    gradient, dropout and batch norm aside.

    Args:
        model: the model as Accelerate prepared it, a wrapped :class:`~rerank.training.accumulate.ScoringModule`.
        inputs: the model's inputs of the lists.
        targets: the terms of the loss, and their targets.
        micro_batch_size: lists whose loss is computed at once. None for as many as fit the token budget, at least one,
            if their graph is kept, else all.
        gradient: ``full`` keeps the graph of a micro-batch. ``cached`` keeps that of one chunk, and scores the others
            again in the backward pass (Gao et al. 2021): the loss needs all scores at once, but its gradient
            :math:`\sum_i \frac{\partial \ell}{\partial s_i} \nabla_\theta s_i` one graph at a time. ``auto``
            caches micro-batches above ``limits.full_tokens``.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        inputs: Inputs,
        targets: Targets,
        limits: MemoryLimits,
        micro_batch_size: int | None = None,
        gradient: Literal["auto", "full", "cached"] = "auto",
    ) -> None:
        self.model: Any = model  # of a class that Accelerate chooses
        self.accelerator, self.inputs, self.targets = accelerator, inputs, targets
        self.lists, self.limits = targets.lists, limits
        self.micro_batch_size, self.gradient = micro_batch_size, gradient

    def accumulate(self, batch: list[ListSample], step: int, progress: float = 0.0, seed: int = 0) -> StepResult:
        """Accumulate the batch gradient in ``.grad``, identical on every rank; leave it empty if no list has a signal.

        Term weights may change with the ``progress`` of the run, from 0 to 1. The ``seed`` decides this process's
        dropout.

        Raises:
            UserError: memory ran out and nothing is left to cut, or scores or the loss are not finite.
        """
        lists, terms = self._with_signal(batch, progress)
        if not terms:
            return StepResult(0.0, 0, 0, stop=self.accelerator.num_processes == 1 and stops.asked() is not None)
        while True:
            seed_device(self.accelerator.device, seed)
            try:
                losses = self._backpropagate_all(lists, terms)
                break
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
            self._back_off(lists, step)  # the error is gone, and with it the graphs that its frames held
            self.model.zero_grad(set_to_none=True)
        return self._result(losses, len(lists), step)

    def _with_signal(self, batch: list[ListSample], progress: float) -> tuple[list[ListSample], list[ActiveTerm]]:
        """Select the lists from which a term can learn, and the terms that can learn from one."""
        rows = [sample.rows for sample in batch]
        useful, terms = np.zeros(len(batch), dtype=bool), []
        for number, term in enumerate(self.targets.terms):
            weight = term.weight_at(progress)
            if weight and (signal := self.targets.learnable(number, rows)).any():
                useful |= signal
                over = int(signal.sum()) if term.loss.reduction == "mean" else 1
                terms.append(ActiveTerm(number, weight * self.accelerator.num_processes, over))
        return [batch[i] for i in np.flatnonzero(useful)], terms

    def _share(self, lists: list[ListSample]) -> list[ListSample]:
        """Select the lists of this process, divided by cost."""
        owners = deal(self._tokens(lists), self.accelerator.num_processes)
        return [lists[i] for i, owner in enumerate(owners) if owner == self.accelerator.process_index]

    def _backpropagate_all(self, lists: list[ListSample], terms: list[ActiveTerm]) -> list[MicroBatchLoss]:
        """Run every forward and backward pass of this process; gradients are exchanged in the last one."""
        batches = self._micro_batches(self._share(lists))
        losses = [MicroBatchLoss(samples, terms, self.targets, self.accelerator.device) for samples, _ in batches]
        for number, ((samples, tokens), loss) in enumerate(zip(batches, losses, strict=True), 1):
            self._backpropagate(samples, loss, self._cached(tokens), last=number == len(batches))
        if not batches:  # the other processes wait for this one: a pass of weight zero, over two documents
            few = replace(lists[0], rows=lists[0].rows[:2])
            self._backpropagate([few], lambda scores: 0.0 * scores.sum(), cached=False, last=True)
        return losses

    def _backpropagate(
        self, samples: list[ListSample], loss: Callable[[Tensor], Tensor], cached: bool, last: bool
    ) -> None:
        """Add the gradient of ``loss(scores)``, of all candidates of a micro-batch, to the parameters of the model.

        Candidates go through the model in chunks, which are as long as the token budget allows.
        """
        rows, starts = self._rows(samples), _starts(samples)
        list_of, chunks = list_numbers(len(rows), starts), self.inputs.chunks(rows, starts, self.limits.token_budget)
        if self.accelerator.is_fsdp2:  # weights stay gathered during a step: processes make unequal numbers of passes
            self.model.set_reshard_after_backward(last)
        parts: list[Tensor] = []
        # One block casts weights once for all chunks, whose gradients then add up in half precision: not of many.
        with nullcontext() if cached else self.accelerator.autocast():
            for number, chunk in enumerate(chunks, 1):
                batch = self.inputs.collate(rows[chunk], starts_of(list_of[chunk]))
                on_device = {name: sent(value, self.accelerator.device) for name, value in batch.items()}
                final = number == len(chunks)  # the first in the backward pass, so that its graph is kept
                with self._sync(last and final):
                    parts.append(self.model(on_device, cached and not final))
                if cached and number % CHUNKS == 0 and self.accelerator.device.type == "cpu":
                    return_freed()
                    parts[-1].register_hook(lambda _: return_freed())  # when its backward pass begins
        order = torch.from_numpy(np.argsort(np.concatenate(chunks), kind="stable"))
        with self._sync(last):
            scores = torch.cat(parts).index_select(0, sent(order, self.accelerator.device))
            self.accelerator.backward(loss(scores))

    def _sync(self, when: bool) -> AbstractContextManager[None]:
        """Exchange gradients in a backward pass only on a condition; it holds for the forward pass before it, too."""
        return nullcontext() if when else self.accelerator.no_sync(self.model)

    def _micro_batches(self, lists: list[ListSample]) -> list[tuple[list[ListSample], int]]:
        """Cut lists into micro-batches; return each with its number of tokens."""
        batches: list[tuple[list[ListSample], int]] = []
        for sample, cost in zip(lists, self._tokens(lists).tolist(), strict=True):
            samples, tokens = batches[-1] if batches else ([], 0)
            if self.micro_batch_size is not None:
                full = len(samples) == self.micro_batch_size
            else:
                full = self.gradient != "cached" and tokens + cost > self.limits.token_budget
            if (full and samples) or not batches:
                batches.append(([sample], cost))
            else:
                batches[-1] = ([*samples, sample], tokens + cost)
        return batches

    def _tokens(self, lists: list[ListSample]) -> Array:
        if not lists:
            return np.zeros(0, np.int64)
        return np.add.reduceat(self.inputs.lengths(self._rows(lists)), _starts(lists))

    def _rows(self, lists: list[ListSample]) -> Array:
        starts, offsets = self.lists.starts, self.lists.offsets
        return np.concatenate([sample.rows + (starts[sample.query] - offsets[sample.query]) for sample in lists])

    def _cached(self, tokens: int) -> bool:
        return tokens > self.limits.full_tokens if self.gradient == "auto" else self.gradient == "cached"

    def _back_off(self, lists: list[ListSample], step: int) -> None:
        """Halve the limits of one process; several processes stop."""
        if self.accelerator.device.type == "cuda":
            torch.cuda.empty_cache()
        budget, where = self.limits.token_budget, f"out of memory at step {step}"
        if self.accelerator.num_processes > 1:
            raise UserError(f"{where}; lower token_budget ({budget}) or set gradient: cached")
        if budget <= self.inputs.lengths(self._rows(lists)).max():
            more = "set gradient: cached" if self.gradient == "full" else "shorten the documents"
            raise UserError(f"{where}, with a token_budget of {budget}; {more}")
        self.limits.token_budget = budget // 2
        self.limits.full_tokens = min(self.limits.full_tokens // 2, self.limits.token_budget)
        log.warning("%s: token_budget %d from now on", where, self.limits.token_budget)

    def _result(self, losses: list[MicroBatchLoss], lists: int, step: int) -> StepResult:
        """Sum the totals over all processes; the host waits for the device here, once."""
        documents = sum(loss.documents for loss in losses)
        mine = torch.tensor([0, documents, stops.asked() is not None], dtype=torch.float32).to(self.accelerator.device)
        mine[0] = sum(loss.value for loss in losses)
        loss, documents, stop = self.accelerator.reduce(mine, "sum").tolist()
        if not np.isfinite(loss):
            raise not_finite("a score, or the loss,", step, self.accelerator.mixed_precision)
        return StepResult(loss / self.accelerator.num_processes, int(documents), lists, stop > 0)


def not_finite(what: str, step: int, precision: str) -> UserError:
    """Describe a number that is not finite, and the way out."""
    other = "" if precision == "no" else ", or set precision to fp32"
    return UserError(f"{what} is not finite at step {step}; lower optimization.encoder_lr and head_lr{other}")


def _starts(lists: list[ListSample]) -> Array:
    lengths = np.array([len(sample.rows) for sample in lists])
    return np.cumsum(lengths) - lengths


def seed_device(device: torch.device, seed: int) -> None:
    """Seed the generators of the CPU and a device, without the stack traces that ``torch.manual_seed`` formats."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        torch.get_device_module(device).manual_seed(seed)


def tokens_that_fit(
    scorer: Scorer, inputs: Inputs, lists: Lists, usable: Array, precision: Precision
) -> tuple[int, str]:
    """Estimate how many tokens (documents, for feature vectors) fit the free memory with their graph, and say why.

    The count is rounded down to a power of two, so that it does not follow every change of the memory that other
    programs leave.
    """
    device = next(scorer.parameters()).device
    free = free_memory(device)
    if free is None:
        return UNLIMITED, f"unknown on {device.type}"
    trained = sum(p.numel() for p in scorer.parameters() if p.requires_grad)
    # A gradient and two moments per parameter, in float32; half of the rest for what passes need besides their graphs.
    room = 0.5 * max(0, free - 12 * trained)
    per_token = graph_bytes(scorer, inputs, lists.select(usable[:256]), precision)
    tokens = 2 ** int(np.log2(max(1.0, room / per_token)))
    return tokens, f"{room / 1e9:.1f} GB, {per_token / 1e3:.1f} kB a token, enough for {tokens} tokens"


def graph_bytes(scorer: Scorer, inputs: Inputs, lists: Lists, precision: Precision) -> float:
    """Measure the bytes that a graph keeps per token, in a forward pass over the longest pairs of lists."""
    device = next(scorer.parameters()).device
    rows, starts = lists.row_numbers, lists.offsets[:-1]
    chunk = inputs.chunks(rows, starts, 2048)[0]
    batch = inputs.collate(rows[chunk], starts_of(list_numbers(len(rows), starts)[chunk]))
    with kept(scorer) as storages, autocast(precision, device):
        scorer.score({name: sent(value, device) for name, value in batch.items()})
    size = sum(storage.nbytes() for storage in storages.values())
    return max(1.0, size / int(inputs.lengths(rows[chunk]).sum()))
