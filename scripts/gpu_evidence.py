"""What a GPU shows, in one command of less than ten minutes: it is right, how fast it is, what it takes.

    python scripts/gpu_evidence.py --output evidence/h100.md [--minutes 9] [--only scoring training]
    python scripts/gpu_evidence.py --dry-run [--output FILE]

writes Markdown for ``docs/``. Every section is a process of its own with a limit of its own, the most valuable first,
and the report is written again after each, so that nothing that was measured is lost. What failed is in the report with
the end of what it said, and the exit status is 1. Models are random, of the sizes that they are named after, and pairs
are token ids, so torch, Transformers and Accelerate are enough; rerank need not be installed. The tests also need
pytest, pandas and PyArrow, LoRA needs peft, and the comparison sentence-transformers and datasets: what is not
installed is named where it would be used, and is no failure. ``--dry-run`` does all of it small on whatever there is.
*Of the peak* is what the architecture's products and attention need (thrice in training) over what a large product in
bf16 reaches in the same process.
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
from models import SHAPES, WORDS, need_no_arrow, operations, product_rate, random_model, ready_lists, tiny, whole

need_no_arrow()

from rerank.lists.tokens import Tokens
from rerank.losses import ListNet, SmoothINDCG, load_all
from rerank.models.scorer import score_lists
from rerank.training.accumulate import GradientAccumulator, MemoryLimits
from rerank.training.forward import UNLIMITED, ScoringModule, graph_bytes, tokens_that_fit
from rerank.training.launch import make_accelerator
from rerank.training.targets import Targets

LOSSES = ("SmoothINDCG", "ApproxNDCG", "NeuralNDCG", "LambdaLoss", "RankNet", "ListMLE", "ListNet")

TAIL = 1500
"""Characters of what a failed section printed last as errors."""

NOT_INSTALLED = 3
"""The exit status of a section that needs a module which is not there."""

TO_KILL = Path("/proc/self/oom_score_adj")
"""Where Linux is told which process to end if the machine's memory runs out."""


def need(*modules: str) -> None:
    """End a section that needs more than torch, Transformers and Accelerate where it is not there."""
    for name in modules:
        if find_spec(name) is None or isinstance(sys.modules.get(name), MagicMock):
            print(f"Not installed: {name}.")
            sys.exit(NOT_INSTALLED)


class Here(NamedTuple):
    """Where a section runs, and how much of everything it takes."""

    device: torch.device
    dry: bool
    folder: Path

    def of(self, small: Any, large: Any) -> Any:
        """One of two sizes."""
        return small if self.dry else large

    def seconds(self, work: Callable[[], Any]) -> float:
        """The best of some rounds, after one that is not timed."""

        def done() -> None:
            work()
            self.wait()

        done()
        return best_of({"work": done}, self.of(1, 4))["work"]

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def model(self, shape: str, dropout: float = 0.0, lora: Any = None, **settings: Any) -> Any:
        """A model of random weights on the device."""
        from rerank.models.text.cross_encoder import CrossEncoder
        from rerank.models.text.decoder import Decoder

        folder = self.folder / shape
        if not folder.is_dir():
            random_model(shape, folder, **settings | self.of(tiny(shape), {}))
        given: dict[str, Any] = {"query_length": 32, "document_length": 256, "dropout": dropout}
        if SHAPES[shape][0] != "qwen3":
            return CrossEncoder(str(folder), **given).to(self.device)
        return Decoder(
            str(folder), head="hf", template="query: {query}\ndocument: {document}\nrelevant:", lora=lora, **given
        ).to(self.device)

    def pairs(self, model: Any, queries: int, depth: int) -> tuple[Any, Any]:
        """Lists of pairs of about 270 tokens, two relevant ones in each; and what the model reads of them."""
        lists, rng = ready_lists(queries, depth), np.random.default_rng(0)
        mean, most = self.of((20, 40), (255, 256))
        lengths = np.clip(rng.normal(mean, mean / 6, lists.size), 4, most).astype(int)
        asked = [rng.integers(4, 4 + len(WORDS), 12) for _ in range(queries)]
        texts = [rng.integers(4, 4 + len(WORDS), length) for length in lengths]
        return lists, model.token_inputs(Tokens.of(asked, texts), lists.store.query, lists.store.document)


