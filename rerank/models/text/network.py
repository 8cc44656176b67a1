"""The network in a model folder: read as safetensors, never code, and refused where it is not what it is taken for."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rerank.errors import UserError
from rerank.models.text.architecture import is_decoder
from rerank.models.text.head import ClsHead, keep_float32
from rerank.models.weights import check_safetensors, check_tokenizer

FOUND = 0.9
"""Share of an encoder's parameters that a folder has to have the weights of."""


def load_encoder(folder: Path, head: str, saved_cls: bool, dropout: float | None) -> tuple[Any, list[str]]:
    """The network and the names of the weights that the folder does not have (a fresh head)."""
    from transformers import AutoModel

    config = read_config(folder, dropout)
    if is_decoder(config):
        raise UserError(
            f"{folder}: {config.model_type} is a decoder, whose tokens see only what is before them; load it as a "
            "Decoder, which reads prompts, or name an encoder, such as BERT, RoBERTa, ELECTRA, DeBERTa or ModernBERT"
        )
    if head == "hf":
        if saved_cls:
            raise UserError(f"{folder}: has a cls head; load it with head cls")
        network, missing = load_classifier(folder, config)
    else:
        keys = loading(config)
        rate = float(getattr(config, "hidden_dropout_prob", 0.1))
        if saved_cls:
            from safetensors.torch import load_file

            network = ClsHead(AutoModel.from_config(config, **_no_pooler(config)), rate)
            check_safetensors(folder / "model.safetensors")
            network.load_state_dict(load_file(str(folder / "model.safetensors")))
            missing = []
        else:
            encoder, info = AutoModel.from_pretrained(folder, **keys, **_no_pooler(config))
            check_found(encoder, info["missing_keys"], folder)
            network = ClsHead(encoder, rate)
            nn.init.normal_(network.classifier.weight, std=getattr(config, "initializer_range", 0.02))
            nn.init.zeros_(network.classifier.bias)
            lacking = sorted(f"encoder.{name}" for name in info["missing_keys"])
            missing = [*lacking, "classifier.weight", "classifier.bias"]
    for name, module in network.named_children():
        if name != network.base_model_prefix:
            keep_float32(module)
        elif pooler := getattr(module, "pooler", None):
            keep_float32(pooler)
    return network, missing


def read_tokenizer(folder: Path) -> Any:
    """A folder's tokenizer."""
    from transformers import AutoTokenizer

    check_tokenizer(folder)
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def read_config(folder: Path, dropout: float | None) -> Any:
    """A folder's configuration, with this rate in place of every dropout's."""
    from transformers import AutoConfig
    from transformers.utils import logging as hf_logging

    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: holds an adapter, no whole model; load it as a Decoder")
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if dropout is not None:
        for name, value in vars(config).items():
            if ("dropout" in name or name.endswith("pdrop")) and isinstance(value, int | float):
                setattr(config, name, dropout)
    return config


def loading(config: Any) -> dict[str, Any]:
    """How weights are read: float32 safetensors from a folder, never code."""
    keys: dict[str, Any] = {"config": config, "dtype": torch.float32, "use_safetensors": True}
    return keys | {"local_files_only": True, "trust_remote_code": False, "output_loading_info": True}


IDENTITY = {"activation_fn": "torch.nn.modules.linear.Identity"}
"""For sentence-transformers: scores are raw."""


def load_classifier(folder: Path, config: Any) -> tuple[Any, list[str]]:
    """The architecture's own classifier of one label, and the names of the weights that the folder does not have."""
    from transformers import AutoModelForSequenceClassification

    config.num_labels = 1
    config.sentence_transformers = IDENTITY
    try:
        network, info = AutoModelForSequenceClassification.from_pretrained(folder, **loading(config))
    except ValueError as error:
        raise UserError(f"{folder}: {str(error).splitlines()[0]}") from error
    except RuntimeError as error:
        raise UserError(f"{folder}: is a classifier of several labels, not a scorer of one") from error
    missing = sorted(info["missing_keys"])
    check_found(network, missing, folder)
    return network, missing


def check_found(network: Any, missing: Iterable[str], folder: Path) -> None:
    """Refuse an encoder most of whose weights have other names in the folder: it would start from random ones."""
    prefix = f"{network.base_model_prefix}."
    inner = getattr(network, network.base_model_prefix, network)
    start = prefix if inner is not network else ""
    sizes = {start + name: parameter.numel() for name, parameter in inner.named_parameters()}
    lacking = sum(sizes.get(name, 0) for name in missing)
    if lacking > (1 - FOUND) * sum(sizes.values()):
        example = next(name for name in missing if name in sizes)
        raise UserError(
            f"{folder}: lacks {lacking / sum(sizes.values()):.0%} of the encoder's weights, such as {example}; are "
            "they of another architecture, or called otherwise?"
        )


def _no_pooler(config: Any) -> dict[str, Any]:
    """BERT and its kin have a pooler that the raw CLS vector does not use."""
    from transformers import MODEL_MAPPING

    architecture: Any = MODEL_MAPPING[type(config)]
    takes = inspect.signature(architecture).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}
