"""The signature of every loss."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Literal

from rerank.settings.arguments import Described

if TYPE_CHECKING:  # torch is imported where it is used, so that `rerank train --help` answers at once
    from torch import Tensor

Reduction = Literal["mean", "sum", "none"]

Target = Literal["grades", "values"]
"""The labels of a loss: gains of at least 0, or any numbers that scores shall follow."""


class Criterion(Described):
    """The criterion that training minimises: a :class:`Loss` of the grades, or :class:`rerank.losses.Terms`, a sum.

    >>> from rerank.losses import MSE, Term, Terms
    >>> [isinstance(value, Criterion) for value in (MSE(), Terms([Term(MSE(), "teacher")]))]
    [True, True]
    """


class Loss(Criterion, ABC):
    r"""A loss over a padded batch of ranked lists.

    Call as ``loss(scores, labels, mask=None, weights=None, seeds=None)``. A subclass defines :meth:`per_list`, and
    :meth:`learnable` if that differs; the base class checks, casts to float32, masks, weights and reduces.

    Reduction ``"mean"`` is :math:`\frac{1}{|L|} \sum_{b \in L} w_b \ell_b` over the lists :math:`L` from which
    something can be learned, ``"sum"`` is :math:`\sum_{b \in L} w_b \ell_b`, ``"none"`` gives ``[B]`` with zeros
    for the other lists. A batch without any learnable list gives a zero that is connected to the graph.

    >>> from rerank.losses import MSE
    >>> scores, labels = torch.tensor([[1.0, 0.0], [3.0, 9.0]]), torch.tensor([[2, 0], [3, 0]])
    >>> mask = torch.tensor([[True, True], [True, False]])  # the 9 is padding
    >>> MSE("none")(scores, labels, mask)  # ((1 - 2)^2 + 0) / 2 and (3 - 3)^2
    tensor([0.5000, 0.0000])
    >>> MSE()(scores, labels, mask)
    tensor(0.2500)

    Attributes:
        target: ``grades`` if labels are at least 0 and higher is more relevant, ``values`` if they may be any numbers,
            such as a teacher's scores or grades.
    """

    target: ClassVar[Target] = "grades"

    def __init__(self, reduction: Reduction = "mean") -> None:
        self.reduction = reduction

    def learnable(self, labels: Tensor, mask: Tensor) -> Tensor:
        """Find the lists that teach something, by labels alone, ``[B]`` bool; by default, lists of unequal labels."""
        return has_ordered_pair(labels, mask)

    @abstractmethod
    def per_list(self, scores: Tensor, labels: Tensor, mask: Tensor, seeds: Tensor | None) -> Tensor:
        """Compute the loss of every list, ``[B]``; the caller ignores lists that are not learnable.

        Value and gradient are finite for scores up to 1e12 and grades up to 32,767. Beyond, differences, squares and
        sums of scores may overflow float32 or lose all digits; training refuses a step that is not finite.

        Args:
            scores: ``[B, N]`` float32 or float64, zero where padded.
            labels: ``[B, N]`` of the dtype of scores, zero where padded.
            mask: ``[B, N]`` bool, True for real documents.
            seeds: ``[B]`` int64, one seed per list for random choices, or None (torch's own generator).
        """

    def __call__(
        self,
        scores: Tensor,
        labels: Tensor,
        mask: Tensor | None = None,
        weights: Tensor | None = None,
        seeds: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of a batch of lists.

        Args:
            scores: ``[B, N]`` floating point.
            labels: ``[B, N]`` graded relevance, at least 0; any numbers if :attr:`target` is ``values``.
            mask: ``[B, N]`` bool, True for real documents; None when all are real.
            weights: ``[B]`` weight per list.
            seeds: ``[B]`` int64, one seed per list for random choices (ties, samples).

        Returns:
            A scalar, or ``[B]`` with reduction ``"none"``; float32 (float64 for float64 scores).

        Raises:
            ValueError: a wrong shape or type, naming the argument.
        """
        import torch

        from rerank.relaxations.backward import no_autocast

        self._check(scores, labels, mask, weights, seeds)
        dtype = torch.float64 if scores.dtype == torch.float64 else torch.float32
        with no_autocast(scores):
            mask = torch.ones_like(scores, dtype=torch.bool) if mask is None else mask
            clean_scores = scores.to(dtype).masked_fill(~mask, 0.0)
            clean_labels = labels.to(dtype).masked_fill(~mask, 0.0)
            if not clean_scores.numel():
                return clean_scores.sum(dim=1) if self.reduction == "none" else clean_scores.sum()
            shares = self.learnable(clean_labels, mask).to(dtype)
            if self.reduction == "mean":
                shares = shares / shares.sum().clamp(min=1)
            if weights is not None:
                shares = shares * weights.to(dtype)
            losses = self.per_list(clean_scores, clean_labels, mask, seeds)
            if scores.requires_grad and not losses.requires_grad:  # a loss that scores cannot change
                losses = losses + clean_scores.sum(dim=1) * 0.0
            return losses * shares if self.reduction == "none" else losses.dot(shares)

    def _check(
        self, scores: Tensor, labels: Tensor, mask: Tensor | None, weights: Tensor | None, seeds: Tensor | None
    ) -> None:
        import torch

        if scores.dim() != 2 or not scores.is_floating_point():
            raise ValueError(f"scores must be [B, N] floating point, not {list(scores.shape)} {scores.dtype}")
        if labels.shape != scores.shape or labels.is_complex():
            raise ValueError(
                f"labels must be {list(scores.shape)} like scores, not {list(labels.shape)} {labels.dtype}"
            )
        if mask is not None and (mask.shape != scores.shape or mask.dtype != torch.bool):
            raise ValueError(f"mask must be {list(scores.shape)} bool, not {list(mask.shape)} {mask.dtype}")
        for name, value in (("weights", weights), ("seeds", seeds)):
            if value is not None and value.shape != scores.shape[:1]:
                raise ValueError(f"{name} must be [{scores.shape[0]}], one per list, not {list(value.shape)}")
        if seeds is not None and seeds.dtype != torch.int64:
            raise ValueError(f"seeds must be int64, not {seeds.dtype}")


def has_ordered_pair(labels: Tensor, mask: Tensor) -> Tensor:
    """Find the lists that hold two documents of unequal labels: ``[B]`` bool."""
    if not labels.numel():  # lists without candidates, which have no largest label
        return labels.new_zeros(len(labels)).bool()
    labels, pads = labels.float(), ~mask
    return labels.masked_fill(pads, -float("inf")).amax(dim=1) > labels.masked_fill(pads, float("inf")).amin(dim=1)
