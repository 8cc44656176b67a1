"""Make small collections, lists and models for tests."""

from __future__ import annotations

import bz2
import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from rerank.collections import open_collection
from rerank.lists import Lists, build_lists
from rerank.retrieval import Scored
from rerank.retrieval.runs import Run

WORDS = [
    *("wing", "flow", "pressure", "heat", "shock", "layer", "boundary", "plate", "cone", "jet", "mach", "laminar"),
    *("supersonic", "drag", "lift", "nose", "body", "cylinder", "wave", "theory", "solution", "equation", "velocity"),
    *("temperature", "transfer", "surface", "stream", "edge", "blunt", "slender"),
]


def train(words: list[str]) -> dict[str, Any]:
    """Train with the words of ``rerank train``; return the best model's measures by split."""
    from rerank.training.configuration import configuration
    from rerank.training.fit import fit

    config, output = configuration(words)
    results = fit(config, output).results
    return {name: split["model"].mean for name in ("validation", "test") if (split := getattr(results, name))}


def contents(folder: Path) -> dict[str, bytes]:
    """Read all files of a folder: bytes by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}
"""Compression by suffix."""


def write_packed(path: Path, content: str | bytes) -> Path:
    """Write a file, compressed as its suffix says."""
    path.write_bytes(PACK.get(path.suffix, bytes)(content.encode() if isinstance(content, str) else content))
    return path


def write_collection(folder: Path, queries: int = 12, documents: int = 60, seed: int = 0) -> str:
    """Write a BEIR folder of random sentences; documents that share enough words with a query are relevant (1 or 2)."""
    rng = random.Random(seed)
    texts = {f"d{i}": rng.choices(WORDS, k=rng.randint(1, 40)) for i in range(documents)}
    asked = {f"q{i}": rng.sample(WORDS, k=3) for i in range(queries)}
    (folder / "qrels").mkdir(parents=True)
    with (folder / "corpus.jsonl").open("w") as file:
        file.writelines(json.dumps({"_id": d, "title": "", "text": " ".join(t)}) + "\n" for d, t in texts.items())
    with (folder / "queries.jsonl").open("w") as file:
        file.writelines(json.dumps({"_id": q, "text": " ".join(t)}) + "\n" for q, t in asked.items())
    with (folder / "qrels" / "test.tsv").open("w") as file:
        file.write("query-id\tcorpus-id\tscore\n")
        for query, words in asked.items():
            for document, text in texts.items():
                if grade := max(0, len(set(words) & set(text)) - 1):
                    file.write(f"{query}\t{document}\t{grade}\n")
    return f"beir:{folder}/test"


def random_run(collection: str, lengths: list[int], seed: int = 0) -> Run:
    """Draw a run with lists of the given lengths, best first."""
    rng = random.Random(seed)
    source = open_collection(collection)
    documents = [document.id for document in source.documents()]
    run: Run = {}
    for query, length in zip(source.queries(), lengths, strict=False):
        run[query.id] = [Scored(d, float(length - i)) for i, d in enumerate(rng.sample(documents, length))]
    return run


def make_lists(folder: Path, lengths: list[int] | None = None, seed: int = 0) -> Lists:
    """Build lists of uneven lengths over a collection of ``write_collection``."""
    collection = write_collection(folder / "collection", seed=seed)
    lengths = lengths or [20, 1, 7, 13, 20, 2, 16, 5, 20, 11, 3, 18]
    return build_lists(open_collection(collection), random_run(collection, lengths, seed), folder / "lists")


def make_lists_with_added(folder: Path) -> Lists:
    """Build lists of two candidates each, with added relevant documents."""
    name = write_collection(folder / "c")
    run = {query: ranked[:2] for query, ranked in random_run(name, [20] * 12).items()}
    return build_lists(open_collection(name), run, folder / "lists", add_relevant=True)


def make_model(folder: Path, dropout: float = 0.0, hidden: int = 32) -> Path:
    """Save a BERT of two tiny layers with random weights (the same every time) and the real uncased vocabulary."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from rerank.models.folder import find_model

    tokenizer = AutoTokenizer.from_pretrained(find_model("sentence-transformers/all-MiniLM-L6-v2"))
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * hidden,
        max_position_embeddings=128,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.2,
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    tokenizer.model_max_length = 128
    tokenizer.save_pretrained(folder)
    return folder


