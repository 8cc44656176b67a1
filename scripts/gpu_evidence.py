"""Check and time the library on a GPU, in one command of less than ten minutes.

    python scripts/gpu_evidence.py --output evidence/h100.md [--minutes 9] [--only scoring training]
    python scripts/gpu_evidence.py --dry-run [--output FILE]

The report is Markdown for ``docs/``. Every section runs in its own process with its own time limit, the most valuable
first, and the report is rewritten after each. A section that fails is reported with its last lines, and the exit
status is 1. Models are random, of the sizes of the models that they are named after, and pairs are token ids, so
torch, Transformers and Accelerate are enough; rerank need not be installed. The tests also need pytest, pandas and
PyArrow, and LoRA needs peft; sections without their packages say so and do not fail. ``--dry-run`` runs everything
small on any device; ``bench/text.py --random base`` compares with sentence-transformers. *Of the peak* is the number
of operations of the architecture's products and attention (times three in training), divided by the rate of a large
product in bf16 in the same process.
"""

# ruff: noqa: E402, since rerank may not be installed

from __future__ import annotations

import argparse
import copy
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts" / "bench"), str(ROOT)]

from common import best_of
from models import SHAPES, need_no_arrow, operations, product_rate, random_model, ready_lists, tiny, tokens_of, whole

need_no_arrow()

import rerank.losses
from rerank.models.scorer import score_lists
from rerank.training.accumulate import (
    UNLIMITED,
    GradientAccumulator,
    MemoryLimits,
    ScoringModule,
    graph_bytes,
    tokens_that_fit,
)
from rerank.training.batches import Targets
from rerank.training.launch import make_accelerator

LOSSES = ("SmoothINDCG", "ApproxNDCG", "NeuralNDCG", "LambdaLoss", "RankNet", "ListMLE", "ListNet")

TAIL = 1500
"""Characters of a failed section's last error output in the report."""

NOT_INSTALLED = 3
"""Exit status of a section whose packages are not installed."""


def need(*modules: str) -> None:
    """End a section if a package that it needs is not installed."""
    for name in modules:
        if find_spec(name) is None or isinstance(sys.modules.get(name), MagicMock):
            print(f"Not installed: {name}.")
            sys.exit(NOT_INSTALLED)


