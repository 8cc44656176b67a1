"""The network in a model folder: read as safetensors, never code, and refused if it is not what it is taken for.

Every head computes in float32.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import nn

from rerank.errors import UserError
from rerank.models.text.modules import IDENTITY, ModularNetwork, cls_modules, load_modules, prompts_of, to_one_label
from rerank.models.text.pairs import PairTemplate
from rerank.storage.files import read_json

PROBE = 70
"""Tokens of the longer of two pairs that tell if padding is read: more than a window of local attention."""

UNREAD = ("position_ids", "inv_freq", "masked_bias", "attn.bias", "._weight")
"""Ends of names that files have and encoders do not: constants of older versions, DeBERTa's second embeddings."""


def load_encoder(
    folder: Path, head: str, modules: Sequence[dict[str, Any]], dropout: float | None
) -> tuple[Any, list[str]]:
    """Load the network and name the weights that the folder lacks (a randomly initialised head).

    Args:
        folder: the model's folder.
        head: ``hf``, the architecture's own; else ``modules``, or CEDR's, which is drawn without them.
        modules: see :func:`rerank.models.text.modules.modules_of`.
        dropout: every dropout rate; None for the model's own.
    """
    from transformers import AutoModel

    config = read_config(folder, dropout)
    if is_decoder(config):
        raise UserError(
            f"{folder}: {config.model_type} is a decoder, whose tokens see only what is before them; load it as a "
            "Decoder, which reads prompts, or name an encoder, such as BERT, RoBERTa, ELECTRA, DeBERTa or ModernBERT"
        )
    if head == "hf":
        network, missing = load_classifier(folder, config)
        for name, module in network.named_children():
            if name != network.base_model_prefix:
                keep_float32(module)
            elif pooler := getattr(module, "pooler", None):
                keep_float32(pooler)
    else:
        encoder, lacking = load_network(AutoModel, folder, config, **_no_pooler(config))
        missing = [f"encoder.{name}" for name in lacking]
        if modules:
            behind = load_modules(folder, modules, dropout)
        else:
            rate = float(getattr(config, "hidden_dropout_prob", 0.1)) if dropout is None else dropout
            behind = cls_modules(config.hidden_size, rate, getattr(config, "initializer_range", 0.02))
            missing += ["scorer.2.linear.weight", "scorer.2.linear.bias"]
        network = ModularNetwork(encoder, behind, prompts_of(folder))
    return network.eval(), missing


def read_tokenizer(folder: Path) -> Any:
    """Load a folder's tokenizer; without a vocabulary an empty one would be made up."""
    from transformers import AutoTokenizer

    if not any(any(folder.glob(pattern)) for pattern in ("tokenizer.json", "vocab.*", "*.model")):
        lacks = "a tokenizer (no tokenizer.json, vocab.txt or *.model)"
        raise UserError(f"{folder}: a model folder without {lacks}; copy it there from the original model")
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def read_config(folder: Path, dropout: float | None) -> Any:
    """Load a folder's configuration, with this rate in place of every dropout's."""
    from transformers import CONFIG_MAPPING, AutoConfig
    from transformers.utils import logging as hf_logging

    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    described = read_json(folder / "config.json")
    if "auto_map" in described and described.get("model_type") not in CONFIG_MAPPING:
        raise UserError(f"{folder}: {described.get('model_type')} needs remote code, which is never run")
    config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if dropout is not None:
        for name, value in vars(config).items():
            if ("dropout" in name or name.endswith("pdrop")) and isinstance(value, int | float):
                setattr(config, name, dropout)
    return config


def load_network(kind: Any, folder: Path, config: Any, **options: Any) -> tuple[Any, list[str]]:
    """Load float32 safetensors from a folder, never code; name the weights that it lacks."""
    config.sentence_transformers = {"activation_fn": IDENTITY}  # sentence-transformers' scores are raw, too
    options |= {"config": config, "dtype": torch.float32, "use_safetensors": True, "output_loading_info": True}
    network, info = kind.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **options)
    check_found(network, info, folder)
    return network, sorted(info["missing_keys"])


def load_classifier(folder: Path, config: Any) -> tuple[Any, list[str]]:
    """Load the architecture's own classifier, of one label; name the weights that the folder lacks.

    The score of a classifier of two labels is the difference of their logits.
    """
    from transformers import AutoModelForSequenceClassification

    classifies = (config.architectures or [""])[0].endswith("ForSequenceClassification")
    labels = config.num_labels = config.num_labels if classifies else 1
    network, missing = load_network(AutoModelForSequenceClassification, folder, config)
    if labels > 1:
        layers = [m for m in network.modules() if isinstance(m, nn.Linear) and m.out_features == labels]
        to_one_label(layers[-1], folder)
        network.config.num_labels = network.num_labels = 1
    return network, missing


