"""Rerankers as sentence-transformers saves them, made of small random models."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.builders import jinja, make_decoder, make_model


def make_modern(folder: Path) -> Path:
    """A ModernBERT of two tiny layers with random weights (the same every time), with BERT's vocabulary."""
    from transformers import AutoTokenizer, ModernBertConfig, ModernBertModel

    tokenizer = AutoTokenizer.from_pretrained(make_model(folder))
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    tokens = {f"{name}_token_id": getattr(tokenizer, f"{name}_token_id") for name in ("pad", "cls", "sep")}
    config = ModernBertConfig(
        **{"vocab_size": len(tokenizer), "max_position_embeddings": 128, "bos_token_id": None, "eos_token_id": None},
        **{"initializer_range": 0.2, **sizes, **tokens},
    )
    torch.manual_seed(0)
    ModernBertModel(config).save_pretrained(folder)
    return folder


def modular(encoder: Path, pooling: str, labels: int = 1) -> Any:
    """The layout of Ettin's rerankers."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder.modules import Dense, Transformer
    from sentence_transformers.sentence_transformer.modules import LayerNorm, Pooling

    torch.manual_seed(1)
    transformer = Transformer(str(encoder), transformer_task="feature-extraction")
    pooled, middle = Pooling(32, pooling), Dense(32, 16, activation_function=nn.GELU())
    scores = Dense(16, labels, activation_function=nn.Identity(), module_output_name="scores")
    return CrossEncoder(modules=[transformer, pooled, middle, LayerNorm(16), scores], device="cpu")


def classic(encoder: Path, labels: int, activation: nn.Module | None) -> Any:
    from sentence_transformers import CrossEncoder

    torch.manual_seed(1)
    model = CrossEncoder(str(encoder), num_labels=labels, activation_fn=activation, device="cpu")
    nn.init.normal_(model[0].model.classifier.weight, std=0.1)
    return model


TELL = "{% for message in messages if message.role == 'system' %}Instruct: {{ message.content }}\n{% endfor %}"
END = "<|im_end|>\n<|im_start|>assistant\n"
QUERY_FIRST = f"<|im_start|>user\n{TELL}Query: {jinja('query')}\nDocument: {jinja('document')}{END}"
DOCUMENT_FIRST = f"<|im_start|>user\nDocument: {jinja('document')}\nQuery: {jinja('query')}{END}"


def decoder(folder: Path, template: str | None, head: str = "yes_no", answers: tuple[str, ...] = ()) -> Any:
    """A decoder, whose folder says how it reads a pair."""
    from sentence_transformers import CrossEncoder
    from sentence_transformers.cross_encoder.modules import LogitScore, Transformer
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(make_decoder(folder, head=head, prompt=None, initializer_range=0.1))
    tokenizer.chat_template = template
    tokenizer.save_pretrained(folder)
    if not answers:
        return CrossEncoder(str(folder), device="cpu")
    transformer = Transformer(str(folder), transformer_task="text-generation")
    return CrossEncoder(
        modules=[transformer, LogitScore(*tokenizer.convert_tokens_to_ids(list(answers)))], device="cpu"
    )


LAYOUTS = {
    "bert": lambda folder: classic(make_model(folder), 1, None),
    "bert, identity": lambda folder: classic(make_model(folder), 1, nn.Identity()),
    "bert, two labels": lambda folder: classic(make_model(folder), 2, None),
    "modules, bert, cls": lambda folder: modular(make_model(folder), "cls"),
    "modules, bert, mean": lambda folder: modular(make_model(folder), "mean"),
    "modules, bert, max": lambda folder: modular(make_model(folder), "max"),
    "modules, modernbert, cls": lambda folder: modular(make_modern(folder), "cls"),
    "modules, modernbert, mean": lambda folder: modular(make_modern(folder), "mean"),
    "modules, two labels": lambda folder: modular(make_model(folder), "cls", labels=2),
    "decoder": lambda folder: decoder(folder, QUERY_FIRST),
    "decoder, document first": lambda folder: decoder(folder, DOCUMENT_FIRST),
    "decoder, other tokens": lambda folder: decoder(folder, QUERY_FIRST, answers=("wing", "heat")),
    "decoder, one token": lambda folder: decoder(folder, QUERY_FIRST, answers=("wing",)),
    "decoder, classifier": lambda folder: decoder(folder, QUERY_FIRST, "hf"),
    "decoder, classifier without a template": lambda folder: decoder(folder, None, "hf"),
}


def save_layout(name: str, folder: Path) -> Path:
    """Save a reranker of a layout with sentence-transformers."""
    base = folder.with_name(f"{folder.name}-base")
    LAYOUTS[name](base).save_pretrained(str(folder), create_model_card=False)
    shutil.rmtree(base)
    return folder
