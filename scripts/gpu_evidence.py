"""What a GPU shows, in one command of less than ten minutes: tests, scoring, training, losses and features.

    python scripts/gpu_evidence.py --output evidence/h100.md [--minutes 9]
    python scripts/gpu_evidence.py --dry-run [--output FILE]

writes Markdown for ``docs/``: the tests that need a GPU; pairs scored and trained on a second, beside
sentence-transformers on the same texts; kernels and waits of a step; losses by batch and length; lists of features.
``--dry-run`` does all of it small on whatever there is. Texts are made up, so it needs no data, and neither Java nor
pyserini nor ir-datasets. Parts that no time is left for are named as left out.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

WORDS = ["wing", "flow", "pressure", "heat", "shock", "layer", "plate", "cone", "jet", "drag", "lift", "wave", "theory"]
LOSSES = ("SmoothINDCG", "ApproxNDCG", "NeuralNDCG", "LambdaLoss", "RankNet", "ListMLE", "ListNet")


class Sizes(Namespace):
    """How much of everything."""

    def __init__(self, dry: bool) -> None:
        super().__init__()
        self.queries, self.depth, self.words = (3, 6, 20) if dry else (24, 50, 190)
        self.scored = 18 if dry else 1200
        self.layers, self.hidden = (2, 32) if dry else (6, 384)
        self.losses = [(2, 10)] if dry else [(64, 40), (64, 240), (16, 1000), (1, 5000)]
        self.features, self.feature_lists = (8, 16) if dry else (136, 512)
        self.repeats = 1 if dry else 5


def waited(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Seconds of the best of some rounds, after one that is not timed."""
    best = np.inf
    for i in range(repeats + 1):
        if device.type == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - started) if i else best
    return float(best)


def a_model(folder: Path, sizes: Sizes) -> str:
    """A random cross-encoder of MiniLM's shape, with a vocabulary of a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=special
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **names).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30_522,
        hidden_size=sizes.hidden,
        num_hidden_layers=sizes.layers,
        num_attention_heads=max(2, sizes.hidden // 32),
        intermediate_size=4 * sizes.hidden,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    return str(folder)


def made_lists(sizes: Sizes) -> Any:
    """Lists of random words, two relevant documents in each."""
    import pandas as pd

    from rerank.lists.view import Lists

    rng = np.random.default_rng(0)
    rows = []
    for query in range(sizes.queries):
        asked = " ".join(rng.choice(WORDS, 6))
        for document in range(sizes.depth):
            text = " ".join(rng.choice(WORDS, max(4, int(rng.normal(sizes.words, sizes.words / 4)))))
            rows.append((f"q{query}", asked, f"d{query}-{document}", text, int(document < 2)))
    return Lists.from_dataframe(pd.DataFrame(rows, columns=["query_id", "query", "doc_id", "text", "grade"]))


def gpu_tests(sizes: Sizes, device: torch.device, dry: bool) -> str:
    """The tests that need a GPU; where there is none, that they can be collected."""
    root = Path(__file__).resolve().parent.parent
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
        str(root / "tests"),
    ]
    if dry:
        words[-1:] = [str(root / "tests" / "training" / "test_gpu.py"), "--collect-only"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=root)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    kept = [line for line in lines if line.startswith(("FAILED", "ERROR"))] + lines[-1:]
    return "```\n" + "\n".join(kept) + f"\n```\n\nexit status {done.returncode}"


def texts(sizes: Sizes, device: torch.device, dry: bool) -> str:
    """Pairs a second, scored and trained on."""
    from rerank.kernels.precision import resolve
    from rerank.losses import SmoothINDCG
    from rerank.models.text.cross_encoder import CrossEncoder
    from rerank.training.batches import Group
    from rerank.training.step import Gradients, Limits

    lists = made_lists(sizes)
    lines = ["| work | pairs/s | kernels |", "|---|---|---|"]
    with tempfile.TemporaryDirectory() as folder:
        name = a_model(Path(folder), sizes)
        queries, documents = (lists.store.queries.column("text"), lists.store.documents.column("text"))
        of = np.repeat(np.arange(len(lists)), lists.lengths)
        pairs = [(queries[int(q)].as_py(), documents[int(d)].as_py()) for q, d in zip(of, lists.documents, strict=True)]
        pairs = (pairs * -(-sizes.scored // len(pairs)))[: sizes.scored]
        ours = CrossEncoder(name, query_length=32, document_length=256).to(device)
        precision, _ = resolve("auto", device)
        for kernels in ("own", "torch", "auto"):
            ours._ways = None
            ways = ours.settle(precision, kernels)  # type: ignore[arg-type]
            seconds = waited(lambda: ours.predict(pairs), device, sizes.repeats)
            lines.append(f"| scoring, rerank {precision}, {kernels} | {len(pairs) / seconds:.0f} | {ways.scoring} |")
        try:
            from sentence_transformers import CrossEncoder as Theirs
        except ModuleNotFoundError:
            lines.append("| scoring, sentence-transformers | not installed | |")
        else:
            for dtype in ("float32", "bfloat16"):
                theirs = Theirs(name, num_labels=1, device=str(device), max_length=291, model_kwargs={"dtype": dtype})
                seconds = waited(lambda: theirs.predict(pairs, show_progress_bar=False), device, sizes.repeats)  # noqa: B023
                lines.append(f"| scoring, sentence-transformers {dtype} | {len(pairs) / seconds:.0f} | |")
        groups = [Group(i, np.arange(lists.offsets[i], lists.offsets[i + 1]), i) for i in range(len(lists))]
        for dropout in (0.0, 0.1):
            for kernels in ("own", "torch", "auto"):
                model = CrossEncoder(name, query_length=32, document_length=256, dropout=dropout).to(device).train()
                ways = model.settle(precision, kernels)  # type: ignore[arg-type]
                step = Gradients(model, model.inputs(lists), lists, SmoothINDCG(), precision, Limits(model.budget))
                optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

                def train(step: Any = step, optimizer: Any = optimizer) -> None:
                    step.accumulate(groups, 1)
                    optimizer.step()
                    optimizer.zero_grad(set_to_none=True)

                seconds = waited(train, device, sizes.repeats)
                taken = ways.dropped if dropout else ways.training
                lines.append(f"| training, {kernels}, dropout {dropout} | {lists.size / seconds:.0f} | {taken} |")
        lines += their_training(name, lists, sizes, device)
    return "\n".join(lines)


def their_training(name: str, lists: Any, sizes: Sizes, device: torch.device) -> list[str]:
    """sentence-transformers' trainer on the same lists."""
    from types import SimpleNamespace

    try:
        from bench_text import their_training as train
    except ModuleNotFoundError:
        return ["| training, sentence-transformers | not installed | |"]
    options = SimpleNamespace(threads=torch.get_num_threads(), model=name, query=32, length=256, device=str(device))
    seconds = train(options, lists, 0.1, device.type == "cuda")  # type: ignore[arg-type]
    pairs = lists.size - int(lists.lengths[0])
    return [f"| training, sentence-transformers LambdaLoss, dropout 0.1 | {pairs / seconds:.0f} | |"]


