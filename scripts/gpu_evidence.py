"""What a GPU shows, in one command of less than ten minutes: it is right, how fast it is, what it takes.

    python scripts/gpu_evidence.py --output evidence/h100.md [--minutes 9] [--only scoring training]
    python scripts/gpu_evidence.py --dry-run [--output FILE]

writes Markdown for ``docs/``. Every section is a process of its own with a limit of its own, the most valuable first,
and the report is written again after each, so that nothing that was measured is lost. What failed is in the report with
the end of what it said, and the exit status is 1. Models are random, of the sizes that they are named after, and pairs
are token ids, so it needs neither data nor the hub, nor Java, pyserini, ir-datasets, ir-measures; rerank need not be
installed. pytest is for the tests; sentence-transformers and datasets, where they are there, for a comparison.
``--dry-run`` does all of it small on whatever there is. *Of the peak* is what the architecture's products and attention
need (thrice in training) over what a large product in bf16 reaches in the same process.
"""

from __future__ import annotations

import argparse
import copy
import os
import signal
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "scripts" / "bench"), str(ROOT)]  # rerank may not be installed

from models import SHAPES, WORDS, operations, product_rate, random_model, tiny  # noqa: E402

LOSSES = ("SmoothINDCG", "ApproxNDCG", "NeuralNDCG", "LambdaLoss", "RankNet", "ListMLE", "ListNet")

GPU_TESTS = ["tests/training/test_gpu.py"]
"""The files whose tests are marked ``gpu``: no other is imported, since others need more than a GPU's machine has."""

TAIL = 1500
"""Characters of what a failed section said last."""


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
        best = np.inf
        for i in range(self.of(1, 4) + 1):
            self.wait()
            started = time.perf_counter()
            work()
            self.wait()
            best = min(best, time.perf_counter() - started) if i else best
        return float(best)

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def peak(self) -> float:
        """Operations a second of a large product."""
        return product_rate(self.device, self.of(256, 8192))

    def model(self, shape: str, dropout: float = 0.0, **settings: Any) -> Any:
        """A model of random weights on the device."""
        from rerank.models.text.cross_encoder import CrossEncoder
        from rerank.models.text.decoder import Decoder

        name = random_model(shape, self.folder / shape.replace("/", " "), **settings | self.of(tiny(shape), {}))
        lengths: dict[str, Any] = {"query_length": 32, "document_length": 256, "dropout": dropout}
        decodes = SHAPES[shape][0] == "qwen3"
        model = Decoder(name, head="hf", template="plain", **lengths) if decodes else CrossEncoder(name, **lengths)
        return model.to(self.device)

    def pairs(self, model: Any, queries: int, depth: int) -> tuple[Any, Any]:
        """Lists of pairs of about 270 tokens, two relevant ones in each; and what the model reads of them."""
        import pandas as pd

        from rerank.lists.tokens import Tokens
        from rerank.lists.view import Lists

        rows = [(f"q{q}", f"d{q}-{d}", int(d < 2)) for q in range(queries) for d in range(depth)]
        frame = pd.DataFrame(rows, columns=["query_id", "doc_id", "grade"]).assign(query="q", text="t")
        lists, rng = Lists.from_dataframe(frame), np.random.default_rng(0)
        mean, most = self.of((20, 40), (255, 256))
        lengths = np.clip(rng.normal(mean, mean / 6, len(rows)), 4, most).astype(int)
        asked = [rng.integers(4, 4 + len(WORDS), 12) for _ in range(queries)]
        texts = [rng.integers(4, 4 + len(WORDS), length) for length in lengths]
        return lists, model.token_inputs(Tokens.of(asked, texts), lists.store.query, lists.store.document)


def scored(here: Here, model: Any, precision: Any, pairs: tuple[int, int], kernels: Any = "auto") -> tuple[float, ...]:
    """Pairs a second, and operations a second."""
    from rerank.models.score import score_lists

    lists, inputs = here.pairs(model, *pairs)
    model._implementations = None
    model.settle(precision, kernels)
    seconds = here.seconds(lambda: score_lists(model, inputs, lists, precision=precision))
    return lists.size / seconds, operations(model.network, inputs.lengths(lists.row_numbers)) / seconds