def check_found(network: Any, info: dict[str, Any], folder: Path) -> None:
    """Refuse an encoder that lacks weights, poolers aside, or of whose weights some stay unread; heads may."""
    inner = getattr(network, network.base_model_prefix, network)
    prefix = "" if inner is network else f"{network.base_model_prefix}."
    own = {prefix + name for name, _ in inner.named_parameters() if "pooler" not in name}
    if lacking := sorted(own & set(info["missing_keys"])):
        raise UserError(
            f"{folder}: lacks {len(lacking)} of the encoder's weights, such as {lacking[0]}; are they of another "
            "architecture, or under other names?"
        )
    parts = {name for name, _ in inner.named_children()}
    unread = [name for name in sorted(info["unexpected_keys"]) if not name.endswith(UNREAD)]
    prefix = f"{network.base_model_prefix}."
    if unplaced := [name for name in unread if name.removeprefix(prefix).partition(".")[0] in parts]:
        raise UserError(
            f"{folder}: config.json is of a smaller model, without a place for {len(unplaced)} of the weights, such as "
            f"{unplaced[0]}; copy both from the original model"
        )


def _no_pooler(config: Any) -> dict[str, Any]:
    """Leave out the pooler of BERT and its kin, which the raw CLS vector does not use."""
    from transformers import MODEL_MAPPING

    architecture: Any = MODEL_MAPPING[type(config)]
    takes = inspect.signature(architecture).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}


def positions_of(network: Any, tokenizer: Any) -> int:
    """Return the tokens that fit a sequence: the model's positions, or its tokenizer's limit.

    RoBERTa and its kin count positions from behind the padding's, so that 514 of them hold 512 tokens.
    """
    positions = getattr(network.config, "max_position_embeddings", None) or 10**9
    positions = positions if positions > 0 else 10**9  # XLNet says -1
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            positions -= module.padding_idx + 1
            break
    return min(positions, tokenizer.model_max_length)


def is_decoder(config: Any) -> bool:
    """Tell if a model reads from left to right: its first token has seen nothing, and its last may be padding."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED

    causal = config.model_type in CAUSAL and config.model_type not in (*MASKED, "xlnet")  # XLNet reads both ways
    return (getattr(config, "is_decoder", False) or causal) and not getattr(config, "is_encoder_decoder", False)


def knows_types(network: Any) -> bool:
    """Tell if a model has token types for the two sides (BERT does, DistilBERT and RoBERTa do not)."""
    encoder = getattr(network, network.base_model_prefix)
    takes = inspect.signature(encoder.forward).parameters
    return getattr(encoder.config, "type_vocab_size", 0) > 1 and "token_type_ids" in takes


def reads_padding(network: Any, template: PairTemplate, tokenizer: Any) -> bool:
    """Tell if the score of a pair depends on its padding, as in FNet, whose layers know no mask."""
    rng, size = np.random.default_rng(0), min(network.config.vocab_size, len(tokenizer))
    words = np.setdiff1d(np.arange(size), tokenizer.all_special_ids)
    longest = max(2, min(PROBE, positions_of(network, tokenizer)) - template.special)
    of_query = (longest - 1) // 4 + 1
    queries = [rng.choice(words, n) for n in (1, of_query)]
    documents = [rng.choice(words, n) for n in (2, longest - of_query)]
    batch = template.join(queries, documents)
    length = int(batch["attention_mask"][0].sum())
    with torch.no_grad():
        padded = network(**batch).logits[0]
        alone = network(**{name: value[:1, :length] for name, value in batch.items()}).logits[0]
    return not torch.allclose(padded, alone, rtol=1e-4, atol=1e-5)


def zero_last_layer(network: Any, missing: Sequence[str]) -> bool:
    """Let every score be exactly 0 until the first step if the layer that makes it is missing; tell if it is."""
    if not missing:
        return False
    name, layer = [(name, module) for name, module in network.named_modules() if isinstance(module, nn.Linear)][-1]
    if layer.out_features > 1:
        raise UserError(
            f"model.residual_columns: the head of {type(network).__name__} has no last layer; choose model.head cls"
        )
    if not any(f"{name}.".startswith(f"{of.rpartition('.')[0]}.") for of in missing):
        return False
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return True


def keep_float32(module: nn.Module) -> None:
    """Let a module compute in float32 under any autocast: scores in bf16 would tie."""
    module.forward = MethodType(_in_float32, module)  # bound, so that a deep copy has its own


def _in_float32(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    with torch.autocast(next(iter(args)).device.type if args else "cpu", enabled=False):
        floats = (a.float() if torch.is_tensor(a) and a.is_floating_point() else a for a in args)
        return type(module).forward(module, *floats, **kwargs)
