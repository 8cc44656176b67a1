"""What makes a score of an encoder's states: CEDR's head, and every head in float32."""

from __future__ import annotations

from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from rerank.models.weights import copied


class ClsHead(nn.Module):
    """CEDR's scorer: a linear layer on dropout of the last layer's CLS vector."""

    def __init__(self, encoder: Any, dropout: float) -> None:
        super().__init__()
        self.base_model_prefix = "encoder"
        self.encoder = encoder
        self.config: Any = encoder.config
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(self.config.hidden_size, 1)

    def forward(self, **batch: Tensor) -> Any:
        """Scores as ``.logits`` ``[n, 1]``, like a Hugging Face classifier."""
        from transformers.modeling_outputs import SequenceClassifierOutput

        hidden = self.encoder(**batch).last_hidden_state[:, 0]
        return SequenceClassifierOutput(logits=self.classifier(self.dropout(hidden)))

    def save_pretrained(self, folder: Path, **_: Any) -> None:
        from safetensors.torch import save_file

        Path(folder).mkdir(parents=True, exist_ok=True)
        self.config.save_pretrained(folder)
        save_file(copied(self.state_dict()), str(Path(folder) / "model.safetensors"), metadata={"format": "pt"})


def keep_float32(module: nn.Module) -> None:
    """Let a module compute in float32 under any autocast: scores in bf16 would tie."""
    module.forward = MethodType(_in_float32, module)  # bound, so that a deep copy has its own


def _in_float32(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    with torch.autocast(next(iter(args)).device.type if args else "cpu", enabled=False):
        floats = (a.float() if torch.is_tensor(a) and a.is_floating_point() else a for a in args)
        return type(module).forward(module, *floats, **kwargs)