def trained(
    here: Here, model: Any, precision: Any, pairs: tuple[int, int], kernels: Any = "auto", gradient: Any = "auto"
) -> tuple[float, ...]:
    """Pairs a second, operations a second, and the most memory."""
    from rerank.losses import ListNet
    from rerank.training.batches import ListSample
    from rerank.training.budget import tokens_that_fit
    from rerank.training.step import Gradients, MemoryLimits

    lists, inputs = here.pairs(model, *pairs)
    model._implementations = None
    model.settle(precision, kernels)
    model.train()
    fits, _ = tokens_that_fit(model, inputs, lists, np.arange(len(lists)), precision)
    limits = MemoryLimits(min(model.budget, fits or model.budget), fits)
    step = Gradients(model, inputs, lists, ListNet(), precision, limits, gradient=gradient)
    groups = [ListSample(i, np.arange(lists.offsets[i], lists.offsets[i + 1]), i) for i in range(len(lists))]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def train() -> None:
        step.accumulate(groups, 1)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    if here.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = here.seconds(train)
    most = torch.cuda.max_memory_allocated() if here.device.type == "cuda" else np.nan
    needed = 3 * operations(model.network, inputs.lengths(lists.row_numbers))
    return lists.size / seconds, needed / seconds, most / 1e9


def agreement(here: Here) -> Iterator[str]:
    """Scores, and the gradient of a step, on the device and on the CPU."""
    from rerank.losses import ListNet
    from rerank.models.score import score_lists
    from rerank.training.batches import ListSample
    from rerank.training.step import Gradients, MemoryLimits

    yield "| | scores, of their spread | gradient, of its length |\n|---|---|---|"
    off = []
    for shape in ("MiniLM-L6", "ModernBERT-base"):
        settings = {"num_hidden_layers": 3, "initializer_range": 0.1}
        plain = here.model(shape, **settings).cpu()
        lists, inputs = here.pairs(plain, 4, 10)
        groups = [ListSample(i, np.arange(lists.offsets[i], lists.offsets[i + 1]), i) for i in range(len(lists))]
        found = {}
        for name, device, precision in (
            ("cpu", torch.device("cpu"), "fp32"),
            ("fp32", here.device, "fp32"),
            ("bf16", here.device, "bf16"),
            ("fp16", here.device, "fp16"),
        ):
            model = copy.deepcopy(plain).to(device)
            model.settle(precision, "torch" if name == "cpu" else "own")
            scores = score_lists(model, inputs, lists, precision=precision)
            step = Gradients(model.train(), inputs, lists, ListNet(), precision, MemoryLimits(model.budget))
            step.accumulate(groups, 1)
            gradient = torch.cat([p.grad.float().cpu().flatten() for p in model.parameters() if p.grad is not None])
            found[name] = scores, gradient
            if name != "cpu":
                expected, full = found["cpu"]
                apart = float(np.abs(scores - expected).max() / expected.std())
                turned = float((gradient - full).norm() / full.norm())
                yield f"| {shape}, {name} | {apart:.1e} | {turned:.1e} |"
                limit = 1e-2 if name == "fp32" else 0.5
                off += [f"{shape} {name}"] if not (apart < limit and turned < limit) else []
    if off:
        raise SystemExit(f"too far from the CPU: {', '.join(off)}")


