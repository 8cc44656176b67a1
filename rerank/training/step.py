"""The gradient of one effective batch, however it is cut."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rerank import stops
from rerank.errors import UserError
from rerank.kernels.by_layer import keep_inputs_alone
from rerank.kernels.memory import out_of_memory, sent
from rerank.kernels.precision import Precision
from rerank.kernels.sparse import sparse_embeddings
from rerank.lists.view import Lists
from rerank.losses.base import Criterion
from rerank.models.base import Inputs
from rerank.models.scorer import Scorer
from rerank.progress import log
from rerank.scoring.shared import deal
from rerank.scoring.together import together
from rerank.storage.arrow import Array
from rerank.training.batches import ListSample
from rerank.training.gradient import ALIKE, Before, Chunked, Mode, backpropagate
from rerank.training.targets import ActiveTerm, PieceLoss, Targets

LOSS_SCALE, GROW = 65536.0, 2000
"""In fp16 the loss is multiplied by this at first, and by twice as much after so many steps without an overflow."""

NAMED = 5
"""Queries that an error names at most."""


class Step(NamedTuple):
    """What one step did, over all processes."""

    loss: float  # of the batch; 0 where there was nothing to learn from
    documents: int
    lists: int  # from which something could be learned, by their targets; 0 where the step is to be skipped
    dead: int  # those of them whose loss had no gradient on any score (`rerank.training.targets.DEAD`)
    stop: bool = False


@dataclass
class MemoryLimits:
    """What memory and fp16 allow: found while training, and kept by checkpoints.

    Attributes:
        token_budget: padded tokens per forward pass; halved where memory runs out. 0 before anything is known.
        full_tokens: tokens of a micro-batch up to which ``auto`` keeps the graph; None for any number. Lowered where
            memory runs out.
        loss_scale: what the loss is multiplied by in fp16, and its gradient divided by, so that small gradients are not
            0; halved, and the step done again, where large ones are infinite.
    """

    token_budget: int = 0
    full_tokens: int | None = None
    loss_scale: float = LOSS_SCALE
    since_overflow: int = 0


@dataclass
class Gradients:
    r"""Accumulates the gradient of a loss, or of a sum of them, over an effective batch.

    With ``"mean"`` reduction the gradient is that of :math:`\frac{1}{|L|} \sum_{b \in L} \ell_b` over the learnable
    lists :math:`L` of the *whole* batch: targets alone tell them, so they are counted before anything is scored, term
    by term, and each piece contributes its sum divided by :math:`|L|`. Hence processes, accumulation and chunks change
    nothing, but for batch norm, which is over the documents of a chunk.

    Attributes:
        micro_batch_size: lists whose loss is taken at once. None for as many as fit the token budget, at least one,
            where their graph is kept, and for all of them where it is not.
        gradient: how the gradient of a micro-batch is taken (:func:`~rerank.training.gradient.backpropagate`);
            ``auto`` keeps the graph where it fits.
        why: where ``limits.full_tokens`` comes from, for the log.
    """

    model: Scorer
    inputs: Inputs
    lists: Lists
    loss: Criterion
    precision: Precision
    limits: MemoryLimits
    micro_batch_size: int | None = None
    gradient: Mode | Literal["auto"] = "full"
    why: str = "as configured"
    process: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        self.targets = Targets(self.lists, self.loss)
        self._parameters = [p for p in self.model.parameters() if p.requires_grad]
        self._device = self._parameters[0].device
        self._is_scaled = self.precision == "fp16"
        self._logged_modes: set[Mode] = set()
        self._pieces: list[PieceLoss] = []

    def accumulate(
        self, groups: list[ListSample], step: int, progress: float = 0.0, moved: Callable[[float], object] | None = None
    ) -> Step:
        """Leave the batch's gradient in the parameters, the same in every process; none where nothing can be learned.

        Weights may change with the ``progress`` of the training, from 0 to 1. After each chunk ``moved`` is told what
        share of the step's passes it was, for a bar that moves within long steps.
        """
        useful, terms = self._learnable(groups, progress)
        if not terms:
            return Step(0.0, 0, 0, 0, stop=self.processes == 1 and stops.asked() is not None)
        mine = self._of_this_process(useful)
        start = Before(self.model, self._device)
        while True:
            message: Tensor | None = None
            failure: Exception | None = None
            try:
                self._pieces = []
                with sparse_embeddings(self.model):
                    for piece, mode in self._cut(mine, terms, moved):
                        backpropagate(mode, piece.chunked, piece)
                        self._pieces.append(piece)
                message = self._message(self._summary(mine))
            except Exception as error:
                failure = None if out_of_memory(error) else error
            if message is None and failure is None:  # the error is gone, and with it what its frames held
                failure = self._back_off(step)
            if failure is not None:
                if self.processes == 1:
                    raise failure
                self._forget()  # the others wait for the sum, and learn of it there
                message = self._message(torch.full((4,), torch.nan, device=self._device))
            if message is not None and (done := self._finish(message, len(useful), step, failure)) is not None:
                return done
            start.restore()
            self._forget()

    def _learnable(self, groups: list[ListSample], progress: float) -> tuple[list[ListSample], list[ActiveTerm]]:
        """The lists from which a term can learn in this step, and the terms that can."""
        rows = [group.rows for group in groups]
        useful, terms = np.zeros(len(groups), dtype=bool), []
        for number, term in enumerate(self.targets.terms):
            weight = term.weight_at(progress)
            if weight and (learnable := self.targets.learnable(number, rows)).any():
                useful |= learnable
                over = int(learnable.sum()) if term.loss.reduction == "mean" else 1
                terms.append(ActiveTerm(number, weight, over))
        return [groups[i] for i in np.flatnonzero(useful)], terms

    def _of_this_process(self, useful: list[ListSample]) -> list[ListSample]:
        if self.model.whole_batches:
            return useful if self.process == 0 else []
        if self.processes == 1:
            return useful
        owners = deal(self._tokens(useful), self.processes)
        return [group for owner, group in zip(owners, useful, strict=True) if owner == self.process]

    def _cut(
        self, mine: list[ListSample], terms: list[ActiveTerm], moved: Callable[[float], object] | None
    ) -> Iterator[tuple[PieceLoss, Mode]]:
        """The micro-batches of this process, and how the gradient of each is taken."""
        documents = sum(len(group.rows) for group in mine)
        scale = self.limits.loss_scale if self._is_scaled else None
        for groups, tokens in self._micro_batches(mine):
            self._piece = piece = PieceLoss(groups, tokens, terms, self.targets, self._device, scale)
            mode = self._mode(tokens)
            passes = documents * (1 if mode == "full" else 2)  # without all graphs nearly all chunks are scored twice
            scored = None if moved is None else lambda count, passes=passes: moved(count / passes)
            rows, budget = self._rows(groups), self.limits.token_budget
            piece.chunked = Chunked(
                self.model, self.inputs, rows, piece.starts, budget, self.precision, self._device, scored
            )
            yield piece, mode

    def _micro_batches(self, groups: list[ListSample]) -> Iterator[tuple[list[ListSample], int]]:
        """Cut lists into micro-batches; gives each with its number of tokens."""
        if not groups:
            return
        first, tokens = 0, 0
        for i, cost in enumerate(self._tokens(groups).tolist()):
            if self.micro_batch_size is not None:
                full = i - first == self.micro_batch_size
            else:
                full = self.gradient in ("full", "auto") and tokens + cost > self.limits.token_budget
            if i > first and full:
                yield groups[first:i], tokens
                first, tokens = i, 0
            tokens += cost
        yield groups[first:], tokens

    def _tokens(self, groups: list[ListSample]) -> Array:
        starts = np.cumsum([0] + [len(group.rows) for group in groups[:-1]])
        return np.add.reduceat(self.inputs.lengths(self._rows(groups)), starts)

    def _rows(self, groups: list[ListSample]) -> Array:
        starts, offsets = self.lists.starts, self.lists.offsets
        return np.concatenate([group.rows + (starts[group.query] - offsets[group.query]) for group in groups])

    def _mode(self, tokens: int) -> Mode:
        """How the gradient of a micro-batch of so many tokens is taken; what ``auto`` picks is logged once."""
        if self.gradient != "auto":
            return self.gradient
        fits = self.limits.full_tokens is None or tokens <= self.limits.full_tokens
        mode: Mode = "full" if fits else "cached"
        if mode not in self._logged_modes and self.process == 0:
            self._logged_modes.add(mode)
            room = "any number" if self.limits.full_tokens is None else self.limits.full_tokens
            said = mode, tokens, room, self.why
            log.info("gradient mode: %s (%d tokens in a micro-batch, %s fit with their graph: %s)", *said)
        return mode

    def _back_off(self, step: int) -> UserError | None:
        """Cut the micro-batch where its graph is kept, else the chunk; gives what to say where neither can be cut."""
        groups, tokens = self._piece.groups, self._piece.tokens
        mode = self._mode(tokens)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        if mode == "full" and self.gradient == "auto":
            fits = self.limits.full_tokens = tokens // 2
            self.why = "memory ran out with more"
            log.warning("out of memory at step %d: gradient cached from %d tokens on", step, fits + 1)
            return None
        if mode == "full" and (len(groups) == 1 or self.micro_batch_size is not None):
            return UserError(
                f"out of memory at step {step}, {tokens} tokens in {len(groups)} lists; set gradient to auto or cached"
            )
        if self.limits.token_budget <= int(self.inputs.lengths(self._rows(groups)).max()):
            if keep_inputs_alone(self.model):
                log.warning("out of memory at step %d: from now on backward passes compute each layer again", step)
                return None
            return UserError(f"out of memory at step {step}, with one document at a time; shorten the documents")
        self.limits.token_budget //= 2
        log.warning("out of memory at step %d: token_budget %d from now on", step, self.limits.token_budget)
        return None

    def _summary(self, mine: list[ListSample]) -> Tensor:
        """Loss, documents, dead lists and whether to stop, ``[4]`` on the device: the host does not wait for it."""
        offs, *numbers = self._numbers()
        wrong = (~torch.stack(numbers).isfinite()).any() | (offs > ALIKE).any()
        loss = numbers[0].sum().masked_fill(wrong, torch.nan)  # so that every process notices
        dead = sum((piece.dead for piece in self._pieces), torch.zeros((), device=self._device))
        documents = sum(len(group.rows) for group in mine)
        counts = torch.tensor([documents, stops.asked() is not None], dtype=loss.dtype)
        scored, stop = sent(counts, self._device)
        return torch.stack([loss, scored, dead, stop])

    def _message(self, values: Tensor) -> Tensor:
        """What is summed over the processes: values and, where there are several, gradients and which there are."""
        if self.processes == 1:
            return values
        reached = sent(torch.tensor([float(p.grad is not None) for p in self._parameters]), self._device)
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = (gradient.flatten().float() for p in self._parameters if (gradient := p.grad) is not None)
        return torch.cat([*gradients, values, reached])

    def _all_reduce(self, message: Tensor) -> Tensor:
        """Sum over the processes, leave the gradient in the parameters, and give the values.

        With several processes every parameter has a gradient, of zeros where none reached it, until :meth:`_finish`
        takes these away; which they are stands behind the values.
        """
        if self.processes == 1:
            return message
        dist.all_reduce(message)
        sizes = [p.numel() for p in self._parameters]
        *sums, values = message.split([*sizes, len(message) - sum(sizes)])
        for parameter, total in zip(self._parameters, sums, strict=True):
            if parameter.grad is not None:
                parameter.grad.copy_(total.view_as(parameter))
        return values

    def _numbers(self) -> Tensor:
        """Of each piece how far second scores were off, its loss, its lowest and its highest score, ``[4, P]``."""
        columns = [torch.cat([piece.chunked.off[None], piece.numbers])[:, None] for piece in self._pieces]
        return torch.cat([torch.zeros(4, 0, device=self._device), *columns], dim=1)

    def _finish(self, own: Tensor, lists: int, step: int, failure: Exception | None) -> Step | None:
        """What the step did, over all processes; None where fp16 needs another scale. The host waits here, once."""
        summed = self._all_reduce(own)
        gradients = [gradient for p in self._parameters if (gradient := p.grad) is not None]
        if self._is_scaled:
            torch._foreach_mul_(gradients, 1 / self.limits.loss_scale)
        self.norm = torch.nn.utils.get_total_norm(gradients) if gradients else summed.new_zeros(())
        values = torch.cat([self.norm[None], self._numbers().flatten(), summed])
        norm, *others = values.tolist()
        pieces = 4 * len(self._pieces)
        loss, scored, dead, stop, *reached = others[pieces:]
        for parameter, by in zip(self._parameters, reached, strict=self.processes > 1):
            if not by:  # in no process: the optimizer would let it decay
                parameter.grad = None
        if np.isfinite(loss) and not np.isfinite(norm) and self._is_scaled and self.limits.loss_scale > 1:
            scale = self.limits.loss_scale = self.limits.loss_scale / 2
            self.limits.since_overflow = 0
            log.info("step %d: the gradient is too large for fp16; loss scale %g from now on", step, scale)
            return None
        if not np.isfinite([loss, norm]).all():
            numbers = np.reshape(others[:pieces], (4, len(self._pieces)))
            with together():  # the process that knows the cause says it for all
                if failure is not None:
                    raise failure
                self._check_pieces(step, numbers)
            with together():
                if self._pieces:
                    what = "the gradient" if np.isfinite(loss) else "the loss"
                    raise self._not_finite(what, step, np.arange(len(self._pieces)), numbers)
        self.limits.since_overflow += 1
        if self._is_scaled and self.limits.since_overflow >= GROW:
            self.limits.loss_scale, self.limits.since_overflow = self.limits.loss_scale * 2, 0
        return Step(loss, int(scored), lists, int(dead), stop > 0)

    def _check_pieces(self, step: int, numbers: Array) -> None:
        """Refuse pieces whose second scores were others, or whose loss or scores are not finite."""
        if len(off := numbers[0, numbers[0] > ALIKE]):
            raise RuntimeError(
                f"a score differs by {off.max():.0%} when it is computed again: the model draws random numbers that "
                "torch's generators do not decide; train with gradient: full"
            )
        if (wrong := ~np.isfinite(numbers[1:]).all(axis=0)).any():
            what = "the loss" if np.isfinite(numbers[2:, wrong]).all() else "a score"
            raise self._not_finite(what, step, np.flatnonzero(wrong), numbers)

    def _forget(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def _not_finite(self, what: str, step: int, which: Array, numbers: Array) -> UserError:
        low, high = numbers[2:, which]
        ids = [self.lists.query_ids[group.query] for i in which for group in self._pieces[i].groups]
        more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
        other = "" if self.precision == "fp32" else ", or set precision to fp32"
        return UserError(
            f"{what} is not finite at step {step}, queries {', '.join(ids[:NAMED])}{more}, "
            f"scores from {np.min(low):g} to {np.max(high):g}; lower optimization.encoder_lr and head_lr{other}"
        )