def counted(sizes: Sizes, device: torch.device, dry: bool) -> str:
    """Kernels and waits of a step."""
    root = Path(__file__).resolve().parent
    small = ["--lists", "2", "--depth", "6", "--layers", "2", "--hidden", "64", "--budgets", "1024"] if dry else []
    words = [sys.executable, str(root / "count_kernels.py"), *small]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def losses(sizes: Sizes, device: torch.device, dry: bool) -> str:
    """Milliseconds of each loss with its gradient."""
    from rerank.losses import load_all

    shapes = " | ".join(f"{batch} × {length}" for batch, length in sizes.losses)
    lines = [f"| loss, ms | {shapes} |", "|---|" + "---|" * len(sizes.losses)]
    for name in LOSSES:
        loss, cells = load_all()[name](), []
        for batch, length in sizes.losses:
            scores = torch.randn(batch, length, device=device, requires_grad=True)
            labels = torch.randint(0, 3, (batch, length), device=device).float()
            seconds = waited(lambda: loss(scores, labels).backward(), device, sizes.repeats)  # noqa: B023
            cells.append(f"{1e3 * seconds:.2f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def features(sizes: Sizes, device: torch.device, dry: bool) -> str:
    """Lists of feature vectors a second."""
    rng = torch.Generator().manual_seed(0)
    vectors = torch.randn(sizes.feature_lists, 100, sizes.features, generator=rng).to(device)
    labels = torch.randint(0, 5, vectors.shape[:2], generator=rng).float().to(device)
    lines = ["| network of features | lists/s |", "|---|---|"]
    from rerank.losses import SmoothINDCG

    for hidden in (64, 512):
        network = torch.nn.Sequential(
            torch.nn.Linear(sizes.features, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1)
        ).to(device)
        loss = SmoothINDCG()
        seconds = waited(lambda: loss(network(vectors)[..., 0], labels).backward(), device, sizes.repeats)  # noqa: B023
        lines.append(f"| {sizes.features}-{hidden}-1, 100 documents a list | {len(vectors) / seconds:.0f} |")
    return "\n".join(lines)


PARTS: dict[str, Callable[[Sizes, torch.device, bool], str]] = {
    "Kernels and waits of a training step": counted,
    "Texts": texts,
    "Losses": losses,
    "Features": features,
    "Tests that need a GPU": gpu_tests,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where the Markdown goes; printed, too")
    parser.add_argument("--minutes", type=float, default=9, help="no part is begun after so many")
    parser.add_argument("--dry-run", action="store_true", help="everything small, on a GPU or not")
    options = parser.parse_args()
    if not (torch.cuda.is_available() or options.dry_run):
        parser.error("there is no GPU; --dry-run does everything small on a CPU")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes, started = Sizes(options.dry_run), time.perf_counter()
    name = torch.cuda.get_device_name() if device.type == "cuda" else "a CPU (dry run: no figure means anything)"
    report = [f"# Measured on {name}", f"PyTorch {torch.__version__}, `python scripts/gpu_evidence.py`."]
    failed = False
    for title, part in PARTS.items():
        if time.perf_counter() - started > 60 * options.minutes:
            report.append(f"## {title}\n\nLeft out: no time was left.")
            continue
        try:
            text = part(sizes, device, options.dry_run)
        except Exception as error:  # the other parts are worth having
            failed, text = True, f"Failed: {type(error).__name__}: {error}"
        report.append(f"## {title}\n\n{text.strip()}")
    report.append(f"{time.perf_counter() - started:.0f} seconds in all.")
    text = "\n\n".join(report) + "\n"
    print(text)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(text, encoding="utf-8")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