class Here(NamedTuple):
    """Device, folder and sizes of a section."""

    device: torch.device
    dry: bool
    folder: Path

    def of(self, small: Any, large: Any) -> Any:
        """Choose between the sizes of a dry and a full run."""
        return small if self.dry else large

    def seconds(self, work: Callable[[], Any]) -> float:
        """Return the best time of some rounds, after one that is not timed."""

        def done() -> None:
            work()
            self.wait()

        done()
        return best_of({"work": done}, self.of(1, 4))["work"]

    def wait(self) -> None:
        """Wait until the device has finished its work."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def model(self, shape: str, dropout: float = 0.0, lora: Any = None, **settings: Any) -> Any:
        """Make a model of random weights on the device."""
        from rerank.models.text.cross_encoder import CrossEncoder
        from rerank.models.text.decoder import Decoder

        folder = self.folder / shape
        if not folder.is_dir():
            random_model(shape, folder, **settings | self.of(tiny(shape), {}))
        given: dict[str, Any] = {"query_length": 32, "document_length": 256, "dropout": dropout}
        if SHAPES[shape][0] != "qwen3":
            return CrossEncoder(str(folder), **given).to(self.device)
        return Decoder(str(folder), head="hf", lora=lora, **given).to(self.device)

    def pairs(self, model: Any, queries: int, depth: int) -> tuple[Any, Any]:
        """Make lists of pairs of about 270 tokens, two relevant ones in each, and their token ids."""
        lists, rng = ready_lists(queries, depth), np.random.default_rng(0)
        mean, most = self.of((20, 40), (255, 256))
        lengths = np.clip(rng.normal(mean, mean / 6, lists.size), 4, most).astype(int)
        asked = [rng.integers(4, 1000, 12) for _ in range(queries)]
        texts = [rng.integers(4, 1000, length) for length in lengths]
        return lists, model.token_inputs(tokens_of(asked, texts), lists.store.query, lists.store.document)


class Work(NamedTuple):
    """Work to time, with its number of pairs and the operations that the architecture needs for them."""

    once: Callable[[], Any]
    pairs: int
    needed: float


def scoring_of(here: Here, model: Any, precision: Any, pairs: tuple[int, int]) -> Work:
    """Time the scoring of lists of pairs."""
    lists, inputs = here.pairs(model, *pairs)
    needed = operations(model.network, inputs.lengths(lists.row_numbers))
    return Work(lambda: score_lists(model, inputs, lists, precision=precision), lists.size, needed)


def training_of(here: Here, model: Any, precision: Any, pairs: tuple[int, int], gradient: Any = "auto") -> Work:
    """Time a training step on lists of pairs."""
    lists, inputs = here.pairs(model, *pairs)
    model.train()
    fits, _ = tokens_that_fit(model, inputs, lists, np.arange(len(lists)), precision)
    limits = MemoryLimits(min(model.budget, fits), fits)
    step, groups = accumulator(model, inputs, lists, precision, limits, gradient), whole(lists)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-5, fused=True)

    def train() -> None:
        step.accumulate(groups, 1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return Work(train, lists.size, 3 * operations(model.network, inputs.lengths(lists.row_numbers)))


def accumulator(
    model: Any, inputs: Any, lists: Any, precision: Any, limits: MemoryLimits, gradient: Any = "full"
) -> GradientAccumulator:
    """Build the accumulator of a training run with ListNet."""
    accelerator, targets = make_accelerator(precision), Targets(lists, rerank.losses.ListNet())
    accelerator.state.device, accelerator.scaler = model.network.device, None  # the model's own, and its true gradient
    forward = accelerator.prepare(ScoringModule(model))
    return GradientAccumulator(accelerator, forward, inputs, targets, limits, gradient=gradient)


def gradient_of(model: Any) -> torch.Tensor:
    """Concatenate all gradients."""
    return torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None])


def scores_and_gradient(
    here: Here, model: Any, device: torch.device, precision: Any
) -> tuple[np.ndarray, torch.Tensor]:
    """Compute scores and gradient of four lists with a copy of the model on a device."""
    model = copy.deepcopy(model).to(device)
    lists, inputs = here.pairs(model, 4, 10)  # which are laid out for the device
    scores = score_lists(model, inputs, lists, precision=precision)
    step = accumulator(model.train(), inputs, lists, precision, MemoryLimits(model.budget))
    step.accumulate(whole(lists), 1)
    return scores, gradient_of(model).cpu()


def agreement(here: Here) -> Iterator[str]:
    """Scores and the gradient of a step, on the device and on the CPU."""
    yield "| | scores, of their spread | gradient, of its length |\n|---|---|---|"
    off = []
    for shape in ("MiniLM-L6", "ModernBERT-base", "Qwen3, 8 of 0.6B's 28 layers"):
        model = here.model(shape, num_hidden_layers=3, initializer_range=0.1).cpu()
        expected, full = scores_and_gradient(here, model, torch.device("cpu"), "fp32")
        for precision in ("fp32", "bf16", "fp16"):
            scores, gradient = scores_and_gradient(here, model, here.device, precision)
            apart = float(np.abs(scores - expected).max() / expected.std())
            turned = float((gradient - full).norm() / full.norm())
            yield f"| {shape}, {precision} | {apart:.1e} | {turned:.1e} |"
            limit = 1e-2 if precision == "fp32" else 0.5
            off += [f"{shape} {precision}"] if not (apart < limit and turned < limit) else []
    if off:
        raise SystemExit(f"too far from the CPU: {', '.join(off)}")


def rows_of(
    here: Here, shape: str, queries: int, precision: Any, lines: list[tuple[Any, ...]], lora: Any = None
) -> Iterator[str]:
    """Yield a table of rates; training takes a sixth of the lists. A line is (work, dropout, gradient)."""
    peak = product_rate(here.device, here.of(256, 8192))
    yield f"{shape}, {precision}; a product reaches {peak / 1e12:.1f} TFLOP/s.\n"
    yield "| work | dropout | gradient | pairs/s | of the peak | GB at most |\n|---|---|---|---|---|---|"
    for work, dropout, gradient in lines:
        lists = here.of((2, 5), (queries if work == "scoring" else queries // 6, 50))
        model = here.model(shape, dropout, lora)
        if work == "scoring":
            done = scoring_of(here, model, precision, lists)
        else:
            done = training_of(here, model, precision, lists, gradient)
        if here.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        seconds = here.seconds(done.once)
        most = f"{torch.cuda.max_memory_allocated() / 1e9:.1f}" if here.device.type == "cuda" else ""
        rates = f"{done.pairs / seconds:.0f} | {done.needed / seconds / peak:.0%}"
        yield f"| {work} | {dropout or ''} | {gradient} | {rates} | {most} |"


def scoring(here: Here) -> Iterator[str]:
    """MiniLM's rates of scoring ready tokens."""
    yield from rows_of(here, "MiniLM-L6", 1000, "bf16", [("scoring", 0, "")])


