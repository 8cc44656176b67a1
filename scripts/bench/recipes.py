"""What the recipes need: memory by the trainer's own measure of a graph, and hours from the work at a given rate.

    python scripts/bench/recipes.py --lists lists/scifact-train --rate 50
    python scripts/bench/recipes.py --lists lists/scifact-train --check

A graph's bytes per token are linear in the number of layers, so they are measured (`rerank.training.budget`) on
models of the recipe's widths with few layers, random weights and a small vocabulary, in bf16 as on a GPU, and drawn
out to all of them. `--check` does the same for a small model and measures it whole, too. Memory is 4 bytes a weight,
12 more for each that is trained (a gradient, two moments), and the graph of `token_budget` tokens. Work is 2 products
a weight and token forwards, 4 backwards (2 with adapters, whose base has no gradient), and 2 more for scoring first
(`gradient: cached`).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from rerank import CrossEncoder, Decoder, Lists, LoRA
from rerank.models.scorer import Scorer
from rerank.training.budget import PER_PARAMETER, bytes_per_token

GPU_BUDGET = 8192
"""Tokens whose graph is counted; a forward pass on a GPU has up to 65,536 where memory allows."""

VOCABULARY = 30522
"""Of the tokenizer that stands in: what it reads has as many tokens, near enough."""


class Recipe(NamedTuple):
    """A configuration in configs/recipes, and the shape of its model.

    Attributes:
        kind: its architecture.
        hidden, layers, heads, inner, vocabulary: its shape.
        lora: rank of its adapters; 0 where all weights are trained.
        length: tokens of a pair at most.
    """

    kind: str
    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    length: int
    lora: int = 0


RECIPES = {
    "modernbert-base": Recipe("modernbert", 768, 22, 12, 1152, 50368, 512),
    "ettin-17m": Recipe("modernbert", 256, 7, 4, 384, 50368, 512),
    "ettin-32m": Recipe("modernbert", 384, 10, 6, 576, 50368, 512),
    "ettin-68m": Recipe("modernbert", 512, 19, 8, 768, 50368, 512),
    "qwen3-reranker-0.6b-lora": Recipe("qwen3", 1024, 28, 16, 3072, 151936, 640, lora=16),
}


def model_of(recipe: Recipe, layers: int, folder: Path) -> Scorer:
    """A model of the recipe's widths with so many layers and random weights."""
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoTokenizer

    from rerank.models.weights import find_model

    tokenizer = AutoTokenizer.from_pretrained(find_model("sentence-transformers/all-MiniLM-L6-v2"))
    tokenizer.model_max_length = 1024
    sizes = {"hidden_size": recipe.hidden, "num_hidden_layers": layers, "num_attention_heads": recipe.heads}
    sizes |= {"intermediate_size": recipe.inner, "vocab_size": len(tokenizer), "pad_token_id": 0}
    sizes |= {"max_position_embeddings": 1024, "bos_token_id": None, "eos_token_id": 102, "cls_token_id": 101}
    if recipe.kind == "qwen3":
        sizes |= {"num_key_value_heads": recipe.heads // 2, "head_dim": 128 if recipe.hidden == 1024 else 16}
    config = AutoConfig.for_model(recipe.kind, **sizes | {"tie_word_embeddings": True})
    torch.manual_seed(0)
    maker = AutoModelForCausalLM if recipe.kind == "qwen3" else AutoModel
    maker.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    if not recipe.lora:
        return CrossEncoder(str(folder), query_length=64, document_length=256)
    template = {"parts": ["query: {query} document: {document}", "relevant:"], "yes": "yes", "no": "no"}
    return Decoder(str(folder), template=template, lora=LoRA(recipe.lora), query_length=64, document_length=256)


def measured(recipe: Recipe, layers: int, lists: Lists) -> tuple[float, int, int]:
    """Bytes that a graph keeps for a token, all weights and those trained, of a model with so many layers."""
    with tempfile.TemporaryDirectory() as folder:
        model = model_of(recipe, layers, Path(folder)).train()
        each = bytes_per_token(model, model.inputs(lists), lists, np.arange(min(16, len(lists))), "bf16")
    sizes = [(p.numel(), p.requires_grad) for p in model.parameters()]
    return each, sum(n for n, _ in sizes), sum(n for n, trained in sizes if trained)


def drawn_out(recipe: Recipe, of: Callable[[int], tuple[float, int, int]]) -> list[float]:
    """The three numbers of all layers, from those of few; layers that see all come every third in ModernBERT."""
    few, more = (3, 6) if recipe.kind == "modernbert" else (1, 2)
    one, other = of(few), of(more)
    return [a + (b - a) * (recipe.layers - few) / (more - few) for a, b in zip(one, other, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lists", required=True, help="texts to measure on")
    parser.add_argument("--rate", type=float, default=50, help="products a second that the hardware keeps up, in 1e12")
    parser.add_argument("--pairs", type=float, default=1e6, help="pairs of query and document to train on")
    parser.add_argument("--check", action="store_true", help="compare with a small model as a whole")
    options = parser.parse_args()
    lists = Lists.open(options.lists)
    lists = lists.select(np.arange(min(32, len(lists))))
    if options.check:
        for small in (Recipe("modernbert", 64, 12, 4, 96, 1, 512), Recipe("qwen3", 64, 8, 4, 192, 1, 512, lora=4)):
            found = drawn_out(small, lambda layers, small=small: measured(small, layers, lists))
            whole = measured(small, small.layers, lists)
            drawn = f"{found[0]:.0f} bytes a token drawn out, {whole[0]:.0f} measured"
            print(f"{small.kind}: {drawn}; {whole[1:]} {found[1:]}")
        return
    print("| recipe | weights | trained | graph, kB a token | memory, GB | hours |\n|---|---:|---:|---:|---:|---:|")
    for name, recipe in RECIPES.items():
        each, every, trained = drawn_out(recipe, lambda layers, recipe=recipe: measured(recipe, layers, lists))
        inner = every - VOCABULARY * recipe.hidden
        every += (recipe.vocabulary - VOCABULARY) * recipe.hidden
        trained += 0 if recipe.lora else (recipe.vocabulary - VOCABULARY) * recipe.hidden
        memory = 4 * every + PER_PARAMETER * trained + each * GPU_BUDGET
        work = 2 * inner * recipe.length * options.pairs * (1 + 1 + (1 if recipe.lora else 2))
        numbers = f"{every / 1e6:.0f} M | {trained / 1e6:.1f} M | {each / 1e3:.0f} | {memory / 1e9:.1f}"
        print(f"| {name} | {numbers} | {work / options.rate / 1e12 / 3600:.1f} |", flush=True)


if __name__ == "__main__":
    main()
