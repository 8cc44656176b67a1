"""SmoothI's ranks in one kernel, as Triton's interpreter runs it on a CPU, and one rank after the other."""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

import pytest
import torch

from rerank.losses import SmoothIAP, SmoothINDCG
from rerank.relaxations import eliminate, smoothi
from scripts.bench.count_kernels import count_loss


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TRITON_INTERPRET", "1")  # before the import, which makes functions of its own
    language = pytest.importorskip("triton.language")
    if type(language.max).__name__ == "JITFunction":
        pytest.skip("Triton was imported before")
    eliminate._kernel.cache_clear()
    yield
    eliminate._kernel.cache_clear()


@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize(("kind", "apart"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("alpha", [1.0, 10.0])
@pytest.mark.usefixtures("interpreted")
def test_one_kernel_gives_what_steps_give(kind: torch.dtype, apart: float, alpha: float, steady: bool) -> None:
    """Values and gradients, with padding, a list of pads alone, and ranks in more than one part."""
    drawn = torch.Generator().manual_seed(3)
    scores = torch.randn(3, 21, generator=drawn, dtype=kind)
    labels, mask = torch.randint(0, 4, (3, 21), generator=drawn), torch.arange(21) < torch.tensor([[21], [12], [0]])
    for make in (SmoothINDCG, SmoothIAP):
        found = []
        for at_once in (False, True):
            own = scores.clone().requires_grad_()
            with (
                mock.patch("rerank.relaxations.smoothi.in_one_kernel", lambda _, at_once=at_once: at_once),
                mock.patch("rerank.relaxations.smoothi.blocks", lambda *_: [slice(0, 12), slice(12, 21)]),
                mock.patch.object(smoothi._Recursion, "_steps", lambda *_: 21),
            ):
                values = make(reduction="none", alpha=alpha, steady=steady)(own, labels, mask)
                values.sum().backward()
            found.append(torch.cat([values.detach(), own.grad.flatten()]))  # type: ignore[union-attr]
        assert found[1].isfinite().all() and found[0].any()
        assert (found[0] - found[1]).abs().max() <= apart


@pytest.mark.usefixtures("interpreted")
def test_it_proves_itself() -> None:
    eliminate._works.cache_clear()
    assert eliminate._works(torch.device("cpu"))
    eliminate._works.cache_clear()
    with mock.patch("rerank.relaxations.eliminate.launch", lambda *_: None):
        assert not eliminate._works(torch.device("cpu"))
    eliminate._works.cache_clear()


@pytest.mark.parametrize("make", [SmoothINDCG, SmoothIAP])
def test_kernels_do_not_grow_with_ranks(make: type) -> None:
    few, many = (sum(count_loss(make(), 8, depth).values()) for depth in (50, 1000))
    assert many < few + 30
