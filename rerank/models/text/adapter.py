"""Low-rank adapters of a decoder's weights, in peft's format."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rerank.errors import UserError, needed
from rerank.models.contract import hash_model
from rerank.models.weights import find_model
from rerank.settings.ranges import Count, Positive, Rate, check_arguments
from rerank.storage.files import read_json

CONFIG = "adapter_config.json"
"""In the folder of an adapter."""

BASE = "base_model_name_or_path"


@dataclass(frozen=True)
class LoRA:
    """Train low-rank additions to the weights, not the weights themselves: ``W + alpha / rank · B A``.

    >>> LoRA(rank=8, targets=["q_proj", "v_proj"])
    LoRA(rank=8, alpha=32, dropout=0.0, targets=['q_proj', 'v_proj'])

    Attributes:
        rank: rows of ``A``, columns of ``B``.
        alpha: scale of the addition, see above.
        dropout: dropout rate on the input of the additions.
        targets: the layers, by the end of their names, such as q_proj; None takes all linear ones but the head.
    """

    rank: Count = 16
    alpha: Positive = 32
    dropout: Rate = 0.0
    targets: list[str] | None = None

    def __post_init__(self) -> None:
        check_arguments(LoRA, vars(self), "model.lora")

    def add_to(self, network: Any, base: str) -> None:
        """Add fresh adapters to a network, whose other weights, but a classifier's head, are frozen.

        Args:
            network: the network.
            base: its folder or its name on the hub, which the adapter's files name.
        """
        peft = needed("model.lora:", "peft", "lora")
        classifies = hasattr(network, "score")
        network.add_adapter(
            peft.LoraConfig(
                task_type="SEQ_CLS" if classifies else "CAUSAL_LM",
                r=self.rank,
                lora_alpha=self.alpha,
                lora_dropout=self.dropout,
                target_modules=self.targets or "all-linear",
                modules_to_save=["score"] if classifies else None,
            )
        )
        network.peft_config["default"].base_model_name_or_path = base


def base_of(folder: Path, expected: str | None) -> Path:
    """Find the folder of the model that an adapter was trained on, by its :func:`hash_model` if that is known."""
    name = read_json(folder / CONFIG)[BASE]
    if not name:
        raise UserError(f"{folder}: an adapter that does not name its base; write it as {BASE} into {CONFIG}")
    try:
        base = find_model(name)
    except UserError as error:
        raise UserError(f"{folder}: the base of this adapter is missing ({error}); copy or link it there") from error
    if expected not in (None, hash_model(base)):
        raise UserError(f"{folder}: an adapter of another base than {name}; copy the base that it was trained on there")
    return base