def training(here: Here) -> Iterator[str]:
    """MiniLM's rates of training steps."""
    lines = [("training", 0.1, "auto"), ("training", 0.0, "auto"), ("training", 0.1, "cached")]
    yield from rows_of(here, "MiniLM-L6", 240, "bf16", lines)


def rates(shape: str, queries: int) -> Callable[[Here], Iterator[str]]:
    """Make a section for another model."""

    def section(here: Here) -> Iterator[str]:
        lines = [("scoring", 0, ""), ("training", 0.1, "auto"), ("training", 0.1, "cached")]
        yield from rows_of(here, shape, queries, "bf16", lines)

    section.__doc__ = f"Rates of scoring and of training steps, of {shape}'s sizes."
    return section


def lora(here: Here) -> Iterator[str]:
    """Rates of training steps that change low-rank additions to a decoder alone."""
    need("peft")
    from rerank.models.text.decoder import LoRA

    lines = [("training", 0, mode) for mode in ("auto", "cached")]
    yield from rows_of(here, "Qwen3, 8 of 0.6B's 28 layers", 40, "bf16", lines, LoRA())


def profiled(here: Here) -> Iterator[str]:
    """Kernels by their share of the time of scoring and of a step, MiniLM in bf16."""
    on_gpu, kinds = here.device.type == "cuda", torch.profiler.ProfilerActivity
    for make, queries in ((scoring_of, 240), (training_of, 40)):
        work = make(here, here.model("MiniLM-L6", 0.1), "bf16", here.of((2, 5), (queries, 50)))
        seconds = here.seconds(work.once)
        with torch.profiler.profile(activities=[kinds.CUDA if on_gpu else kinds.CPU]) as found:
            work.once()
            here.wait()
        events = [(e.self_device_time_total if on_gpu else e.self_cpu_time_total, e) for e in found.key_averages()]
        events = sorted([event for event in events if event[0]], key=lambda event: -event[0])
        yield f"{work.pairs} pairs, {make.__name__.removesuffix('_of')}: {1e3 * seconds:.1f} ms, of them"
        yield f"{sum(taken for taken, _ in events) / 1e3:.1f} ms in {sum(e.count for _, e in events)} kernels.\n"
        yield "| kernel | launches | ms |\n|---|---|---|"
        for taken, e in events[:15]:
            yield f"| `{e.key[:100].replace('|', ' ')}` | {e.count} | {taken / 1e3:.2f} |"
        yield ""


