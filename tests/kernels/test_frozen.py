"""Frozen weights in bf16, where that changes no bit of what is computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from rerank.kernels.memory import kept
from rerank.models.text.adapter import LoRA
from rerank.models.text.decoder import Decoder
from tests.builders import PROMPT, make_decoder
from tests.close import gradients_of
from tests.models.text.texts import draw_trained

TEXTS = [("shock wave", "the shock wave on a blunt body"), ("heat", "a flat plate")]


def step(model: Decoder) -> tuple[Tensor, dict[str, Tensor], int]:
    """Scores, gradients, and what the graph keeps."""
    inputs = model.pair_inputs(*map(list, zip(*TEXTS, strict=True)))
    rows = torch.arange(2).numpy()
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16), kept(model) as count:
        scores = model.score(inputs.collate(rows, rows[:1]))
        held = count.bytes
    (scores * torch.tensor([1.0, -2.0])).sum().backward()
    return scores.detach(), gradients_of(model), held


@pytest.mark.parametrize("in_bf16", [True, False])
def test_what_bf16_holds_is_held_in_it_and_nothing_changes(in_bf16: bool, tmp_path: Path) -> None:
    folder = make_decoder(tmp_path / "model")
    if in_bf16:  # as most are published
        network = AutoModelForCausalLM.from_pretrained(folder)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.copy_(parameter.bfloat16())
        network.save_pretrained(folder)
    model = Decoder(str(folder), template=PROMPT, lora=LoRA(rank=2))
    draw_trained(model, 0, "lora_B")
    frozen = [m for m in model.network.base_model.modules() if type(m) is nn.Linear and not m.weight.requires_grad]
    before, scores = [m.weight.clone() for m in frozen], model.text_scores(TEXTS, precision="fp32")
    exact, gradients, held = step(model)
    model.settle("bf16")
    assert len(frozen) == 14 and {m.weight.dtype for m in frozen} == {torch.bfloat16 if in_bf16 else torch.float32}
    assert model.network.get_input_embeddings().weight.dtype == torch.float32
    again, others, less = step(model)
    assert torch.equal(again, exact) and gradients.keys() == others.keys()
    assert all(torch.equal(others[name], gradient) for name, gradient in gradients.items())
    assert less < held if in_bf16 else less == held
    model.settle("fp32")
    assert all(
        m.weight.dtype == torch.float32 and torch.equal(m.weight, one) for m, one in zip(frozen, before, strict=True)
    )
    model.settle("bf16")
    model.merge()
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert abs(model.text_scores(TEXTS, precision="fp32") - scores).max() < 1e-5 * (1 + abs(scores).max())