def rows_of(here: Here, shape: str, queries: int, precision: Any, lines: list[tuple[Any, ...]]) -> Iterator[str]:
    """A table of rates, of a sixth of the lists in training; a line is (work, kernels, dropout, gradient)."""
    peak = here.peak()
    yield f"{shape}, {precision}; a product reaches {peak / 1e12:.1f} TFLOP/s.\n"
    yield "| work | kernels | dropout | gradient | pairs/s | of the peak | GB at most |\n|---|---|---|---|---|---|---|"
    for work, kernels, dropout, gradient in lines:
        lists = here.of((2, 5), (queries if work == "scoring" else queries // 6, 50))
        model = here.model(shape, dropout)
        if work == "scoring":
            rate, done = scored(here, model, precision, lists, kernels)
            taken, most = model._implementations[1].scoring, np.nan
        else:
            rate, done, most = trained(here, model, precision, lists, kernels, gradient)
            taken = getattr(model._implementations[1], "dropped" if dropout else "training")
        memory = "" if np.isnan(most) else f"{most:.1f}"
        named = kernels if kernels == taken else f"{kernels}: {taken}"
        yield f"| {work} | {named} | {dropout or ''} | {gradient} | {rate:.0f} | {done / peak:.0%} | {memory} |"


def scoring(here: Here) -> Iterator[str]:
    """MiniLM's rates of scoring ready tokens, and those of our attention and PyTorch's."""
    lines = [("scoring", kernels, 0, "") for kernels in ("auto", "own", "torch")]
    yield from rows_of(here, "MiniLM-L6", 1000, "bf16", lines)


def training(here: Here) -> Iterator[str]:
    """MiniLM's rates of training steps."""
    lines = [("training", kernels, rate, "auto") for rate in (0.1, 0.0) for kernels in ("auto", "own", "torch")]
    yield from rows_of(here, "MiniLM-L6", 240, "bf16", [*lines, ("training", "auto", 0.1, "cached")])


def rates(shape: str, queries: int) -> Callable[[Here], Iterator[str]]:
    """A section on another model."""

    def section(here: Here) -> Iterator[str]:
        lines = [("scoring", "auto", 0, ""), ("training", "auto", 0.1, "auto"), ("training", "auto", 0.1, "cached")]
        yield from rows_of(here, shape, queries, "bf16", lines)

    section.__doc__ = f"Rates of scoring and of training steps, of {shape}'s sizes."
    return section


def precisions(here: Here) -> Iterator[str]:
    """MiniLM in every precision."""
    for precision in ("fp16", "fp32"):
        lines = [("scoring", "auto", 0, ""), ("training", "auto", 0.1, "auto")]
        yield from rows_of(here, "MiniLM-L6", 200, precision, lines)
        yield ""


def memory(here: Here) -> Iterator[str]:
    """What a token's graph keeps, by our estimate and as allocated; and a step that has too little memory."""
    from rerank.losses import ListNet
    from rerank.training.batches import ListSample
    from rerank.training.budget import bytes_per_token
    from rerank.training.step import Gradients, MemoryLimits

    model = here.model("MiniLM-L6").train()
    lists, inputs = here.pairs(model, *here.of((2, 5), (16, 50)))
    model.settle("bf16", "own")
    groups = [ListSample(i, np.arange(lists.offsets[i], lists.offsets[i + 1]), i) for i in range(len(lists))]
    tokens = int(inputs.lengths(lists.row_numbers).sum())
    each = bytes_per_token(model, inputs, lists, np.arange(len(lists)), "bf16")
    yield f"A token's graph is taken to keep {each / 1e3:.1f} kB."
    if here.device.type != "cuda":
        yield "\nThe rest needs a GPU."
        return

    def step(limits: MemoryLimits, gradient: Any) -> tuple[float, torch.Tensor]:
        model.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        Gradients(model, inputs, lists, ListNet(), "bf16", limits, gradient=gradient).accumulate(groups, 1)
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        return (torch.cuda.max_memory_allocated() - before) / 1e9, gradient

    most, expected = step(MemoryLimits(65_536), "full")
    whole, _ = step(MemoryLimits(tokens + 1), "full")
    cached, _ = step(MemoryLimits(8192), "cached")
    yield f"\nAt most, beside the weights: {whole:.2f} GB with the graph of {tokens} tokens"
    yield f"({1e6 * whole / tokens:.1f} kB each), {most:.2f} GB of 65,536 at a time, {cached:.2f} GB cached with 8,192."
    total = torch.cuda.get_device_properties(here.device).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_allocated() + 0.6e9 * most) / total)
    limits = MemoryLimits(65_536)
    _, found = step(limits, "auto")
    off = float((found - expected).norm() / expected.norm())
    yield "\nWith 0.6 of the second, memory ran out, and the step went on with the graph of up to"
    yield f"{limits.full_tokens} tokens and chunks of {limits.token_budget}; its gradient is {off:.1e} off."
    if limits.full_tokens is None:
        raise SystemExit("memory did not run out")


def group(here: Here) -> Iterator[str]:
    """The collectives of a training, in a group of one process, as a launcher starts it."""
    words = ["-m", "torch.distributed.run", "--nproc_per_node", "1", "--standalone", str(Path(__file__))]
    dry = ["--dry-run"] if here.dry else []
    done = subprocess.run([sys.executable, *words, "--section", MEMBER, *dry], stdout=subprocess.PIPE, text=True)
    yield done.stdout.strip()
    if done.returncode:
        raise SystemExit(f"torchrun: exit status {done.returncode}")


