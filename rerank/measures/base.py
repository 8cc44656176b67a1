"""Base classes of measures, which are computed from rank indicators or from soft ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

from rerank.errors import UserError
from rerank.relaxations.base import Batch, Exact, RankIndicators, Relaxation, SoftRanks
from rerank.relaxations.order import first, places_of

if TYPE_CHECKING:
    from torch import Tensor


def inside(relaxation: SoftRanks, batch: Batch, ranks: Tensor, cutoff: int | None) -> Tensor | float:
    """Compute how far documents are within the cut-off, from 0 to 1: ``[B, R]``.

    This is ``sigmoid(beta (k + shift - r))`` for smooth ranks, with ``cutoff_shift``; 0 or 1 for relaxations whose
    ranks have exact values; 1 without a cut-off.

    If the relaxation has a steepness for scores, it is ``sigmoid(steepness (s - c))`` with c midway between the k-th
    score and the next. Soft ranks of scores that are close together all lie near the middle of the list, far beyond a
    cut-off of a few ranks, and there a sigmoid over ranks has no slope. Exact ranks take its gradient and keep their
    value.
    """
    if cutoff is None:
        return 1.0
    steepness = relaxation.score_steepness(batch)
    if steepness is not None:
        soft = (steepness * (batch.at_rows(batch.scores) - _threshold(batch, cutoff, steepness))).sigmoid()
        if not relaxation.exact_ranks:
            return soft
    if relaxation.exact_ranks:
        hard = (batch.at_rows(batch.exact) <= cutoff).to(ranks.dtype)
        return hard if steepness is None else hard + (soft - soft.detach())
    return (relaxation.beta * (cutoff + relaxation.cutoff_shift - ranks)).sigmoid()


def _threshold(batch: Batch, cutoff: int, steepness: Tensor) -> Tensor:
    """Compute the score midway between the k-th and the next, ``[B, 1]``.

    Its gradient is that of the threshold c of a soft selection, ``sum_j sigmoid(steepness (s_j - c)) = constant``: a
    document that comes in pushes out those near the cut-off. The gradient of the two scores themselves would be noisy,
    and without any a list could raise all of its scores.
    """
    import torch

    scores = batch.scores.detach().masked_fill(~batch.mask, -torch.inf)
    best = scores.topk(min(cutoff + 1, scores.shape[1]), dim=1).values
    if best.shape[1] <= cutoff:
        best = torch.nn.functional.pad(best, (0, cutoff + 1 - best.shape[1]), value=-torch.inf)
    middle = best[:, cutoff - 1 : cutoff + 1].mean(dim=1, keepdim=True)
    chance = torch.sigmoid(steepness * (batch.scores.detach() - middle))
    near = chance * (1 - chance) * batch.mask
    shares = near / near.sum(dim=1, keepdim=True).clamp(min=torch.finfo(near.dtype).tiny)
    return middle + ((batch.scores - batch.scores.detach()) * shares).sum(dim=1, keepdim=True)


def behind(relaxation: SoftRanks, batch: Batch, ranks: Tensor) -> Tensor:
    """Compute logits of "document i is behind document j", from ranks or from scores: ``[B, R, R]``."""
    steepness = relaxation.score_steepness(batch)
    if steepness is not None:
        scores = batch.at_rows(batch.scores)
        return steepness[:, :, None] * (scores[:, None, :] - scores[:, :, None])
    return relaxation.beta * (ranks[:, :, None] - ranks[:, None, :])


@dataclass(frozen=True)
class Measure(ABC):
    """A measure of ranked lists, exact (:meth:`exact`, at best 1) or made differentiable (:meth:`relaxed`).

    A relaxed measure may exceed 1 if a document has weight at several ranks (SmoothI), or if many documents are half
    inside the cut-off.

    Its ``str`` is its ir-measures name, which :func:`rerank.measures.parse` reads back.

    >>> from rerank.measures import parse
    >>> str(parse("nDCG(dcg='exp-log2')@10"))
    "nDCG(dcg='exp-log2')@10"
    >>> parse("RR").exact(torch.tensor([[3.0, 2.0, 1.0]]), torch.tensor([[0, 1, 1]]))
    tensor([0.5000])

    Args:
        cutoff: the number of ranks that count, 1 or more; None for the whole list.
    """

    name: ClassVar[str]

    cutoff: int | None = None

    def __str__(self) -> str:
        changed = [
            f"{field.name}={getattr(self, field.name)!r}"
            for field in fields(self)
            if field.name != "cutoff" and getattr(self, field.name) != field.default
        ]
        settings = f"({','.join(changed)})" if changed else ""
        return f"{self.name}{settings}" + (f"@{self.cutoff}" if self.cutoff is not None else "")

    def relevant(self, labels: Tensor) -> Tensor:
        """Find the relevant documents, ``[B, N]`` bool: grades above 0. Without any, a list has the measure 0."""
        return labels > 0

    @abstractmethod
    def from_indicators(self, relaxation: RankIndicators, scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Compute the measure from rank indicators, ``[B]``; scores and labels are zero where padded."""

    @abstractmethod
    def from_ranks(self, relaxation: SoftRanks, batch: Batch) -> Tensor:
        """Compute the measure from soft ranks, ``[B]``; ``batch.rows`` hold every relevant document."""

    def exact(self, scores: Tensor, labels: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compute the exact measure of every list, without gradient; the arguments are those of :meth:`relaxed`.

        Documents with equal scores keep their order.
        """
        return self.relaxed(Exact(), scores.detach(), labels, mask)

    def relaxed(
        self,
        relaxation: Relaxation,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        seeds: Tensor | None = None,
    ) -> Tensor:
        """Compute the measure of every list, differentiable in the scores.

        Args:
            relaxation: the differentiable replacement of sorting.
            scores: ``[B, N]`` floating point; float16 and bfloat16 are computed in float32.
            labels: ``[B, N]`` grades.
            mask: ``[B, N]`` bool, True for real documents; None when all are real.
            seeds: ``[B]`` int64 for random choices, or None.

        Returns:
            ``[B]``, 0 for lists without a relevant document.

        Raises:
            ValueError: the relaxation is not defined for this measure.
        """
        import torch

        self.check(relaxation)
        scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if mask is None:
            mask = torch.ones_like(scores, dtype=torch.bool)
        labels = labels.to(scores.dtype).masked_fill(~mask, 0.0)
        return self.compute(relaxation, scores.masked_fill(~mask, 0.0), labels, mask, seeds)

    def compute(
        self, relaxation: Relaxation, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None = None
    ) -> Tensor:
        """Compute :meth:`relaxed` for checked arguments of one dtype that are zero where padded."""
        if isinstance(relaxation, RankIndicators):
            return self.from_indicators(relaxation, scores, labels, mask)
        if isinstance(relaxation, SoftRanks):
            rows = places_of(self.relevant(labels) & mask)
            return self.from_ranks(relaxation, Batch(scores, labels, mask, rows, seeds, every=rows.shape == mask.shape))
        raise UserError(f"{type(relaxation).__name__} must derive from RankIndicators or SoftRanks")

    def check(self, relaxation: Relaxation) -> None:
        """Raise a ValueError if the relaxation is not defined for this measure."""
        if relaxation.measures is not None and self.name not in relaxation.measures:
            raise UserError(f"{relaxation!r} is defined for {', '.join(relaxation.measures)}, not for {self}")

    def depth(self, mask: Tensor) -> int:
        """Return the number of ranks to compute for a padded batch: ``min(cutoff, N)``."""
        return mask.shape[1] if self.cutoff is None else min(self.cutoff, mask.shape[1])


@dataclass(frozen=True)
class BinaryMeasure(Measure):
    """A measure of binary relevance, ``b_i = [y_i >= rel]``.

    >>> from rerank.measures import AP
    >>> AP(rel=2).relevant(torch.tensor([[0, 1, 2]]))
    tensor([[False, False,  True]])
    """

    rel: int = 1

    def relevant(self, labels: Tensor) -> Tensor:
        return labels >= self.rel

    def hits(self, relaxation: RankIndicators, scores: Tensor, labels: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the relevance of documents, ``[B, N]``, and the expected relevance at ranks, ``[B, depth]``."""
        relevant, depth = self.relevant(labels).to(scores.dtype), self.depth(mask)
        return relevant, relaxation.expected(scores, relevant, mask, depth) * first(mask, depth)

    def within(self, relaxation: SoftRanks, batch: Batch) -> Tensor:
        """Compute the relevance of documents times how far they are within the cut-off, ``[B, R]``."""
        ranks = relaxation.ranks(batch)
        hits = batch.at_rows(self.relevant(batch.labels)) * inside(relaxation, batch, ranks, self.cutoff)
        return hits * batch.at_rows(batch.exact) / ranks if relaxation.exact_ranks else hits * ranks.new_ones(())


def positions(depth: int, like: Tensor) -> Tensor:
    """Return the ranks 1 to depth, ``[depth]``, in the dtype of ``like``."""
    import torch

    return torch.arange(1, depth + 1, dtype=like.dtype, device=like.device)


def ratio(value: Tensor, best: Tensor) -> Tensor:
    """Compute ``value / best``, or 0 if the best is 0: a list without relevant documents."""
    some = best > 0
    return value.where(some, 0.0) / best.where(some, 1.0)


def survival(p: Tensor) -> Tensor:
    """Compute ``q_r = prod_{l < r} (1 - p_l)`` along the last dimension.

    Doubling replaces cumprod, whose gradient divides by its input and would force a GPU to synchronise.
    """
    import torch

    product = torch.nn.functional.pad(1 - p, (1, 0), value=1.0)[..., :-1]
    step = 1
    while step < p.shape[-1]:
        product = product * torch.nn.functional.pad(product, (step, 0), value=1.0)[..., :-step]
        step *= 2
    return product