class Work(NamedTuple):
    """What is timed, how many pairs it has, and the operations that the architecture needs for them."""

    once: Callable[[], Any]
    pairs: int
    needed: float


def scoring_of(here: Here, model: Any, precision: Any, pairs: tuple[int, int]) -> Work:
    """Scoring lists of pairs."""
    lists, inputs = here.pairs(model, *pairs)
    needed = operations(model.network, inputs.lengths(lists.row_numbers))
    return Work(lambda: score_lists(model, inputs, lists, precision=precision), lists.size, needed)


def training_of(here: Here, model: Any, precision: Any, pairs: tuple[int, int], gradient: Any = "auto") -> Work:
    """A training step on lists of pairs."""
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
    accelerator = make_accelerator(precision)
    forward = accelerator.prepare(ScoringModule(model))
    return GradientAccumulator(accelerator, forward, inputs, Targets(lists, ListNet()), limits, gradient=gradient)


def gradient_of(model: Any) -> torch.Tensor:
    """All gradients as one vector."""
    return torch.cat([p.grad.float().flatten() for p in model.parameters() if p.grad is not None])


def scores_and_gradient(
    here: Here, model: Any, device: torch.device, precision: Any
) -> tuple[np.ndarray, torch.Tensor]:
    """A copy's on a device, of four lists."""
    model = copy.deepcopy(model).to(device)
    lists, inputs = here.pairs(model, 4, 10)  # which are laid out for the device
    scores = score_lists(model, inputs, lists, precision=precision)
    step = accumulator(model.train(), inputs, lists, precision, MemoryLimits(model.budget))
    step.accumulate(whole(lists), 1)
    return scores, gradient_of(model).cpu()


def agreement(here: Here) -> Iterator[str]:
    """Scores, and the gradient of a step, on the device and on the CPU."""
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
    """A table of rates, of a sixth of the lists in training; a line is (work, dropout, gradient)."""
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
    """A section on another model."""

    def section(here: Here) -> Iterator[str]:
        lines = [("scoring", 0, ""), ("training", 0.1, "auto"), ("training", 0.1, "cached")]
        yield from rows_of(here, shape, queries, "bf16", lines)

    section.__doc__ = f"Rates of scoring and of training steps, of {shape}'s sizes."
    return section


def lora(here: Here) -> Iterator[str]:
    """Rates of training steps that change low-rank additions to a decoder alone."""
    need("peft")
    from rerank.models.text.adapter import LoRA

    lines = [("training", 0, mode) for mode in ("auto", "cached")]
    yield from rows_of(here, "Qwen3, 8 of 0.6B's 28 layers", 40, "bf16", lines, LoRA())


def profiled(here: Here) -> Iterator[str]:
    """Which kernels take the time of scoring and of a step, MiniLM in bf16; the rest of the time it waits."""
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


def precisions(here: Here) -> Iterator[str]:
    """MiniLM in every precision."""
    for precision in ("fp16", "fp32"):
        lines = [("scoring", 0, ""), ("training", 0.1, "auto")]
        yield from rows_of(here, "MiniLM-L6", 200, precision, lines)
        yield ""


def memory(here: Here) -> Iterator[str]:
    """What a token's graph keeps, by our estimate and as allocated; and a step that has too little memory."""
    model = here.model("MiniLM-L6").train()
    lists, inputs = here.pairs(model, *here.of((2, 5), (16, 50)))
    tokens = int(inputs.lengths(lists.row_numbers).sum())
    each = graph_bytes(model, inputs, lists, np.arange(len(lists)), "bf16")
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
    yield f"\nScoring takes {most / 65_536 / 1e3:.1f} kB a token, by what its budget is chosen"
    yield f"{64 * model.network.config.hidden_size / 1e3:.1f} kB."
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
    """The tests that need a GPU; where there is none, that they can be collected."""
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