def member(here: Here) -> Iterator[str]:
    """The process of :func:`group`: a step as one of two takes it, summed over the one that is there."""
    import torch.distributed as dist

    from rerank.losses import ListNet
    from rerank.training.batches import ListSample
    from rerank.training.launch import agree, launched
    from rerank.training.step import Gradients, MemoryLimits

    device = launched([], here.folder).device
    model = here.model("MiniLM-L6").train()
    model.settle("fp32", "torch")
    lists, inputs = here.pairs(model, *here.of((2, 5), (8, 50)))
    groups = [ListSample(i, np.arange(lists.offsets[i], lists.offsets[i + 1]), i) for i in range(len(lists))]
    found = []
    for processes in (1, 2):
        mine = groups[::2] if processes == 1 else groups
        model.zero_grad(set_to_none=True)
        limits = MemoryLimits(model.budget, 100)
        step = Gradients(model, inputs, lists, ListNet(), "fp32", limits, processes=processes)
        step.accumulate(mine, 1)
        found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    agree(limits, device)
    told: list[Any] = [{"limits": limits.full_tokens}]
    dist.broadcast_object_list(told, 0)
    off = float((found[1] * len(groups) / len(groups[::2]) - found[0]).norm() / found[0].norm())
    yield f"{dist.get_backend()}, {torch.cuda.device_count()} GPUs here: a gradient of {len(found[0])} numbers summed,"
    yield f"{off:.1e} of its length from that without a group; limits and objects exchanged."
    dist.destroy_process_group()
    if not off < 1e-3 or told != [{"limits": 100}]:
        raise SystemExit("the group changed something")


def gpu_tests(here: Here) -> Iterator[str]:
    """The tests that need a GPU; where there is none, that they can be collected."""
    words = [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-m", "gpu", "-p", "no:cacheprovider", *GPU_TESTS]
    if here.device.type != "cuda":
        words.append("--collect-only")
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    lines = [line for line in done.stdout.splitlines() if line.strip()]
    kept = [line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))] + lines[-1:]
    yield "```\n" + "\n".join(kept) + "\n```"
    if done.returncode:
        raise SystemExit(f"pytest: exit status {done.returncode}")


def peers(here: Here) -> Iterator[str]:
    """Texts to scores, tokenising included, and training, beside sentence-transformers where it is there."""
    import pandas as pd

    from rerank.lists.view import Lists
    from rerank.models.text.cross_encoder import CrossEncoder

    rng, rows = np.random.default_rng(0), []
    queries, depth, words = here.of((3, 6, 20), (40, 50, 240))
    for query in range(queries):
        asked = " ".join(rng.choice(WORDS, 6))
        for document in range(depth):
            text = " ".join(rng.choice(WORDS, max(4, int(rng.normal(words, words / 6)))))
            rows.append((f"q{query}", asked, f"d{query}-{document}", text, int(document < 2)))
    lists = Lists.from_dataframe(pd.DataFrame(rows, columns=["query_id", "query", "doc_id", "text", "grade"]))
    pairs = [(row[1], row[3]) for row in rows]
    name = random_model("MiniLM-L6", here.folder / "model", **here.of(tiny("MiniLM-L6"), {}))
    ours = CrossEncoder(name, query_length=32, document_length=256).to(here.device)
    yield "| work | pairs/s |\n|---|---|"
    yield f"| scoring texts, rerank | {len(pairs) / here.seconds(lambda: ours.predict(pairs)):.0f} |"
    try:
        from sentence_transformers import CrossEncoder as Theirs

        theirs = Theirs(name, num_labels=1, device=str(here.device), max_length=291, model_kwargs={"dtype": "bfloat16"})
        seconds = here.seconds(lambda: theirs.predict(pairs, batch_size=256, show_progress_bar=False))
        yield f"| scoring texts, sentence-transformers bf16, batches of 256 | {len(pairs) / seconds:.0f} |"
        from text import their_training

        options = Namespace(threads=torch.get_num_threads(), model=name, query=32, length=256, device=str(here.device))
        seconds = their_training(options, lists, 0.1, here.device.type == "cuda")
        rate = (lists.size - int(lists.lengths[0])) / seconds
        yield f"| training, sentence-transformers LambdaLoss, dropout 0.1 | {rate:.0f} |"
    except ModuleNotFoundError as error:
        yield f"\nNot compared further: there is no module {error.name}."