def memory(here: Here) -> Iterator[str]:
    """Memory per token of a kept graph, estimated and allocated; and a step with too little memory."""
    model = here.model("MiniLM-L6").train()
    lists, inputs = here.pairs(model, *here.of((2, 5), (16, 50)))
    tokens = int(inputs.lengths(lists.row_numbers).sum())
    each = graph_bytes(model, inputs, lists, "bf16")
    yield f"A token's graph is taken to keep {each / 1e3:.1f} kB."
    if here.device.type != "cuda":
        yield "\nThe rest needs a GPU."
        return

    def step(limits: MemoryLimits, gradient: Any) -> tuple[float, torch.Tensor]:
        model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        accumulator(model, inputs, lists, "bf16", limits, gradient).accumulate(whole(lists), 1)
        return (torch.cuda.max_memory_allocated() - before) / 1e9, gradient_of(model)

    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    score_lists(model, inputs, lists, precision="bf16", budget=65_536)
    most = torch.cuda.max_memory_allocated() - before
    yield f"\nScoring takes {most / 65_536 / 1e3:.1f} kB a token."
    most, expected = step(MemoryLimits(65_536), "full")
    full, _ = step(MemoryLimits(tokens + 1), "full")
    cached, _ = step(MemoryLimits(8192), "cached")
    yield f"\nAt most, beside the weights: {full:.2f} GB with the graph of {tokens} tokens"
    yield f"({1e6 * full / tokens:.1f} kB each), {most:.2f} GB of 65,536 at a time, {cached:.2f} GB cached with 8,192."
    total = torch.cuda.get_device_properties(here.device).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 0.6e9 * most) / total)
    limits = MemoryLimits(65_536)
    _, found = step(limits, "auto")
    off = float((found - expected).norm() / expected.norm())
    yield "\nWith 0.6 of the second, memory ran out, and the step went on with the graph of up to"
    yield f"{limits.full_tokens} tokens and chunks of {limits.token_budget}; its gradient is {off:.1e} off."
    if limits.full_tokens == UNLIMITED:
        raise SystemExit("memory did not run out")
    if off > 0.1:
        raise SystemExit("its gradient is another")


def gpu_tests(here: Here) -> Iterator[str]:
    """Tests that need a GPU; without one, they are collected only."""
    need("pytest", "pandas", "pyarrow")
    # the file whose tests are marked gpu alone: others import more than a GPU's machine has
    words = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-m", "gpu", "-p", "no:cacheprovider"]
    words += ["tests/training/test_gpu.py", *["--collect-only"] * (here.device.type != "cuda")]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    kept = [line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))] + lines[-1:]
    yield "```\n" + "\n".join(kept) + "\n```"
    if done.returncode:
        raise SystemExit(f"pytest: exit status {done.returncode}")


def losses(here: Here) -> Iterator[str]:
    """Milliseconds of each loss with its gradient, by lists and their length."""
    sizes = here.of([(2, 10)], [(8, 50), (64, 240), (16, 1000), (1, 5000)])
    yield f"| loss, ms | {' | '.join(f'{batch} × {length}' for batch, length in sizes)} |"
    yield "|---|" + "---|" * len(sizes)
    for name in LOSSES:
        loss = getattr(rerank.losses, name)()
        milliseconds = [f"{1e3 * loss_seconds(here, loss, *size):.2f}" for size in sizes]
        yield f"| {name} | {' | '.join(milliseconds)} |"


def loss_seconds(here: Here, loss: rerank.losses.Loss, batch: int, length: int) -> float:
    """Time a loss with its gradient."""
    scores = torch.randn(batch, length, device=here.device, requires_grad=True)
    labels = torch.randint(0, 3, (batch, length), device=here.device).float()
    return here.seconds(lambda: loss(scores, labels).backward())