def peers(here: Here) -> Iterator[str]:
    """Pairs a second beside Transformers and sentence-transformers, MiniLM in bf16; texts are tokenised as well."""
    name = str(here.folder / "MiniLM-L6")
    ours = here.model("MiniLM-L6")
    yield "| work | pairs/s |\n|---|---|"
    work = scoring_of(here, ours, "bf16", here.of((3, 6), (200, 50)))
    yield f"| scoring ready tokens, rerank | {work.pairs / here.seconds(work.once):.0f} |"
    missing = ["flash_attn"] * (find_spec("flash_attn") is None)
    attentions = ["sdpa"] if missing else ["sdpa", "flash_attention_2"]
    for attention in attentions:
        once = transformers_alone(here, name, ours, attention)
        yield f"| ready batches of 256 by length, Transformers, {attention} | {work.pairs / here.seconds(once):.0f} |"
    rng, (queries, depth, words) = np.random.default_rng(0), here.of((3, 6, 20), (40, 50, 240))
    asked = [" ".join(rng.choice(WORDS, 6)) for _ in range(queries)]
    pairs = [
        (asked[i // depth], " ".join(rng.choice(WORDS, max(4, int(rng.normal(words, words / 6))))))
        for i in range(queries * depth)
    ]
    yield f"| scoring texts, rerank | {len(pairs) / here.seconds(lambda: ours.predict(pairs)):.0f} |"
    try:
        from sentence_transformers import CrossEncoder as Theirs

        for attention in attentions:
            how = {"dtype": "bfloat16", "attn_implementation": attention}
            theirs = Theirs(name, num_labels=1, device=str(here.device), max_length=291, model_kwargs=how)
            seconds = here.seconds(lambda: theirs.predict(pairs, batch_size=256, show_progress_bar=False))  # noqa: B023
            yield f"| scoring texts, sentence-transformers, {attention}, batches of 256 | {len(pairs) / seconds:.0f} |"
        yield from peers_training(here, name, pairs, depth)
    except ModuleNotFoundError as error:
        missing.append(str(error.name))
    if missing:
        yield f"\nNot installed, and not compared with: {', '.join(missing)}."


def transformers_alone(here: Here, name: str, ours: Any, attention: str) -> Callable[[], Any]:
    """Scores the pairs of :func:`peers` by the architecture's own code, padded and sent before the clock runs."""
    from transformers import AutoModelForSequenceClassification

    how: dict[str, Any] = {"dtype": torch.bfloat16, "attn_implementation": attention}
    network = AutoModelForSequenceClassification.from_pretrained(name, **how).to(here.device).eval()
    lists, inputs = here.pairs(ours, *here.of((3, 6), (200, 50)))
    padded = getattr(inputs, "inner", inputs)
    order = lists.row_numbers[np.argsort(-inputs.lengths(lists.row_numbers), kind="stable")]
    parts = [order[i : i + 256] for i in range(0, len(order), 256)]
    batches = [padded.collate(part, np.zeros(1, np.int64)) for part in parts]
    sent = [{name: value.to(here.device) for name, value in batch.items()} for batch in batches]

    def score() -> torch.Tensor:
        with torch.inference_mode():
            return torch.cat([network(**batch).logits for batch in sent]).float().cpu()

    return score


def peers_training(here: Here, name: str, pairs: list[tuple[str, str]], depth: int) -> Iterator[str]:
    """sentence-transformers' training on lists of texts."""
    import pandas as pd
    from text import their_training

    from rerank.lists.view import Lists

    frame = pd.DataFrame(pairs, columns=["query", "text"])
    frame["query_id"], frame["doc_id"] = [f"q{i // depth}" for i in range(len(pairs))], frame.index.astype(str)
    lists = Lists.from_dataframe(frame.assign(grade=(frame.index % depth < 2).astype(int)))
    how: dict[str, Any] = {"threads": torch.get_num_threads(), "model": name, "query": 32, "length": 256}
    options = argparse.Namespace(**how, device=str(here.device))
    rate = (lists.size - int(lists.lengths[0])) / their_training(options, lists, 0.1, here.device.type == "cuda")
    yield f"| training, sentence-transformers LambdaLoss, dropout 0.1 | {rate:.0f} |"


def losses(here: Here) -> Iterator[str]:
    """Milliseconds of each loss with its gradient, by lists and their length."""
    sizes = here.of([(2, 10)], [(8, 50), (64, 240), (16, 1000), (1, 5000)])
    yield f"| loss, ms | {' | '.join(f'{batch} × {length}' for batch, length in sizes)} |"
    yield "|---|" + "---|" * len(sizes)
    for name in LOSSES:
        loss, cells = load_all()[name](), []
        for batch, length in sizes:
            scores = torch.randn(batch, length, device=here.device, requires_grad=True)
            labels = torch.randint(0, 3, (batch, length), device=here.device).float()
            cells.append(f"{1e3 * here.seconds(lambda: loss(scores, labels).backward()):.2f}")  # noqa: B023
        yield f"| {name} | {' | '.join(cells)} |"


def compiled(here: Here) -> Iterator[str]:
    """What compiling all that is between MiniLM's attentions would gain (rerank compiles nothing), in bf16."""
    backend = "inductor" if here.device.type == "cuda" else "aot_eager"
    yield "| work | ms | compiled, ms | scores apart, of their spread |\n|---|---|---|---|"
    for make, queries in ((scoring_of, 240), (training_of, 40)):
        size = here.of((2, 5), (queries, 50))
        milliseconds, scores = [], []
        for compiles in (False, True):
            model = here.model("MiniLM-L6", 0.1)
            for layer in model.network.bert.encoder.layer if compiles else []:
                for part in (layer.attention.output, layer.intermediate, layer.output):
                    part.compile(backend=backend, dynamic=True)
            lists, inputs = here.pairs(model, *here.of((2, 5), (4, 10)))
            scores.append(score_lists(model, inputs, lists, precision="bf16"))  # before steps, which drop at random
            milliseconds.append(f"{1e3 * here.seconds(make(here, model, 'bf16', size).once):.1f}")
        apart = float(np.abs(scores[1] - scores[0]).max() / scores[0].std())
        yield f"| {make.__name__.removesuffix('_of')} | {' | '.join(milliseconds)} | {apart:.1e} |"
        if not apart < 0.5:
            raise SystemExit("what is compiled gives other scores")


def features(here: Here) -> Iterator[str]:
    """Lists of 100 feature vectors a second, by a network and SmoothI."""
    count, size = here.of((16, 8), (512, 136))
    vectors = torch.randn(count, 100, size, device=here.device)
    labels = torch.randint(0, 5, vectors.shape[:2], device=here.device).float()
    yield "| network | lists/s |\n|---|---|"
    for hidden in (64, 512):
        network = torch.nn.Sequential(torch.nn.Linear(size, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1))
        network, loss = network.to(here.device), SmoothINDCG()
        seconds = here.seconds(lambda: loss(network(vectors)[..., 0], labels).backward())  # noqa: B023
        yield f"| {size}-{hidden}-1 | {count / seconds:.0f} |"


class Section(NamedTuple):
    """A part of the report, and the seconds that it may take."""

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
    "precisions": Section(precisions, 60),
    "memory": Section(memory, 60),
    "lora": Section(lora, 60),
    "losses": Section(losses, 60),
    "peers": Section(peers, 120),
    "features": Section(features, 30),
    "compiled": Section(compiled, 120),
}
"""The most valuable first."""


def run(name: str, options: argparse.Namespace, limit: float, home: str) -> tuple[str, str]:
    """A section in a process of its own: how it ended, and what it printed."""
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
    """How a process ended, in words."""
    if code < 0:
        more = " (out of memory?)" if code == -signal.SIGKILL else ""
        return f"FAILED, ended by {signal.Signals(-code).name}{more}"
    return {0: "ok", NOT_INSTALLED: "not done"}.get(code, f"FAILED, exit status {code}")


def alone(name: str, dry: bool, device: torch.device) -> None:
    """The process of a section: it prints its part of the report."""
    if TO_KILL.exists():
        TO_KILL.write_text("1000")  # this one, and neither the process that writes the report nor any other
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
