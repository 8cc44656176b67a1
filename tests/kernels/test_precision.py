"""Products in float32 have all of its digits, whatever the process has set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.modules import module as modules

from rerank.lists import Lists
from rerank.losses import DirectMetric
from tests.models.text.texts import train_text


@pytest.fixture
def less_precise() -> Iterator[None]:
    """Ask for TF32 on a GPU, and for bf16 on a CPU, in place of float32."""
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision("highest")


def flags() -> tuple[str, str]:
    backends: Any = torch.backends
    return backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision


@pytest.mark.usefixtures("less_precise")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_encoder_head_and_loss_are_exact_forwards_and_backwards(
    precision: str, lists: Lists, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[tuple[str, str], set[tuple[str, str]]] = {}

    def look(where: str, value: Any) -> None:
        seen.setdefault((where, "forward"), set()).add(flags())
        if isinstance(value, torch.Tensor) and value.requires_grad:
            value.register_hook(lambda _: seen.setdefault((where, "backward"), set()).add(flags()))

    usual, first = DirectMetric.per_list, True

    def per_list(self: DirectMetric, scores: torch.Tensor, *rest: Any, **named: Any) -> torch.Tensor:
        nonlocal first
        if first:  # loading the model and the first forward pass of the step are not measured
            seen.clear()
            first = False
        look("loss", scores)
        return usual(self, scores, *rest, **named)

    monkeypatch.setattr(DirectMetric, "per_list", per_list)
    hook = modules.register_module_forward_hook(lambda module, _, output: look(type(module).__name__, output))
    try:
        words = "--batch_size=4", f"--precision={precision}"
        train_text(lists.store.folder, tiny_model, tmp_path / "run", *words)
    finally:
        hook.remove()
    named = {"Linear", "BertPooler", "BertIntermediate", "loss"}
    assert {(name, way) for name in named for way in ("forward", "backward")} <= seen.keys()
    assert set.union(*seen.values()) == {("ieee", "ieee")}
    assert torch.get_float32_matmul_precision() == "medium", "the process has its own setting back"
    assert flags() == ("tf32", "bf16")
