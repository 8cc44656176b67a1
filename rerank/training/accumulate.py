"""Accumulate the exact gradient of one batch over micro-batches, chunks and processes, in the memory that there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rerank import stops
from rerank.errors import UserError
from rerank.kernels.memory import free_memory, kept, out_of_memory, sent
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

PROBE_TOKENS = 2048
"""Tokens of the forward pass that is measured."""

PROBE_LISTS = 256
"""Lists among which the longest pairs are measured."""

GRAPH_SHARE = 0.5
"""Share of the free memory for graphs; the rest is for what forward and backward passes need in between."""

BYTES_PER_PARAMETER = 12
"""A gradient and two moments, in float32."""

UNLIMITED = 1 << 62
"""Stands for any number of tokens."""


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

    def forward(self, batch: Mapping[str, Tensor]) -> Tensor:
        return self.scorer.score(batch)


class RngSnapshot:
    """Random states of torch and running statistics of batch norms, to score the same chunk again."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        self.device = None if device.type == "cpu" else device
        self.cpu = torch.get_rng_state()
        self.own = torch.get_device_module(device).get_rng_state(device) if self.device else None
        norms = (module for module in model.modules() if getattr(module, "track_running_stats", False))
        self.statistics = [(buffer, buffer.clone()) for norm in norms for buffer in norm.buffers(recurse=False)]

    def restore(self) -> None:
        torch.set_rng_state(self.cpu)
        if self.device:
            torch.get_device_module(self.device).set_rng_state(self.own, self.device)
        for buffer, before in self.statistics:
            buffer.copy_(before)


class ChunkedForward:
    """Score the candidates of lists, cut into chunks that go through the model one after the other.

    Args:
        model: the model as Accelerate prepared it.
        rows: ``[N]`` rows of the candidates in the store, list after list.
        starts: positions in ``rows`` at which a list starts.
        budget: rows of matrix products (tokens) per chunk at most.

    Attributes:
        chunks: positions in ``rows`` that are scored together.
        empty: the number of chunks at the beginning that count for nothing.
    """

    def __init__(
        self, accelerator: Accelerator, model: nn.Module, inputs: Inputs, rows: Array, starts: Array, budget: int
    ) -> None:
        self.accelerator, self.model, self.inputs, self.device = accelerator, model, inputs, accelerator.device
        self.rows, self._list_of = rows, list_numbers(len(rows), starts)
        self.chunks = inputs.chunks(rows, starts, budget)
        self.empty = 0

    def pad(self, passes: int) -> None:
        """Score two documents again and again before the others, up to a number of passes that all processes make."""
        self.empty = max(0, passes - len(self.chunks))
        self.chunks = [self.chunks[0][:2]] * self.empty + self.chunks

    def score(self, chunk: Array) -> Tensor:
        batch = self.inputs.collate(self.rows[chunk], starts_of(self._list_of[chunk]))
        scores: Tensor = self.model({name: sent(value, self.device) for name, value in batch.items()})
        return scores

    def in_order(self, parts: list[Tensor]) -> Tensor:
        """Join the scores of all chunks but the empty ones, ``[N]`` in the order of the candidates."""
        parts, chunks = parts[self.empty :], self.chunks[self.empty :]
        if len(parts) == 1 and (np.diff(chunks[0]) == 1).all():
            return parts[0]
        order = sent(torch.from_numpy(np.argsort(np.concatenate(chunks), kind="stable")), self.device)
        return torch.cat(parts)[order]

    def by_chunk(self, gradient: Tensor) -> list[Tensor]:
        """Cut the derivatives of scores ``[N]`` into those of each chunk; empty ones have zeros."""
        parts = [gradient[sent(torch.from_numpy(chunk), self.device)] for chunk in self.chunks]
        return [torch.zeros_like(part) for part in parts[: self.empty]] + parts[self.empty :]

    def sync(self, when: bool) -> AbstractContextManager[None]:
        """Exchange gradients in a backward pass only on a condition; it holds for the forward pass before it, too."""
        return nullcontext() if when else self.accelerator.no_sync(self.model)


