"""Accumulate the exact gradient of one batch over micro-batches and processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rerank import stops
from rerank.errors import UserError
from rerank.kernels.memory import out_of_memory
from rerank.lists.view import Lists
from rerank.losses.base import Criterion
from rerank.models.base import Inputs
from rerank.models.scorer import Scorer
from rerank.progress import log
from rerank.scoring.shared import deal
from rerank.scoring.together import together
from rerank.storage.arrow import Array
from rerank.training.batches import ListSample
from rerank.training.forward import RESCORE_TOLERANCE, ChunkedForward, Mode, RngSnapshot, backpropagate
from rerank.training.targets import ActiveTerm, MicroBatchLoss, Targets

if TYPE_CHECKING:
    from accelerate import Accelerator

QUERIES_NAMED = 5
"""Largest number of queries that an error names."""


class StepResult(NamedTuple):
    """Totals of one step, over all processes."""

    loss: float  # of the batch; 0 if no list had a signal
    documents: int
    lists: int  # lists with a signal, judged by their targets; 0 if the step is skipped
    dead: int  # those of them whose loss had a zero gradient on every score
    stop: bool = False


@dataclass
class MemoryLimits:
    """Memory limits, found before training starts and saved with checkpoints.

    Attributes:
        token_budget: padded tokens per forward pass; halved if memory runs out. 0 before anything is known.
        full_tokens: tokens of a micro-batch up to which ``auto`` keeps the graph; None for any number.
    """

    token_budget: int = 0
    full_tokens: int | None = None

    def state_dict(self) -> dict[str, Any]:
        return asdict(self)


class Passes(NamedTuple):
    """How a micro-batch goes through the model."""

    mode: Mode
    chunks: int


def common_passes(plans: Sequence[Sequence[Passes]]) -> list[Passes]:
    """Merge the plans of all processes into one that each can follow, with empty passes where it has fewer.

    >>> common_passes([[Passes("full", 2)], [Passes("full", 1), Passes("cached", 3)]])
    [Passes(mode='full', chunks=2), Passes(mode='cached', chunks=3)]
    """
    merged = []
    for micro_batch in zip_longest(*plans, fillvalue=Passes("full", 1)):
        mode: Mode = "cached" if any(passes.mode == "cached" for passes in micro_batch) else "full"
        merged.append(Passes(mode, max(passes.chunks for passes in micro_batch)))
    return merged


class _OutOfMemory(Exception):
    """Memory ran out in a micro-batch: how its gradient was computed, its lists, its tokens, its longest document."""

    def __init__(self, mode: Mode, lists: int, tokens: int, longest: int) -> None:
        super().__init__()
        self.mode, self.lists, self.tokens, self.longest = mode, lists, tokens, longest


class GradientAccumulator:
    r"""Accumulate the gradient of a loss, or of a weighted sum of losses, over a batch of lists.

    With ``"mean"`` reduction the gradient is that of :math:`\frac{1}{|L|} \sum_{b \in L} \ell_b` over the lists
    :math:`L` of the *whole* batch that carry a signal. Targets alone tell which ones do, so they are counted, term by
    term, before anything is scored; each micro-batch contributes its sum divided by :math:`|L|`, times the number of
    processes, since Accelerate averages over processes. Hence processes, micro-batches and chunks do not change the
    gradient, dropout and batch norm aside.

    Args:
        model: the model as Accelerate prepared it, a wrapped :class:`~rerank.training.forward.ScoringModule`.
        inputs: what the model reads of the lists.
        micro_batch_size: lists whose loss is computed at once. None for as many as fit the token budget, at least one,
            if their graph is kept, else all.
        gradient: how the gradient of a micro-batch is computed (:func:`~rerank.training.forward.backpropagate`).
        why: where ``limits.full_tokens`` comes from, for the log.
    """

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        inputs: Inputs,
        lists: Lists,
        loss: Criterion,
        limits: MemoryLimits,
        micro_batch_size: int | None = None,
        gradient: Mode | Literal["auto"] = "auto",
        why: str = "as configured",
    ) -> None:
        self.accelerator, self.model = accelerator, model
        self.scorer: Scorer = accelerator.unwrap_model(model).scorer
        self.inputs, self.lists, self.limits = inputs, lists, limits
        self.micro_batch_size, self.gradient, self.why = micro_batch_size, gradient, why
        self.targets = Targets(lists, loss)
        self._device = accelerator.device
        self._logged_modes: set[Mode] = set()

    def accumulate(self, batch: list[ListSample], step: int, progress: float = 0.0) -> StepResult:
        """Accumulate the batch gradient in ``.grad``, identical on every rank; leave it empty if no list has a signal.

        Term weights may change with the ``progress`` of the run, from 0 to 1.

        Raises:
            UserError: memory ran out and nothing is left to cut, or scores or the loss are not finite.
        """
        lists, terms = self._with_signal(batch, progress)
        if not terms:
            return StepResult(0.0, 0, 0, 0, stop=self.accelerator.num_processes == 1 and stops.asked() is not None)
        start = RngSnapshot(self.scorer, self._device)
        while True:
            try:
                losses = self._backpropagate_all(lists, terms)
                break
            except _OutOfMemory as error:
                self._back_off(error, step)
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
        """Select the lists of this process, divided by cost; one process takes all of them under batch norm."""
        process, processes = self.accelerator.process_index, self.accelerator.num_processes
        if self.scorer.whole_batches:
            return lists if process == 0 else []
        if processes == 1:
            return lists
        owners = deal(self._tokens(lists), processes)
        return [sample for owner, sample in zip(owners, lists, strict=True) if owner == process]

    def _backpropagate_all(self, lists: list[ListSample], terms: list[ActiveTerm]) -> list[MicroBatchLoss]:
        """Run every forward and backward pass of this process; gradients are exchanged in the last one."""
        batches = list(self._micro_batches(self._share(lists)))
        own = len(batches)
        forwards = [self._forward(samples) for samples, _ in batches]
        passes = [Passes(self._mode(batch[1]), len(part.chunks)) for batch, part in zip(batches, forwards, strict=True)]
        if self.accelerator.is_fsdp2:  # weights are gathered in every pass
            plans = [passes] * self.accelerator.num_processes
            torch.distributed.all_gather_object(plans, passes)
            passes = common_passes(plans)
        elif self.accelerator.num_processes > 1 and not passes:  # the others wait for the gradient
            passes = [Passes("full", 1)]
        for _ in range(own, len(passes)):
            batches.append((_filler(lists), 0))
            forwards.append(self._forward(batches[-1][0]))
            del forwards[-1].chunks[1:]
        losses: list[MicroBatchLoss] = []
        for number, (planned, forward, (samples, tokens)) in enumerate(zip(passes, forwards, batches, strict=True), 1):
            forward.pad(planned.chunks)
            if number <= own:
                losses.append(MicroBatchLoss(samples, terms, self.targets, self._device))
            try:
                backpropagate(planned.mode, forward, losses[-1] if number <= own else _zero, number == len(passes))
            except Exception as error:
                if not out_of_memory(error):
                    raise
                longest = int(self.inputs.lengths(forward.rows).max())
                raise _OutOfMemory(planned.mode, len(samples), tokens, longest) from None
            if number <= own:
                losses[-1].difference = forward.difference
        return losses

    def _forward(self, samples: list[ListSample]) -> ChunkedForward:
        rows, starts, budget = self._rows(samples), _starts(samples), self.limits.token_budget
        return ChunkedForward(self.accelerator, self.model, self.scorer, self.inputs, rows, starts, budget)

    def _micro_batches(self, lists: list[ListSample]) -> Iterator[tuple[list[ListSample], int]]:
        """Cut lists into micro-batches; yield each with its number of tokens."""
        if not lists:
            return
        first, tokens = 0, 0
        for i, cost in enumerate(self._tokens(lists).tolist()):
            if self.micro_batch_size is not None:
                full = i - first == self.micro_batch_size
            else:
                full = self.gradient in ("full", "auto") and tokens + cost > self.limits.token_budget
            if i > first and full:
                yield lists[first:i], tokens
                first, tokens = i, 0
            tokens += cost
        yield lists[first:], tokens

    def _tokens(self, lists: list[ListSample]) -> Array:
        return np.add.reduceat(self.inputs.lengths(self._rows(lists)), _starts(lists))

    def _rows(self, lists: list[ListSample]) -> Array:
        starts, offsets = self.lists.starts, self.lists.offsets
        return np.concatenate([sample.rows + (starts[sample.query] - offsets[sample.query]) for sample in lists])

    def _mode(self, tokens: int) -> Mode:
        """Choose how the gradient of a micro-batch is computed; log once what ``auto`` picks."""
        if self.gradient != "auto":
            return self.gradient
        fits = self.limits.full_tokens is None or tokens <= self.limits.full_tokens
        mode: Mode = "full" if fits else "cached"
        if mode not in self._logged_modes and self.accelerator.is_main_process:
            self._logged_modes.add(mode)
            room = "any number" if self.limits.full_tokens is None else self.limits.full_tokens
            said = mode, tokens, room, self.why
            log.info("gradient mode: %s (%d tokens in a micro-batch, %s fit with their graph: %s)", *said)
        return mode

    def _back_off(self, error: _OutOfMemory, step: int) -> None:
        """Halve what one process takes at once; several processes stop."""
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        where = f"out of memory at step {step}, {error.tokens} tokens in a micro-batch"
        if self.accelerator.num_processes > 1:
            raise UserError(f"{where}; lower token_budget ({self.limits.token_budget}) or set gradient: cached")
        if error.mode == "full" and self.gradient == "auto":
            self.limits.full_tokens = error.tokens // 2
            self.why = "memory ran out with more"
            log.warning("%s: gradient cached from %d tokens on", where, self.limits.full_tokens + 1)
        elif error.mode == "full" and (error.lists == 1 or self.micro_batch_size is not None):
            raise UserError(f"{where} of {error.lists} lists; set gradient to auto or cached")
        elif self.limits.token_budget <= error.longest:
            raise UserError(f"{where}, one document at a time; shorten the documents")
        else:
            self.limits.token_budget //= 2
            log.warning("%s: token_budget %d from now on", where, self.limits.token_budget)

    def _result(self, losses: list[MicroBatchLoss], lists: int, step: int) -> StepResult:
        """Sum the totals over all processes; the host waits for the device here, once."""
        rows = [torch.cat([loss.difference[None], loss.numbers]) for loss in losses]
        values = torch.stack(rows) if rows else torch.zeros(1, 4, device=self._device)
        wrong = (~values.isfinite()).any() | (values[:, 0] > RESCORE_TOLERANCE).any()
        total = values[:, 1].sum() / self.accelerator.num_processes
        dead = sum((loss.dead for loss in losses), torch.zeros((), device=self._device))
        counted = sum(loss.documents for loss in losses)
        counts = torch.tensor([counted, stops.asked() is not None], dtype=total.dtype, device=self._device)
        mine = torch.cat([torch.stack([total.masked_fill(wrong, torch.nan), dead]), counts])
        loss, dead_lists, documents, stop = self.accelerator.reduce(mine, "sum").tolist()
        if not np.isfinite(loss):
            with together():  # the process that knows the cause says it for all
                self._check(losses, values.cpu().numpy(), step)
        return StepResult(loss, int(documents), lists, int(dead_lists), stop > 0)

    def _check(self, losses: list[MicroBatchLoss], values: Array, step: int) -> None:
        """Raise for scores that changed when they were computed again, and for numbers that are not finite."""
        if (worst := values[:, 0].max()) > RESCORE_TOLERANCE:
            raise RuntimeError(
                f"a score differs by {worst:.0%} when it is computed again: the model draws random numbers that "
                "torch's generators do not decide; train with gradient: full"
            )
        wrong = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(wrong):
            what = "the loss" if np.isfinite(values[wrong, 2:]).all() else "a score"
            ids = [self.lists.query_ids[sample.query] for i in wrong for sample in losses[i].samples]
            more = f" and {len(ids) - QUERIES_NAMED} more" if len(ids) > QUERIES_NAMED else ""
            low, high = values[wrong, 2].min(), values[wrong, 3].max()
            where = f", queries {', '.join(ids[:QUERIES_NAMED])}{more}, scores from {low:g} to {high:g}"
            raise not_finite(what, step, self.accelerator.mixed_precision, where)


def not_finite(what: str, step: int, precision: str, where: str = "") -> UserError:
    """Describe a number that is not finite, and the way out."""
    other = "" if precision == "no" else ", or set precision to fp32"
    return UserError(f"{what} is not finite at step {step}{where}; lower optimization.encoder_lr and head_lr{other}")


def _filler(lists: list[ListSample]) -> list[ListSample]:
    """Take two documents of a batch for passes of weight zero."""
    longest = max(lists, key=lambda sample: len(sample.rows))
    return [ListSample(longest.query, longest.rows[:2], longest.seed)]


def _zero(scores: Tensor) -> Tensor:
    return scores.sum() * 0.0


def _starts(lists: list[ListSample]) -> Array:
    lengths = np.array([len(sample.rows) for sample in lists])
    return np.cumsum(lengths) - lengths
