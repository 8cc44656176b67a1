"""Do direct metrics learn from a fresh head? Every relaxation, with and without a cut-off, in a lab of made lists.

    python scripts/bench_cutoffs.py --output runs/cutoffs.jsonl [--settings 150 32 8 grades] [--seeds 3]
    python scripts/bench_cutoffs.py --output runs/cutoffs.jsonl --figure docs/figures/cutoffs.png

A linear scorer over 32 features starts with all scores of a list within about .014 of each other and takes 300 steps of
Adam (learning rate .003) on 16 lists each. Relevant documents are shifted along one direction, in some lists more than in
others. A list is alive where the norm of its gradient, on its scores, is above a thousandth of the largest in its
batch. Every run is a line of the output; a second call does only what is missing.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rerank import losses
from rerank.measures import parse
from rerank.relaxations import (  # noqa: F401 rows are written as calls
    Approx,
    FastSoftSort,
    NeuralSort,
    OptimalTransport,
    Relaxation,
    SmoothI,
    SoftSort,
    TwinSigmoid,
)

FEATURES, BATCH, POOL, TEST, RATE = 32, 16, 512, 300, 0.003
SHOWN = (0, 20, 50, 100, 200, 300)

PAPERS = (
    "Approx(alpha=10)",
    "FastSoftSort(strength=1)",
    "TwinSigmoid(gradient=3, alpha=1)",
    "SmoothI(alpha=1)",
    "NeuralSort(tau=1)",
    "SoftSort(tau=1)",
    "OptimalTransport(epsilon=.1)",
)
DEFAULTS = tuple(f"{name.partition('(')[0]}()" for name in PAPERS)


@dataclass(frozen=True)
class Setting:
    """What lists look like.

    Attributes:
        size: documents of a list.
        grades: the grades above 0 of a list.
        shift: how far a document of grade 1 is shifted, in standard deviations of its features.
    """

    size: int
    grades: tuple[int, ...]
    shift: float

    def draw(self, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Features ``[count, size, FEATURES]`` and grades ``[count, size]``."""
        labels = torch.zeros(count, self.size)
        labels[:, : len(self.grades)] = torch.tensor(self.grades, dtype=torch.float32)
        direction = torch.randn(FEATURES, generator=torch.Generator().manual_seed(1))  # some features say more than others
        direction /= direction.norm()
        clear = 0.5 + torch.rand(count, 1, generator=generator)  # some lists are easier than others
        features = torch.randn(count, self.size, FEATURES, generator=generator)
        return features + (self.shift * clear * labels)[:, :, None] * direction, labels


SETTINGS = {
    "150": Setting(150, (1, 1, 1, 1), 2.7),
    "32": Setting(32, (1, 1, 1, 1), 1.8),
    "8": Setting(8, (1, 1), 1.2),
    "grades": Setting(150, (3, 2, 2, 1, 1, 1), 1.5),
}


def make(name: str, cutoff: str) -> losses.Loss:
    """A loss from the text of a row: a relaxation, a whole loss, or a relaxation with options after "|"."""
    relaxation, _, options = name.partition("|")
    made = eval(relaxation, {**globals(), **vars(losses), "ListNet": losses.ListNet, "LambdaLoss": losses.LambdaLoss})
    if isinstance(made, losses.Loss):
        return made
    return losses.DirectMetric(f"{cutoff}", made, **eval(f"dict({options})"))


def train(name: str, measure: str, setting: Setting, seed: int, steps: int = 300) -> dict[str, Any]:
    """One run: by step, the share of lists that are alive, the spread of scores, and nDCG@10 on new lists."""
    generator = torch.Generator().manual_seed(seed)
    pool, test = setting.draw(POOL, generator), setting.draw(TEST, generator)
    weight = torch.randn(FEATURES, generator=generator) * (0.014 / 5 / FEATURES**0.5)
    weight.requires_grad_()
    optimizer = torch.optim.Adam([weight], lr=RATE)
    loss, shown = make(name, measure), parse("nDCG@10")
    alive, tiny, spreads, quality = [], [], [], []
    for step in range(steps + 1):
        if step % 10 == 0:
            with torch.no_grad():
                quality.append(round(float(shown.exact(test[0] @ weight, test[1]).mean()), 4))
        chosen = torch.randperm(POOL, generator=generator)[:BATCH]
        scores = pool[0][chosen] @ weight
        scores.retain_grad()
        optimizer.zero_grad()
        loss(scores, pool[1][chosen], seeds=chosen + step).backward()
        norms = scores.grad.norm(dim=1)
        alive.append(round(float((norms > 1e-3 * norms.amax()).float().mean()), 4))
        tiny.append(round(float((norms > 1e-8).float().mean()), 4))
        spreads.append(round(float(scores.detach().std(dim=1).mean()), 5))
        optimizer.step()
    return {"alive": alive, "some": tiny, "spread": spreads[::10], "quality": quality}


def table(rows: list[dict[str, Any]]) -> str:
    """Means over seeds, as Markdown."""
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["setting"], row["measure"], row["loss"]), []).append(row)
    lines = [
        f"| lists | measure | relaxation | alive | some gradient | {' | '.join(f'step {s}' for s in SHOWN)} | spread |",
        "|---|---|---|---|---|" + "---|" * (len(SHOWN) + 1),
    ]
    for (setting, measure, loss), runs in groups.items():
        alive = statistics.mean(statistics.mean(run["alive"][:200]) for run in runs)
        some = statistics.mean(statistics.mean(run["some"][:200]) for run in runs)
        shown = [statistics.mean(run["quality"][step // 10] for run in runs) for step in SHOWN]
        spread = statistics.mean(run["spread"][-1] for run in runs)
        cells = " | ".join(f"{value:.3f}".lstrip("0") for value in shown)
        lines.append(f"| {setting} | {measure} | {loss} | {alive:.0%} | {some:.0%} | {cells} | {spread:.2g} |")
    return "\n".join(lines)


def read(path: Path) -> list[dict[str, Any]]:
    """The runs that are done."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("setting", "measure", "loss", "seed", "steps"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--losses", nargs="+", default=["ListNet()", *PAPERS, *DEFAULTS])
    parser.add_argument("--measures", nargs="+", default=["nDCG@10", "nDCG"])
    parser.add_argument("--settings", nargs="+", default=[*SETTINGS], choices=[*SETTINGS])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wanted = [
        {"setting": setting, "measure": measure, "loss": loss, "seed": seed, "steps": arguments.steps}
        for setting in arguments.settings
        for measure in arguments.measures
        for loss in arguments.losses
        for seed in range(arguments.seeds)
    ]
    done = {key(row): row for row in read(arguments.output)}
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("a") as file:
        for row in wanted:
            if key(row) not in done:
                found = train(row["loss"], row["measure"], SETTINGS[row["setting"]], row["seed"], row["steps"])
                done[key(row)] = row | found
                print(json.dumps(done[key(row)]), file=file, flush=True)
    print(table([done[key(row)] for row in wanted]))


if __name__ == "__main__":
    main()