def losses(here: Here) -> Iterator[str]:
    """Milliseconds of each loss with its gradient, by lists and their length."""
    from rerank.losses import load_all

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


def features(here: Here) -> Iterator[str]:
    """Lists of 100 feature vectors a second, by a network and SmoothI."""
    from rerank.losses import SmoothINDCG

    count, size = here.of((16, 8), (512, 136))
    vectors = torch.randn(count, 100, size, device=here.device)
    labels = torch.randint(0, 5, vectors.shape[:2], device=here.device).float()
    yield "| network | lists/s |\n|---|---|"
    for hidden in (64, 512):
        network = torch.nn.Sequential(torch.nn.Linear(size, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1))
        network, loss = network.to(here.device), SmoothINDCG()
        seconds = here.seconds(lambda: loss(network(vectors)[..., 0], labels).backward())  # noqa: B023
        yield f"| {size}-{hidden}-1 | {count / seconds:.0f} |"


def counted(here: Here) -> Iterator[str]:
    """Kernels and waits of a training step, counted on the meta device."""
    small = ["--lists", "2", "--depth", "6", "--layers", "2", "--hidden", "64", "--budgets", "1024"]
    words = [sys.executable, str(ROOT / "scripts" / "bench" / "count_kernels.py"), *(small if here.dry else [])]
    yield subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


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
    "precisions": Section(precisions, 60),
    "memory": Section(memory, 60),
    "group": Section(group, 60),
    "losses": Section(losses, 60),
    "peers": Section(peers, 120),
    "kernels": Section(counted, 90),
    "features": Section(features, 30),
}
"""The most valuable first."""

MEMBER = "member"


def run(name: str, options: Namespace, limit: float, home: str) -> tuple[str, str]:
    """A section in a process of its own: how it ended, and what it printed."""
    words = [
        sys.executable,
        str(Path(__file__).resolve()),
        "--section",
        name,
        *(["--dry-run"] if options.dry_run else []),
    ]
    alone = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": "0"}
    started = time.perf_counter()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        environment = alone | {"RERANK_HOME": home} | os.environ
        process = subprocess.Popen(words, stdout=out, stderr=err, env=environment, start_new_session=True)
        try:
            code = process.wait(limit)
            status = "ok" if code == 0 else f"FAILED, exit status {code}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # it and what it started
            process.wait()
            status = f"FAILED, stopped after {limit:.0f} s"
        out.seek(0)
        err.seek(0)
        text, said = out.read().strip(), err.read().strip()
    if status != "ok":
        text += f"\n\n```\n{said[-TAIL:]}\n```"
    return f"{status}, {time.perf_counter() - started:.0f} s", text.strip()


def written(report: list[str], output: Path | None) -> None:
    """The report as far as it is."""
    if output:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text("\n\n".join(report) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, help="where the Markdown goes; printed, too")
    parser.add_argument("--minutes", type=float, default=9, help="all of it takes no longer")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="these sections")
    parser.add_argument("--dry-run", action="store_true", help="everything small, on a GPU or not")
    parser.add_argument("--section", choices=[*SECTIONS, MEMBER], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not (torch.cuda.is_available() or options.dry_run):
        parser.error("there is no GPU; --dry-run does everything small on a CPU")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if options.section:
        work = member if options.section == MEMBER else SECTIONS[options.section].work
        with tempfile.TemporaryDirectory() as folder:
            for line in work(Here(device, options.dry_run, Path(folder))):
                print(line, flush=True)
        return
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
            limit = left if options.dry_run else min(left, SECTIONS[section].limit)  # any machine may be busy
            status, text = run(section, options, limit, home.name)
        failed |= not status.startswith("ok")
        about = " ".join((SECTIONS[section].work.__doc__ or "").split("\n")[0].split())
        report.append(f"## {section}\n\n{about} *({status})*\n\n{text}".strip())
        print(f"\n{report[-1]}", flush=True)
        written(report, options.output)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