class Section(NamedTuple):
    """A part of the report, with its time limit in seconds."""

    work: Callable[[Here], Iterator[str]]
    limit: float


SECTIONS = {
    "agreement": Section(agreement, 90),
    "scoring": Section(scoring, 90),
    "training": Section(training, 90),
    "tests": Section(gpu_tests, 150),
    "BERT-base": Section(rates("BERT-base", 200), 90),
    "ModernBERT": Section(rates("ModernBERT-base", 100), 90),
    "decoder": Section(rates("Qwen3, 8 of 0.6B's 28 layers", 40), 90),
    "profile": Section(profiled, 60),
    "memory": Section(memory, 60),
    "lora": Section(lora, 60),
    "losses": Section(losses, 60),
}
"""The most valuable first."""


def run(name: str, options: argparse.Namespace, limit: float, home: str) -> tuple[str, str]:
    """Run a section in its own process; return its status and its output."""
    words = [sys.executable, __file__, "--section", name, *["--dry-run"] * options.dry_run]
    given = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "0"}
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        environment = given | {"RERANK_HOME": home} | os.environ
        process = subprocess.Popen(words, stdout=out, stderr=err, env=environment, start_new_session=True)
        try:
            status = ending(process.wait(limit))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # it and what it started
            process.wait()
            status = f"FAILED, stopped after {limit:.0f} s"
        out.seek(0)
        err.seek(0)
        text, said = out.read().strip(), err.read().strip()
    if status.startswith("FAILED"):
        text += f"\n\n```\n{said[-TAIL:]}\n```"
    return f"{status}, {time.perf_counter() - started:.0f} s", text.strip()


def ending(code: int) -> str:
    """Describe the exit status of a process."""
    if code < 0:
        more = " (out of memory?)" if code == -signal.SIGKILL else ""
        return f"FAILED, ended by {signal.Signals(-code).name}{more}"
    return {0: "ok", NOT_INSTALLED: "not done"}.get(code, f"FAILED, exit status {code}")


def alone(name: str, dry: bool, device: torch.device) -> None:
    """Run a section in this process and print its part of the report."""
    work = SECTIONS[name].work
    with tempfile.TemporaryDirectory() as folder:
        for line in work(Here(device, dry, Path(folder))):
            print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where the Markdown goes; printed, too")
    parser.add_argument("--minutes", type=float, default=9, help="all of it takes no longer")
    parser.add_argument("--limit", type=float, help="seconds of a section; its own if left out, in a dry run none")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="these sections")
    parser.add_argument("--dry-run", action="store_true", help="everything small, on a GPU or not")
    parser.add_argument("--section", choices=[*SECTIONS], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not (torch.cuda.is_available() or options.dry_run):
        parser.error("there is no GPU; --dry-run does everything small on a CPU")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if options.section:
        return alone(options.section, options.dry_run, device)
    import transformers

    name = torch.cuda.get_device_name() if device.type == "cuda" else "a CPU (dry run: no figure means anything)"
    versions = f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, Transformers {transformers.__version__}"
    report = [f"# Measured on {name}", f"{versions}; `python scripts/gpu_evidence.py`."]
    print("\n\n".join(report), flush=True)
    end, failed, home = time.perf_counter() + 60 * options.minutes, False, tempfile.TemporaryDirectory()
    for section in options.only:
        left = end - time.perf_counter()
        status, text = "left out, no time", ""
        if left > 5:
            limit = min(left, options.limit or (left if options.dry_run else SECTIONS[section].limit))
            status, text = run(section, options, limit, home.name)
        failed |= not status.startswith(("ok", "not done"))
        report.append(f"## {section}\n\n{SECTIONS[section].work.__doc__} *({status})*\n\n{text}".strip())
        print(f"\n{report[-1]}", flush=True)
        if options.output:
            options.output.parent.mkdir(parents=True, exist_ok=True)
            options.output.write_text("\n\n".join(report) + "\n", encoding="utf-8")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
