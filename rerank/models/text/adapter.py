"""Low-rank adapters of a decoder's weights, by peft: made, saved, loaded, merged."""

from __future__ import annotations

import warnings
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


def adapted(network: Any, lora: LoRA, kind: str) -> Any:
    """Put fresh adapters into a network; all else of it stays as it is, but a classifier's head."""
    peft = needed("model.lora:", "peft", "lora")
    config = peft.LoraConfig(
        task_type=peft.TaskType[kind],
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.targets or "all-linear",
    )
    with warnings.catch_warnings(action="ignore"):
        return peft.get_peft_model(network, config)


def with_adapter(network: Any, folder: Path) -> Any:
    """Put the adapters of a folder into a network, to be used and trained further."""
    peft = needed("model.lora:", "peft", "lora")
    with warnings.catch_warnings(action="ignore"):  # of names that Transformers is about to change
        return peft.PeftModel.from_pretrained(network, str(folder), is_trainable=True)


def save_adapter(model: Any, folder: Path, base: str) -> None:
    """Write the adapters alone, and the name of their base."""
    model.peft_config["default"].base_model_name_or_path = base
    with warnings.catch_warnings(action="ignore"):  # of a base that it does not find on the hub
        model.save_pretrained(str(folder), safe_serialization=True, save_embedding_layers=False)
    (folder / "README.md").unlink(missing_ok=True)  # peft's own card


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
