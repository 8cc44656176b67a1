"""Pairs of texts, short and long ones, a training that reads texts, and weights as after one."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from tests.builders import train

PAIRS = [
    ("shock wave", "the shock wave on a blunt body"),
    ("heat?", "a"),
    ("boundary layer flow", "heat transfer in the laminar boundary layer of a flat plate at high speed"),
    ("jet", ""),
]


def train_text(lists: Path, model: Path, output: Path, *more: str) -> Path:
    """Train a cross-encoder; returns the run's folder."""
    words = ["--data=ListsData", f"--data.train={lists}", "--model=CrossEncoder", f"--model.name={model}"]
    words += ["--model.query_length=8", "--model.document_length=24", "--loss=SmoothINDCG", "--epochs=1"]
    train([*words, "--tracker=[]", f"--output={output}", *more])
    return output


def draw_trained(model: nn.Module, seed: int) -> None:
    """Draw the parameters of a model that are trained."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.1)
