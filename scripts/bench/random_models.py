"""Models of random weights and of any size, with a tokenizer of a few words: for scripts and tests without the hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

WORDS = ["wing", "flow", "pressure", "heat", "shock", "layer", "plate", "cone", "jet", "drag", "lift", "wave", "theory"]

SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "MiniLM-L6": ("bert", {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}),
    "BERT-base": ("bert", {"hidden_size": 768, "num_hidden_layers": 12, "intermediate_size": 3072}),
    "ModernBERT-base": ("modernbert", {"hidden_size": 768, "num_hidden_layers": 22, "intermediate_size": 1152}),
    "Qwen3, 8 of 0.6B's 28 layers": (
        "qwen3",
        {"hidden_size": 1024, "num_hidden_layers": 8, "intermediate_size": 3072, "num_key_value_heads": 8},
    ),
}
"""Architecture and sizes; the others follow from these."""


def tiny(shape: str) -> dict[str, Any]:
    """Sizes with which the same architecture takes no time."""
    small = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 48, "num_attention_heads": 2}
    return small | ({"num_key_value_heads": 1, "head_dim": 16} if SHAPES[shape][0] == "qwen3" else {})


def random_model(shape: str, folder: Path, **settings: Any) -> str:
    """Write a classifier of random weights, the same every time; returns its folder.

    Args:
        shape: one of :data:`SHAPES`.
        folder: where it goes.
        settings: of its configuration, over the shape's.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    kind, sizes = SHAPES[shape]
    sizes = {"num_attention_heads": sizes["hidden_size"] // (32 if shape == "MiniLM-L6" else 64), **sizes}
    ids = {"pad_token_id": 0, "cls_token_id": 2, "bos_token_id": 2, "sep_token_id": 3, "eos_token_id": 3}
    config = AutoConfig.for_model(kind, vocab_size=30_522, num_labels=1, **ids | sizes | settings)
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    word_tokenizer(pairs=kind != "qwen3").save_pretrained(folder)
    return str(folder)


def word_tokenizer(pairs: bool) -> Any:
    """A tokenizer of :data:`WORDS`, with BERT's template for pairs or none."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if pairs:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    names |= {} if pairs else {"eos_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **names)