def with_positions(folder: Path, count: int) -> Path:
    """Set the maximum number of tokens of a saved model."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.model_max_length = count
    tokenizer.save_pretrained(folder)
    return folder


def write_features(path: Path, lengths: list[int] | None = None, features: int = 6, seed: int = 0) -> Path:
    """Write a LETOR file of random lists; grades (0 to 2) follow the first two features."""
    rng = random.Random(seed)
    lengths = lengths or [20, 1, 7, 13, 20, 2, 16, 5, 20, 11, 3, 18]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for query, length in enumerate(lengths):
            for document in range(length):
                values = [rng.gauss(0, 1) for _ in range(features)]
                grade = min(2, max(0, round(values[0] - values[1])))
                cells = " ".join(f"{i}:{value:.6f}" for i, value in enumerate(values, start=1))
                file.write(f"{grade} qid:{seed}{query} {cells} #docid = D{query}-{document}\n")
    return path


def write_folds(folder: Path, features: int = 6) -> Path:
    """Write ``Fold1/{train,vali,test}.txt`` with lists that can be learned."""
    for seed, name in enumerate(("train", "vali", "test"), start=1):
        write_features(folder / "Fold1" / f"{name}.txt", features=features, seed=seed)
    return folder


PROMPT = "query: {query}\ndocument: {document}\nrelevant:"
INSTRUCTED = f"{{system}}\n{PROMPT}"
"""Prompts of decoders that answer yes or no, with the roles of messages as places."""

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
"""Pattern with which Qwen's tokenizer splits a text into words."""


def jinja(role: str) -> str:
    """Return the place of a role's message in a chat template."""
    messages = f"messages | selectattr('role', 'equalto', '{role}')"
    return f"{{{{ {messages} | map(attribute='content') | first | default('') }}}}"


def make_decoder(
    folder: Path, kind: str = "qwen3", head: str = "yes_no", prompt: str | None = PROMPT, **settings: Any
) -> Path:
    """Save a decoder of two tiny layers with random weights (the same every time) and a vocabulary like Qwen's.

    Unless ``prompt`` is None, its files have the prompt and score a pair by comparing yes and no.
    """
    import torch
    from sentence_transformers.cross_encoder.modules import LogitScore
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoModelForSequenceClassification,
        PreTrainedTokenizerFast,
    )

    from rerank.models.text.modules import write_layout

    backend = Tokenizer(BPE())
    apart = pre_tokenizers.Split(Regex(QWEN), "isolated")
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [apart, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    backend.decoder = decoders.ByteLevel()
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
    texts = [f"{word}?\n {word}.\n {word}: yes no" for word in WORDS] * 3
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    backend.train_from_iterator([*texts, "yes", "no", " yes", " no"] * 9, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=1024
    )
    if prompt is not None:
        tokenizer.chat_template = re.sub(r"\{(\w+)\}", lambda place: jinja(place[1]), prompt)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"head_dim": 8, "intermediate_size": 48, "initializer_range": 0.2, "max_position_embeddings": 1024}
    sizes |= {"vocab_size": len(tokenizer), "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": None}
    config = AutoConfig.for_model(kind, **sizes | settings)
    torch.manual_seed(0)
    if head == "yes_no":
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        if prompt is not None:
            answers = LogitScore(*tokenizer.convert_tokens_to_ids(["yes", "no"]))
            write_layout(folder, "text-generation", [answers], {}, chat=True)
    else:
        config.num_labels = 1
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
