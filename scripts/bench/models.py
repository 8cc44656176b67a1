"""Models of random weights and of any size, lists for them without texts, and the work that they are.

All is for scripts and tests without the hub and with little installed. Rates are given as a share of what a large
product reaches on the same device.
"""

from __future__ import annotations

import re
import sys
import time
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import numpy as np
import torch

if TYPE_CHECKING:
    from rerank.lists.tokens import Tokens
    from rerank.lists.view import Lists
    from rerank.training.batches import ListSample

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


def random_model(shape: str, folder: Path, tokenizer: Any = None, **settings: Any) -> str:
    """Write a classifier of random weights, the same every time; settings go over the shape's. Returns its folder."""
    from transformers import AutoConfig, AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.disable_progress_bar()
    kind, sizes = SHAPES[shape]
    sizes = {"num_attention_heads": sizes["hidden_size"] // (32 if shape == "MiniLM-L6" else 64), **sizes}
    tokenizer = tokenizer or word_tokenizer(pairs=kind != "qwen3")
    ids = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "cls", "sep")}
    ids |= {"bos_token_id": ids["cls_token_id"], "eos_token_id": ids["sep_token_id"]}
    config = AutoConfig.for_model(kind, vocab_size=30_522, num_labels=1, **ids | sizes | settings)
    torch.manual_seed(0)
    network = AutoModelForSequenceClassification.from_config(config)
    if kind == "qwen3":
        network.bfloat16().float()  # weights that bf16 holds, as those of published decoders are
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


def need_no_arrow() -> None:
    """Let rerank be imported where PyArrow is not installed, by which it reads and writes lists: here are no files."""
    if find_spec("pyarrow") is None:
        for name in ("pyarrow", "pyarrow.compute", "pyarrow.csv", "pyarrow.json"):
            sys.modules[name] = MagicMock(__spec__=ModuleSpec(name, None), __path__=[], __version__="0")


def tokens_of(queries: list[np.ndarray], documents: list[np.ndarray]) -> Tokens:
    """Return token ids as rerank reads them, without writing them with PyArrow."""
    from rerank.lists.tokens import Tokens
    from rerank.storage.arrow import Ragged

    sides = Ragged.__new__(Ragged), Ragged.__new__(Ragged)
    for column, texts in zip(sides, (queries, documents), strict=True):
        column._values, column._starts = [np.concatenate(texts).astype(np.int32)], np.array([0, len(texts)])
        column._offsets = [np.cumsum([0, *map(len, texts)], dtype=np.int32)]
    return Tokens(*sides)


def ready_lists(queries: int, depth: int) -> Lists:
    """Lists in memory without texts, the first two candidates of each relevant; needs neither pandas nor PyArrow."""
    from rerank.lists.store import Store
    from rerank.lists.view import Lists

    store = Store({"judgments": "grades", "order": None, "collection": {"name": "made"}})
    store.query = np.repeat(np.arange(queries, dtype=np.int32), depth)
    store.document = np.arange(queries * depth, dtype=np.int32)
    store.grades = np.tile(np.arange(depth) < 2, queries).astype(np.int16)
    store.ends = depth * np.arange(1, queries + 1)
    store.added = np.zeros(queries, dtype=np.int32)
    lists = Lists.of(store)
    lists.__dict__["query_ids"] = [f"q{query}" for query in range(queries)]  # there is no table to read them from
    return lists


def whole(lists: Lists) -> list[ListSample]:
    """All lists as a step sees them."""
    from rerank.training.batches import ListSample

    return [ListSample(i, np.arange(lists.offsets[i], lists.offsets[i + 1]), i) for i in range(len(lists))]


def word_tokenizer(pairs: bool) -> Any:
    """Make a tokenizer of :data:`WORDS`, with BERT's template for pairs or none."""
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


def product_rate(device: torch.device, size: int = 4096, kind: torch.dtype = torch.bfloat16) -> float:
    """Operations a second of a large matrix product."""
    one, other = (torch.randn(size, size, device=device).to(kind) for _ in range(2))
    best = np.inf
    for _ in range(4):
        started = time.perf_counter()
        one @ other
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started)
    return 2 * size**3 / best


def operations(network: Any, lengths: np.ndarray) -> float:
    """Count operations of scoring pairs of these lengths: two per weight and token, four per dimension and token pair.

    A token of a decoder sees half of the others.
    """
    config = network.config
    times = config.num_hidden_layers if config.model_type == "albert" else 1  # whose layers are one
    layers = [p.numel() for n, p in network.named_parameters() if p.ndim == 2 and re.search(r"\.(albert_)?layer", n)]
    wide = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    wide *= config.num_attention_heads
    near = sum(kind == "sliding_attention" for kind in getattr(config, "layer_types", None) or [])
    seen = (config.num_hidden_layers - near) * lengths * (0.5 if hasattr(config, "num_key_value_heads") else 1)
    window = getattr(config, "local_attention", None) or getattr(config, "sliding_window", None) or 0
    seen = seen + near * np.minimum(lengths, window + 1)
    return float((2 * times * sum(layers) * lengths + 4 * wide * seen * lengths).sum())
