"""The network in a model folder: read as safetensors, never code, and refused where it is not what it is taken for.

An encoder may get CEDR's head; every head is in float32.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from rerank.errors import UserError, one_line
from rerank.models.weights import tensor_names, write_weights
from rerank.storage.files import say_once

FOUND = 0.9
"""Share of an encoder's parameters that a folder has to have the weights of."""

LAYERS = ("num_hidden_layers", "num_decoder_layers", "encoder_layers", "decoder_layers")
"""Numbers of layers, by the names that configurations of all architectures understand."""

UNREAD = ("position_ids", "inv_freq", "masked_bias", "attn.bias", "._weight")
"""Ends of names that files have and encoders do not: constants of older versions, DeBERTa's second embeddings."""

FROM_PADDING = frozenset(
    [
        *("camembert", "data2vec-text", "esm", "ibert", "layoutlmv3", "longformer", "luke", "markuplm", "mpnet"),
        *("roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl", "xmod"),
    ]
)
"""Architectures that count positions from behind the padding's, so that RoBERTa's 514 positions hold 512 tokens."""


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Say in one line what other libraries stumble over in a folder, each with exceptions of its own."""
    try:
        yield
    except (UserError, MemoryError):
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {one_line(error)[:300]}"
        raise UserError(f"{folder}: cannot be read ({reason}); copy the model again") from error


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
        rate = float(getattr(config, "hidden_dropout_prob", 0.1)) if dropout is None else dropout
        if saved_cls:
            from safetensors.torch import load_file

            with reading(folder):
                network = ClsHead(AutoModel.from_config(config, **_no_pooler(config)), rate)
                network.load_state_dict(load_file(str(folder / "model.safetensors")))
            missing = []
        else:
            with reading(folder):
                encoder, info = AutoModel.from_pretrained(folder, **loading(config), **_no_pooler(config))
            check_found(encoder, info, folder)
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
    return network.eval(), missing  # as Transformers loads; kernels prove themselves without dropout


def read_tokenizer(folder: Path) -> Any:
    """A folder's tokenizer; without a vocabulary an empty one would be made up."""
    from transformers import AutoTokenizer

    if not any(any(folder.glob(pattern)) for pattern in ("tokenizer.json", "vocab.*", "*.model")):
        lacks = "a tokenizer (no tokenizer.json, vocab.txt or *.model)"
        raise UserError(f"{folder}: a model folder without {lacks}; copy it there from where the model comes from")
    with reading(folder):
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)


def read_config(folder: Path, dropout: float | None) -> Any:
    """A folder's configuration, with this rate in place of every dropout's."""
    from transformers import AutoConfig
    from transformers.utils import logging as hf_logging

    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: holds an adapter, no whole model; load it as a Decoder")
    with reading(folder):
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    weights = len(tensor_names(folder))  # each layer has one at least: 20,000 layers are not even begun
    for name, most in (*((name, weights) for name in LAYERS), ("num_attention_heads", math.inf)):
        if isinstance(value := getattr(config, name, None), int) and not 0 <= value <= most:
            raise UserError(f"{folder}: config.json: {name} is {value}, and there are {weights} weights")
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
        with reading(folder):
            network, info = AutoModelForSequenceClassification.from_pretrained(folder, **loading(config))
    except UserError as error:
        if isinstance(error.__cause__, RuntimeError):  # of sizes that do not match
            raise UserError(f"{folder}: a classifier of several labels, or with another model's config.json") from error
        raise
    check_found(network, info, folder)
    return network, sorted(info["missing_keys"])


def check_found(network: Any, info: dict[str, Any], folder: Path) -> None:
    """Refuse an encoder that lacks weights, or of whose weights some stay unread; heads for other tasks may."""
    missing = info["missing_keys"]
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
    parts = {name for name, _ in inner.named_children()}
    unread = [name for name in sorted(info["unexpected_keys"]) if not name.endswith(UNREAD)]
    if own := [name for name in unread if name.removeprefix(prefix).partition(".")[0] in parts]:
        raise UserError(
            f"{folder}: config.json is of a smaller model, without a place for {len(own)} of the weights, such as "
            f"{own[0]}; copy both from where the model comes from"
        )
    if unread:
        heads = dict.fromkeys(name.removeprefix(prefix).partition(".")[0] for name in unread)
        say_once(f"{folder}: has weights for another task, which are not read: {', '.join(heads)}")


def _no_pooler(config: Any) -> dict[str, Any]:
    """BERT and its kin have a pooler that the raw CLS vector does not use."""
    from transformers import MODEL_MAPPING

    architecture: Any = MODEL_MAPPING[type(config)]
    takes = inspect.signature(architecture).parameters
    return {"add_pooling_layer": False} if "add_pooling_layer" in takes else {}


def positions_of(config: Any, tokenizer: Any) -> int:
    """Tokens that fit a sequence: the model's positions, or what its tokenizer allows."""
    positions = getattr(config, "max_position_embeddings", None) or 10**9
    if config.model_type in FROM_PADDING:
        positions -= (config.pad_token_id or 0) + 1
    return min(positions, tokenizer.model_max_length)


def is_decoder(config: Any) -> bool:
    """Whether it reads from left to right: its first token has seen nothing, and its last one may be padding."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES as MASKED

    causal = config.model_type in CAUSAL and config.model_type not in MASKED
    return (getattr(config, "is_decoder", False) or causal) and not getattr(config, "is_encoder_decoder", False)


def knows_types(network: Any) -> bool:
    """Whether a model tells the two sides apart by token types (BERT does, DistilBERT and RoBERTa do not)."""
    encoder = getattr(network, network.base_model_prefix)
    takes = inspect.signature(encoder.forward).parameters
    return getattr(encoder.config, "type_vocab_size", 0) > 1 and "token_type_ids" in takes


def changes_itself(config: Any) -> bool:
    """Whether a forward pass rewrites buffers or settings of the network, as in a few architectures."""
    rope = str(getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None))
    return config.model_type in ("big_bird", "funnel") or "dynamic" in rope or "longrope" in rope


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
        self.config.save_pretrained(folder)
        write_weights(folder, self.state_dict())


def keep_float32(module: nn.Module) -> None:
    """Let a module compute in float32 under any autocast: scores in bf16 would tie."""
    module.forward = MethodType(_in_float32, module)  # bound, so that a deep copy has its own


def _in_float32(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
    with torch.autocast(next(iter(args)).device.type if args else "cpu", enabled=False):
        floats = (a.float() if torch.is_tensor(a) and a.is_floating_point() else a for a in args)
        return type(module).forward(module, *floats, **kwargs)
