"""The gradient of one effective batch, however it is cut."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from rerank import stops
from rerank.errors import UserError
from rerank.kernels.memory import out_of_memory
from rerank.kernels.precision import Precision
from rerank.kernels.sparse import sparse_embeddings
from rerank.kernels.transfer import sent
from rerank.lists.view import Lists
from rerank.losses.base import Criterion, Loss
from rerank.models.base import Inputs
from rerank.models.scorer import Scorer
from rerank.scoring.together import together
from rerank.storage.arrow import Array
from rerank.training.batches import Group
from rerank.training.gradient import ALIKE, Chunked, Mode, RandomState, backpropagate
from rerank.training.targets import Targets

log = logging.getLogger("rerank")

ELEMENTS, ON_A_GPU = 2048, 1 << 20
"""Above this many padded scores, bucket lists by length for the loss; below it, a further call costs more than padding.
A GPU waits for calls, not for scores, so it takes a micro-batch at once."""

LOSS_SCALE, GROW = 65536.0, 2000
"""In fp16 the loss is multiplied by this at first, and by twice as much after so many steps without an overflow."""

NAMED = 5
"""Queries that an error names at most."""

DEAD = 1e-7
"""A list is dead to its loss, at the scores as they are, where no score's derivative is larger: float32's rounding unit
for losses of about 1."""


class Step(NamedTuple):
    """What one step did, over all processes.

    Attributes:
        loss: the loss of the batch; 0 where there was nothing to learn from.
        documents: documents scored.
        lists: lists from which something could be learned, by their targets; 0 where the step is to be skipped.
        dead: those of them whose loss had no gradient on any score (:data:`DEAD`).
        stop: whether a process was asked to stop.
    """

    loss: float
    documents: int
    lists: int
    dead: int
    stop: bool = False


@dataclass
class Limits:
    """What memory and fp16 allow: found while training, and kept by checkpoints.

    Attributes:
        token_budget: padded tokens per forward pass; halved where memory runs out. 0 before anything is known.
        full_tokens: tokens of a micro-batch up to which ``auto`` keeps the graph; None for any number. Lowered where
            memory runs out.
        loss_scale: what the loss is multiplied by in fp16, and its gradient divided by, so that small gradients are not
            0; halved, and the step done again, where large ones are infinite.
        since_overflow: steps since it was last changed.
    """

    token_budget: int = 0
    full_tokens: int | None = None
    loss_scale: float = LOSS_SCALE
    since_overflow: int = 0


class Piece(NamedTuple):
    """A micro-batch that was backpropagated.

    Attributes:
        groups: its lists.
        numbers: its loss, its lowest and its highest score, ``[3]`` on the device.
        pairs: its chunks.
    """

    groups: list[Group]
    numbers: Tensor
    pairs: Chunked


class Part(NamedTuple):
    """A term as it counts in one step.

    Attributes:
        term: its number.
        loss: its loss, summed over lists.
        weight: its weight.
        over: what the sum is divided by: for a mean, the learnable lists of the whole batch.
    """

    term: int
    loss: Loss
    weight: float
    over: int


@dataclass
class Gradients:
    r"""Accumulates the gradient of a loss, or of a sum of them, over an effective batch.

    With ``"mean"`` reduction the gradient is that of :math:`\frac{1}{|L|} \sum_{b \in L} \ell_b` over the learnable
    lists :math:`L` of the *whole* batch: targets alone tell them, so they are counted before anything is scored, term
    by term, and each piece contributes its sum divided by :math:`|L|`. Hence processes, accumulation and chunks change
    nothing, but for batch norm, which is over the documents of a chunk.

    Attributes:
        model: the scorer, a ``torch.nn.Module``.
        inputs: the training lists as the model reads them.
        lists: the training lists.
        loss: what is minimised.
        precision: arithmetic of the encoder.
        limits: what memory and fp16 allow; lowered here.
        micro_batch_size: lists whose loss is taken at once. None for as many as fit the token budget, at least one,
            where their graph is kept, and for all of them where it is not.
        gradient: how the gradient of a micro-batch is taken (:func:`~rerank.training.gradient.backpropagate`);
            ``auto`` keeps the graph where it fits.
        why: where ``limits.full_tokens`` comes from, for the log.
        process: index of this process.
        processes: number of processes.
        norm: norm of the last gradient, over all processes.
    """

    model: Scorer
    inputs: Inputs
    lists: Lists
    loss: Criterion
    precision: Precision
    limits: Limits
    micro_batch_size: int | None = None
    gradient: Mode | Literal["auto"] = "full"
    why: str = "as configured"
    process: int = 0
    processes: int = 1

    def __post_init__(self) -> None:
        self.targets = Targets(self.lists, self.loss)
        self._sums = [copy.copy(term.loss) for term in self.targets.terms]
        for loss in self._sums:
            loss.reduction = "sum"
        self._parameters = [p for p in self.model.parameters() if p.requires_grad]
        self._device = self._parameters[0].device
        self._said: set[str] = set()

    def accumulate(
        self, groups: list[Group], step: int, share: float = 0.0, moved: Callable[[float], object] | None = None
    ) -> Step:
        """Leave the batch's gradient in the parameters, the same in every process; none where nothing can be learned.

        Args:
            groups: the effective batch.
            step: number of the step, for error messages.
            share: share of the training's steps that is done, for weights that change.
            moved: told after each chunk what share of the step's passes it was, for a bar that moves within long steps.

        Returns:
            What the step did.

        Raises:
            UserError: scores, loss or gradient are not finite; says the step, the queries and the range of scores. Or
                memory runs out and nothing can be cut smaller. Where one process fails, all do.
        """
        useful, parts = self._parts(groups, share)
        if not parts:
            return Step(0.0, 0, 0, 0, stop=self.processes == 1 and stops.asked() is not None)
        mine = self._share(useful)
        self._moved, self._pairs = moved, sum(len(group.rows) for group in mine)
        start = RandomState(self._device)
        while True:
            failure: Exception | None = None
            try:
                own = self._own(mine, parts)
                if own is None:
                    self._back_off(step)  # when the error is gone, and with it what its frames held
            except Exception as error:
                if self.processes == 1:
                    raise
                failure = error  # the others wait for the sum, and learn of it there
                self._forget()
                own = self._message(torch.full((4,), torch.nan, device=self._device))
            if own is not None and (done := self._finish(own, len(useful), step, failure)) is not None:
                return done
            start.restore()
            self._forget()

    def _forget(self) -> None:
        """Drop the gradient."""
        for parameter in self._parameters:
            parameter.grad = None

    def _own(self, mine: list[Group], parts: list[Part]) -> Tensor | None:
        """Backpropagate this process's lists; returns its message to the others, None where memory ran out."""
        try:
            self._pieces_done: list[Piece] = []
            self._dead = torch.zeros((), device=self._device)
            with sparse_embeddings(self.model):
                for piece, tokens in self._pieces(mine):
                    self._piece(piece, tokens, parts)
            offs, numbers = self._numbers()
            wrong = (~numbers.isfinite()).any() | (offs > ALIKE).any()
            loss = numbers[0].sum().masked_fill(wrong, torch.nan)  # so that every process notices
            documents = torch.full((), float(sum(len(group.rows) for group in mine)), device=self._device)
            stop = torch.full((), float(stops.asked() is not None), device=self._device)
            return self._message(torch.stack([loss, documents, self._dead, stop]))
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            return None

    def _numbers(self) -> tuple[Tensor, Tensor]:
        """Of each piece how far second scores were off, ``[P]``; its loss, lowest and highest score, ``[3, P]``."""
        none = torch.zeros(3, 0, device=self._device)
        nothing = none.new_zeros(1)
        offs = [nothing if piece.pairs.off is None else piece.pairs.off[None] for piece in self._pieces_done]
        numbers = [piece.numbers[:, None] for piece in self._pieces_done]
        return torch.cat([none[0], *offs]), torch.cat([none, *numbers], dim=1)

    def _finish(self, own: Tensor, lists: int, step: int, failure: Exception | None) -> Step | None:
        """Sum over the processes, and look at the numbers of the step: here the host waits for the device, once.

        Args:
            own: the message of this process.
            lists: lists of the batch from which something can be learned.
            step: number of the step.
            failure: what this process failed with.

        Returns:
            What the step did; None where its gradient is too large for fp16, and has to be taken again.
        """
        summed = self._all_reduce(own)
        gradients = [gradient for p in self._parameters if (gradient := p.grad) is not None]
        if self._is_scaled:
            torch._foreach_mul_(gradients, 1 / self.limits.loss_scale)
        self.norm = torch.nn.utils.get_total_norm(gradients) if gradients else summed.new_zeros(())
        pieces = self._pieces_done
        values = torch.cat([summed, self.norm[None], *(part.flatten() for part in self._numbers())])
        loss, scored, dead, stop, norm, *rest = values.tolist()
        numbers = np.reshape(rest[len(pieces) :], (3, len(pieces)))
        if not np.isfinite(loss):
            with together():
                if failure is not None:
                    raise failure
                for piece, off in zip(pieces, rest, strict=False):
                    piece.pairs.check(off)
                if (wrong := ~np.isfinite(numbers).all(axis=0)).any():
                    what = "the loss" if np.isfinite(numbers[1:, wrong]).all() else "a score"
                    raise self._not_finite(what, step, np.flatnonzero(wrong), numbers)
        if not np.isfinite([loss, norm]).all():
            if np.isfinite(loss) and self._is_scaled and self.limits.loss_scale > 1:
                self._overflown(step)
                return None
            with together():
                if pieces:
                    what = "the gradient" if np.isfinite(loss) else "the loss"
                    raise self._not_finite(what, step, np.arange(len(pieces)), numbers)
        self.limits.since_overflow += 1
        if self._is_scaled and self.limits.since_overflow >= GROW:
            self.limits.loss_scale, self.limits.since_overflow = self.limits.loss_scale * 2, 0
        return Step(loss, int(scored), lists, int(dead), stop > 0)

    @property
    def _is_scaled(self) -> bool:
        return self.precision == "fp16"

    def _overflown(self, step: int) -> None:
        """Halve the scale, for the step to be taken again."""
        self.limits.loss_scale, self.limits.since_overflow = self.limits.loss_scale / 2, 0
        log.info("step %d: the gradient is too large for fp16; loss scale %g from now on", step, self.limits.loss_scale)

    def _parts(self, groups: list[Group], share: float) -> tuple[list[Group], list[Part]]:
        """The lists from which a term can learn in this step, and the terms that can."""
        rows = [group.rows for group in groups]
        useful, parts = np.zeros(len(groups), dtype=bool), []
        for number, term in enumerate(self.targets.terms):
            weight = term.weight_at(share)
            if weight and (learnable := self.targets.learnable(number, rows)).any():
                useful |= learnable
                count = int(learnable.sum()) if term.loss.reduction == "mean" else 1
                parts.append(Part(number, self._sums[number], weight, count))
        return [groups[i] for i in np.flatnonzero(useful)], parts

    def _share(self, useful: list[Group]) -> list[Group]:
        """What this process does of a batch."""
        if self.model.whole_batches:
            return useful if self.process == 0 else []
        return useful[self.process :: self.processes]

    def _pieces(self, groups: list[Group]) -> Iterator[tuple[list[Group], int]]:
        """Cut lists into micro-batches; gives each with its number of tokens."""
        if not groups:
            return
        starts = np.cumsum([0] + [len(group.rows) for group in groups[:-1]])
        costs = np.add.reduceat(self.inputs.lengths(self._rows(groups)), starts)
        first, tokens = 0, 0
        for i, cost in enumerate(costs.tolist()):
            if self.micro_batch_size is not None:
                full = i - first == self.micro_batch_size
            else:
                full = self.gradient in ("full", "auto") and tokens + cost > self.limits.token_budget
            if i > first and full:
                yield groups[first:i], tokens
                first, tokens = i, 0
            tokens += cost
        yield groups[first:], tokens

    def _rows(self, groups: list[Group]) -> Array:
        """Rows of the chosen candidates in the store, list after list."""
        starts, offsets = self.lists.starts, self.lists.offsets
        return np.concatenate([group.rows + (starts[group.query] - offsets[group.query]) for group in groups])

    def _piece(self, groups: list[Group], tokens: int, parts: list[Part]) -> None:
        """Score some lists, backpropagate their share of the loss, note it; the host does not wait for the device."""
        mode = self._mode(tokens)
        self._doing = mode, groups, tokens
        lengths = np.array([len(group.rows) for group in groups])
        starts = np.cumsum(lengths) - lengths

        scale = self.limits.loss_scale if self._is_scaled else 1.0
        smallest = min(part.weight / part.over for part in parts) * DEAD * scale
        seen: list[Tensor] = []

        def bury(gradient: Tensor) -> None:  # on the device: the host does not wait for it
            self._dead += (gradient.abs().amax(dim=1) <= smallest).sum()

        def loss(flat: Tensor) -> Tensor:
            totals = [torch.zeros((), device=self._device) for _ in parts]
            for chosen in alike(lengths, ELEMENTS if self._device.type == "cpu" else ON_A_GPU):
                real = torch.arange(int(lengths[chosen].max())) < torch.from_numpy(lengths[chosen])[:, None]
                positions = torch.from_numpy(starts[chosen])[:, None] + torch.arange(real.shape[1])
                places = sent(positions.masked_fill_(~real, 0), self._device)
                pads = sent(~real, self._device)
                scores = flat[places.flatten()].view_as(places).masked_fill(pads, 0.0)
                scores.register_hook(bury)
                seeds = sent(torch.tensor([groups[i].seed for i in chosen]), self._device)
                rows = [groups[i].rows for i in chosen]
                for i, part in enumerate(parts):
                    labels, mask = (sent(value, self._device) for value in self.targets.padded(part.term, rows))
                    totals[i] = totals[i] + part.loss(scores, labels, mask, seeds=seeds)
            shares = [total / part.over * part.weight for total, part in zip(totals, parts, strict=True)]
            total = torch.stack(shares).sum()
            seen[:] = [total.detach(), *flat.detach().aminmax()]
            return total * scale if self._is_scaled else total

        budget = self.limits.token_budget

        def scored(count: int) -> None:  # without the graph of all chunks, nearly all of them are scored twice
            if self._moved is not None:
                self._moved(count / self._pairs / (1 if mode == "full" else 2))

        rows, device = self._rows(groups), self._device
        pairs = Chunked(self.model, self.inputs, rows, starts, budget, self.precision, device, scored)
        backpropagate(mode, pairs, loss)
        self._pieces_done.append(Piece(groups, torch.stack(seen), pairs))

    def _mode(self, tokens: int) -> Mode:
        """How the gradient of a micro-batch of so many tokens is taken; what ``auto`` picks is logged once."""
        if self.gradient != "auto":
            return self.gradient
        fits = self.limits.full_tokens is None or tokens <= self.limits.full_tokens
        mode: Mode = "full" if fits else "cached"
        if mode not in self._said and self.process == 0:
            self._said.add(mode)
            room = "any number" if self.limits.full_tokens is None else f"{self.limits.full_tokens}"
            log.info(
                "gradient %s (%d tokens in a micro-batch, %s fit with their graph: %s)", mode, tokens, room, self.why
            )
        return mode

    def _back_off(self, step: int) -> None:
        """Cut smaller after memory ran out: the micro-batch where its graph is kept, else the chunk.

        Raises:
            UserError: there is nothing to cut.
        """
        mode, groups, tokens = self._doing
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        if mode == "full" and self.gradient == "auto":
            fits = self.limits.full_tokens = tokens // 2
            self.why = "memory ran out with more"
            log.warning("out of memory at step %d: gradient cached from %d tokens on", step, fits + 1)
            return
        if mode == "full" and (len(groups) == 1 or self.micro_batch_size is not None):
            raise UserError(
                f"out of memory at step {step}, {tokens} tokens in {len(groups)} lists; set gradient to auto or cached"
            )
        if self.limits.token_budget <= int(self.inputs.lengths(self._rows(groups)).max()):
            raise UserError(f"out of memory at step {step}, with one document at a time; shorten the documents")
        self.limits.token_budget //= 2
        log.warning("out of memory at step %d: token_budget %d from now on", step, self.limits.token_budget)

    def _message(self, values: Tensor) -> Tensor:
        """What is summed over the processes: values and, where there are several, gradients and which there are."""
        if self.processes == 1:
            return values
        reached = torch.tensor([float(p.grad is not None) for p in self._parameters], device=self._device)
        for parameter in self._parameters:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = (gradient.flatten().float() for p in self._parameters if (gradient := p.grad) is not None)
        return torch.cat([*gradients, reached, values])

    def _all_reduce(self, message: Tensor) -> Tensor:
        """Sum over the processes, leave the gradient in the parameters, and give the values.

        A parameter that got no gradient in any process has none afterwards, as with one process: its optimizer would
        let it decay otherwise.
        """
        if self.processes == 1:
            return message
        dist.all_reduce(message)
        sizes = [*(p.numel() for p in self._parameters), len(self._parameters)]
        *sums, reached, values = message.split([*sizes, len(message) - sum(sizes)])
        for parameter, total, by in zip(self._parameters, sums, reached.tolist(), strict=True):
            if by and parameter.grad is not None:
                parameter.grad.copy_(total.view_as(parameter))
            else:
                parameter.grad = None
        return values

    def _not_finite(self, what: str, step: int, which: Array, numbers: Array) -> UserError:
        """The refusal of a step.

        Args:
            what: what is not finite.
            step: its number.
            which: the pieces of this process that are to blame.
            numbers: of every piece its loss, lowest and highest score, ``[3, P]``.
        """
        _, low, high = numbers[:, which]
        ids = [self.lists.query_ids[group.query] for i in which for group in self._pieces_done[i].groups]
        more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
        other = "" if self.precision == "fp32" else ", or set precision to fp32"
        return UserError(
            f"{what} is not finite at step {step}, queries {', '.join(ids[:NAMED])}{more}, "
            f"scores from {np.min(low):g} to {np.max(high):g}; lower optimization.encoder_lr and head_lr{other}"
        )


def alike(lengths: Array, elements: int | None = None) -> list[Array]:
    """Cut a batch into lists of similar length, for the loss.

    Args:
        lengths: ``[n]`` documents of every list.
        elements: padded scores up to which they stay together; None for :data:`ELEMENTS`.

    Returns:
        Positions into ``lengths``; every position is in one part. What is padded stays below about two fifths of a
        part, or of ``elements``.
    """
    elements = elements or ELEMENTS
    order = np.argsort(-lengths, kind="stable")
    parts, start = [], 0
    while start < len(order):
        longest = max(1, int(lengths[order[start]]))
        stop = max(start + -(-elements // longest), start + int((lengths[order[start:]] > 0.6 * longest).sum()))
        parts.append(order[start:stop])
        start = stop
    return parts
