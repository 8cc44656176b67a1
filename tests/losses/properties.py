"""A loss under test, and lists drawn by hypothesis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rerank.losses import Loss
from tests.losses.reference import Plain

Doc = tuple[float, float]
"""Score and grade."""


@dataclass(frozen=True)
class Case:
    """A loss under test.

    Attributes:
        name: the id of the test.
        make: the loss, from keywords of its constructor.
        plain: its definition for one list; autograd of it is the gradient that the loss states.
        shift: whether a constant added to all scores of a list changes nothing.
        distinct: the values that are drawn without ties, because ties are broken at random.
        atol: largest difference between two ways to compute it in float64.
    """

    name: str
    make: Callable[..., Loss]
    plain: Plain
    shift: bool = True
    distinct: Literal["scores", "labels and scores"] = "scores"
    atol: float = 1e-9


def ranked_lists(case: Case, most: int = 3, longest: int = 6) -> st.SearchStrategy[list[list[Doc]]]:
    """Draw a few lists of unlike length, whose distinct, irregular scores lie on no kink of a loss."""

    @st.composite
    def one(draw: Any) -> list[Doc]:
        steps = draw(st.lists(st.integers(-40, 40), min_size=1, max_size=longest, unique=True))
        grades = st.lists(
            st.integers(0, 9 if case.distinct == "labels and scores" else 4),
            min_size=len(steps),
            max_size=len(steps),
            unique=case.distinct == "labels and scores",
        )
        scores = [step / 13.7 + 0.0005 * 2**0.5 * step**2 for step in steps]  # none halfway between two others
        return list(zip(scores, map(float, draw(grades)), strict=True))

    return st.lists(one(), min_size=1, max_size=most)


def batch(lists: list[list[Doc]]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return scores (a leaf), labels, mask and seeds, padded at the end with zeros to the longest list."""
    documents = pad_sequence([torch.tensor(docs, dtype=torch.float64) for docs in lists], batch_first=True)
    mask = torch.arange(documents.shape[1]) < torch.tensor([[len(docs)] for docs in lists])
    scores, labels = documents[:, :, 0].clone(), documents[:, :, 1].clone()
    return scores.requires_grad_(), labels, mask, torch.arange(len(lists)) + 17
