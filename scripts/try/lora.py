"""Train a small random decoder with adapters on stored lists: does the loss fall, does a killed run end the same?

    python scripts/try/lora.py --lists lists/scifact-train --output check --steps 100

Makes a decoder like Qwen3 (2 layers, a vocabulary of 8,000 tokens of the lists' own texts) and trains it with LoRA on a
few of the lists, with each of some seeds, once more with the first seed, and is killed in between. Prints the mean loss
of the first and last fifth of the steps, whether weights and losses of the killed run are the same to the last bit, and
the memory that a step takes by the length of a list.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from rerank.lists.view import Lists
from rerank.storage.hashes import sha256_of

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"]
APART = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def make_model(lists: Lists, folder: Path) -> None:
    """A decoder of random weights, with a tokenizer made of the lists' texts."""
    import torch
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers, trainers
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    backend = Tokenizer(BPE())
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(APART), "isolated"), level])
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=8000, special_tokens=SPECIAL, initial_alphabet=level.alphabet(), show_progress=False
    )
    texts = lists.store.documents.column("text").to_pylist()
    backend.train_from_iterator([*texts, *["yes no"] * 9999, *["yes", "no"] * 9999], trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=SPECIAL[2], pad_token=SPECIAL[0], model_max_length=2048
    )
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_size=384,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        pad_token_id=0,
    )
    torch.manual_seed(0)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def training(lists: Path, model: Path, output: Path, steps: int, seed: int) -> list[str]:
    """The command that trains."""
    words = ["--data", "ListsData", "--data.train", str(lists), "--data.validation_share", "0"]
    words += ["--model", "Decoder", "--model.name", str(model), "--model.template", "qwen3-reranker"]
    words += ["--model.lora.rank", "16", "--model.document_length", "64", "--model.query_length", "32"]
    words += ["--sampler", "PositivesNegatives", "--sampler.positives", "1", "--sampler.negatives", "3"]
    words += [
        "--loss",
        "SoftmaxCE",
        "--batch_size",
        "4",
        "--seed",
        str(seed),
        "--steps_per_epoch",
        str(steps),
        "--epochs",
        "1",
    ]
    words += ["--optimization.encoder_lr", "1e-2", "--precision", "fp32", "--gradient", "cached"]
    words += ["--checkpoint_every", "20", "--tracker", "[]", "--output", str(output)]
    return [
        sys.executable,
        "-c",
        "import sys; from rerank.commands.cli import main; sys.exit(main(sys.argv[1:]))",
        "train",
        *words,
    ]


def losses(run: Path) -> np.ndarray:
    """The loss of every step."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return np.array([line["loss"] for line in lines if "loss" in line])


def memory(lists: Lists, model: Path, lengths: list[int]) -> dict[int, float]:
    """Bytes that graphs hold at most while a list of each length goes through a step with ``gradient: cached``."""
    import torch

    from rerank import Decoder, LoRA
    from rerank.kernels.memory import kept
    from rerank.training.gradient import Chunked, backpropagate

    scorer = Decoder(str(model), template="qwen3-reranker", lora=LoRA(), document_length=64, query_length=32)
    inputs, found = scorer.inputs(lists), {}
    for length in lengths:
        rows = np.arange(lists.starts[0], lists.starts[0] + length)
        pairs = Chunked(scorer, inputs, rows, np.zeros(1, np.int64), 2048, "fp32", torch.device("cpu"))
        with kept(scorer) as count:
            backpropagate("cached", pairs, lambda scores: scores.logsumexp(0))
        found[length] = count.peak / 1e6
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lists", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--queries", type=int, default=16, help="lists that are trained on, the first ones")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    options = parser.parse_args()
    lists = Lists.open(options.lists)
    model, few = options.output / "model", options.output / "lists"
    if not model.is_dir():
        make_model(lists, model)
        lists.select(np.arange(options.queries)).save(few)
    for seed in options.seeds:
        run = options.output / f"seed-{seed}"
        subprocess.run(training(few, model, run, options.steps, seed), check=True)
        first, last = losses(run)[: options.steps // 5], losses(run)[-options.steps // 5 :]
        error = np.sqrt(first.var(ddof=1) / len(first) + last.var(ddof=1) / len(last))
        print(f"seed {seed}: loss {first.mean():.3f}, then {last.mean():.3f}, standard error {error:.3f}", flush=True)
    whole, killed = options.output / f"seed-{options.seeds[0]}", options.output / "killed"
    command = training(few, model, killed, options.steps, options.seeds[0])
    process = subprocess.Popen(command)
    while process.poll() is None and not (killed / "checkpoints" / "step-00000040").is_dir():
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    print(f"killed after {len(losses(killed))} steps")
    subprocess.run(command, check=True)
    weights = [sha256_of(run / "best" / "adapter_model.safetensors") for run in (whole, killed)]
    print("weights the same:", weights[0] == weights[1], "losses:", bool((losses(whole) == losses(killed)).all()))
    print("MB of graphs by candidates:", memory(lists, model, [10, 20, 50, 100, 150]))


if __name__ == "__main__":
    main()