def backpropagate(cached: bool, forward: ChunkedForward, loss: Callable[[Tensor], Tensor], last: bool) -> None:
    r"""Add the gradient of ``loss(scores)`` to the parameters of the model.

    With scores :math:`s(\theta) \in R^N` the gradient is :math:`\sum_i \frac{\partial \ell}{\partial s_i}
    \nabla_\theta s_i`: the loss needs all scores, but the rest needs the graph of one chunk at a time. Both ways
    compute this sum, with the same random numbers.

    Args:
        cached: score all chunks without a graph, take the gradient of the loss on the scores, then score each chunk
            again and backpropagate its share (Gao et al. 2021); by default the graph of every chunk is kept.
        forward: candidates of the micro-batch.
        loss: a scalar of scores ``[N]`` in the order of the candidates.
        last: whether processes exchange gradients in the last backward pass.
    """
    *others, final = forward.chunks
    if not cached or not others:
        with forward.accelerator.autocast():  # one block for all chunks: weights are cast once
            with forward.sync(False):
                parts = [forward.score(chunk) for chunk in others]
            with forward.sync(last):
                parts.append(forward.score(final))
        with forward.sync(last):
            value = loss(forward.in_order(parts))
            for part in parts[: forward.empty]:
                value = value + 0.0 * part.sum()
            forward.accelerator.backward(value)
        return
    parts, states = [], []
    with forward.sync(False):
        with torch.no_grad(), forward.accelerator.autocast():
            for chunk in others:
                states.append(RngSnapshot(forward.model, forward.device))
                parts.append(forward.score(chunk))
        graph = forward.score(final)  # keeps its graph at once: it is scored once
        scores = forward.in_order([*parts, graph.detach()]).requires_grad_()
        forward.accelerator.backward(loss(scores))
        assert scores.grad is not None
        *gradients, gradient = forward.by_chunk(scores.grad)
        graph.backward(gradient)
    del graph
    after = RngSnapshot(forward.model, forward.device)
    again = reversed(list(zip(others, states, gradients, strict=True)))  # the order of a full graph
    for number, (chunk, state, gradient) in enumerate(again, 1):
        state.restore()
        with forward.sync(last and number == len(others)):
            forward.score(chunk).backward(gradient)
    after.restore()


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
        gradient: whether the gradient of a micro-batch is cached (:func:`~rerank.training.accumulate.backpropagate`);
            ``auto`` caches above ``limits.full_tokens``.
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
        self.accelerator, self.model, self.inputs, self.targets = accelerator, model, inputs, targets
        self.lists, self.limits = targets.lists, limits
        self.scorer: Scorer = accelerator.unwrap_model(model).scorer
        self.micro_batch_size, self.gradient = micro_batch_size, gradient

    def accumulate(self, batch: list[ListSample], step: int, progress: float = 0.0) -> StepResult:
        """Accumulate the batch gradient in ``.grad``, identical on every rank; leave it empty if no list has a signal.

        Term weights may change with the ``progress`` of the run, from 0 to 1.

        Raises:
            UserError: memory ran out and nothing is left to cut, or scores or the loss are not finite.
        """
        lists, terms = self._with_signal(batch, progress)
        if not terms:
            return StepResult(0.0, 0, 0, stop=self.accelerator.num_processes == 1 and stops.asked() is not None)
        start = RngSnapshot(self.scorer, self.accelerator.device)
        while True:
            try:
                losses = self._backpropagate_all(lists, terms)
                break
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
            self._back_off(lists, step)  # the error is gone, and with it the graphs that its frames held
            start.restore()
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
        passes = [(self._forward(samples), self._cached(tokens)) for samples, tokens in batches]
        plan = [(cached, len(forward.chunks)) for forward, cached in passes] or [(False, 1)]  # others wait for it
        if self.accelerator.is_fsdp2:  # weights are gathered in every pass, so each process makes as many
            plans = [plan] * self.accelerator.num_processes
            torch.distributed.all_gather_object(plans, plan)
            common = zip_longest(*plans, fillvalue=(False, 1))
            plan = [(any(cached), max(chunks)) for cached, chunks in (zip(*of, strict=True) for of in common)]
        for number, (cached, chunks) in enumerate(plan):
            last = number == len(plan) - 1
            if number < len(passes):
                forward, loss = passes[number][0], losses[number]
                forward.pad(chunks)
                backpropagate(cached, forward, loss, last)
            else:  # passes of weight zero, over two documents
                longest = max(lists, key=lambda sample: len(sample.rows))
                forward = self._forward([ListSample(longest.query, longest.rows[:2], longest.seed)])
                del forward.chunks[1:]
                forward.pad(chunks)
                backpropagate(cached, forward, lambda scores: scores.sum() * 0.0, last)
        return losses

    def _forward(self, samples: list[ListSample]) -> ChunkedForward:
        rows, starts = self._rows(samples), _starts(samples)
        return ChunkedForward(self.accelerator, self.model, self.inputs, rows, starts, self.limits.token_budget)

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


def has_unused_parameters(scorer: Scorer, inputs: Inputs, lists: Lists) -> bool:
    """Test whether a pass over two documents leaves a trained parameter without a gradient, as DDP must know."""
    training = scorer.training
    rows = lists.row_numbers[: min(2, int(lists.lengths[0]))]
    ScoringModule(scorer.eval())(inputs.collate(rows, np.zeros(1, np.int64))).sum().backward()
    unused = any(parameter.requires_grad and parameter.grad is None for parameter in scorer.parameters())
    scorer.zero_grad(set_to_none=True)
    scorer.train(training)
    return unused


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
    room = GRAPH_SHARE * max(0, free - BYTES_PER_PARAMETER * trained)
    per_token = graph_bytes(scorer, inputs, lists.select(usable[:PROBE_LISTS]), precision)
    tokens = 2 ** int(np.log2(max(1.0, room / per_token)))
    return tokens, f"{room / 1e9:.1f} GB, {per_token / 1e3:.1f} kB a token, enough for {tokens} tokens"


def graph_bytes(scorer: Scorer, inputs: Inputs, lists: Lists, precision: Precision) -> float:
    """Measure the bytes that a graph keeps per token, in a forward pass over the longest pairs of lists."""
    device = next(scorer.parameters()).device
    rows, starts = lists.row_numbers, lists.offsets[:-1]
    chunk = inputs.chunks(rows, starts, PROBE_TOKENS)[0]
    batch = inputs.collate(rows[chunk], starts_of(list_numbers(len(rows), starts)[chunk]))
    before = RngSnapshot(scorer, device)
    with kept(scorer) as count, autocast(precision, device):
        scores = scorer.score({name: sent(value, device) for name, value in batch.items()})
        size = count.bytes
        del scores
    before.restore()  # running statistics do not see the probe
    return max(1.0, size / int(inputs.lengths(rows[chunk]).sum()))
