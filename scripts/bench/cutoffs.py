"""Do direct metrics learn from a fresh head? Every relaxation, with and without a cut-off, on made lists.

    python scripts/bench/cutoffs.py --output runs/cutoffs.jsonl [--settings 150 32 8 grades] [--start 1] [--options]
    python scripts/bench/cutoffs.py --output runs/cutoffs.jsonl --figure docs/figures/cutoffs.png

A linear scorer over 32 features starts with all scores of a list within about .014 of each other (--start). It takes
300 steps of Adam (learning rate .003) on 16 of 512 lists each; relevant documents are shifted along one direction, in
some lists further than in others. Quality is nDCG@10 on 300 new lists. A list is alive where the norm of the gradient
on its scores is above a thousandth of the largest in its batch (and above 1e-8). Seeds train side by side, in one
batch. Every line of the output is a run; a second call does only what is missing.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor

from rerank import losses
from rerank.measures import parse
from rerank.relaxations import load_all

FEATURES, BATCH, POOL, TEST, RATE, FIRST, START = 32, 16, 512, 300, 0.003, 200, 0.014
SHOWN = (0, 20, 50, 100, 200, 300)

PAPERS = ("Approx(alpha=10)", "FastSoftSort(strength=1)", "TwinSigmoid(gradient=3, alpha=1)", "SoftSort(tau=1)")
DEFAULTS = ("Approx()", "FastSoftSort()", "TwinSigmoid()", "SmoothI()", "SoftSort()")
SLOW = ("NeuralSort()", "OptimalTransport()")
OPTIONS = tuple(
    f"{relaxation} {option}"
    for relaxation in ("SmoothI()", "SoftSort()", "Approx()", "TwinSigmoid()")
    for option in ("balance=0", "balance=1")
)


@dataclass(frozen=True)
class Setting:
    """What lists look like.

    Attributes:
        size: documents of a list.
        grades: the grades above 0 of a list.
        shift: how far a document of grade 1 is shifted, in standard deviations of the features.
        cutoff: of the measure that is trained on.
    """

    size: int
    grades: tuple[int, ...]
    shift: float
    cutoff: int = 10

    def draw(self, count: int, seeds: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Features ``[seeds, count, size, FEATURES]`` and grades ``[count, size]``."""
        labels = torch.zeros(count, self.size)
        labels[:, : len(self.grades)] = torch.tensor(self.grades, dtype=torch.float32)
        direction = torch.randn(FEATURES, generator=torch.Generator().manual_seed(1))
        drawn = []
        for seed in seeds:
            generator = torch.Generator().manual_seed(1000 * count + seed)
            clear = 0.5 + torch.rand(count, 1, generator=generator)  # how easy a list is
            noise = torch.randn(count, self.size, FEATURES, generator=generator)
            drawn.append(noise + (self.shift * clear * labels)[:, :, None] * (direction / direction.norm()))
        return torch.stack(drawn), labels


SETTINGS = {
    "150": Setting(150, (1, 1, 1, 1), 2.7),
    "32": Setting(32, (1, 1, 1, 1), 1.8),
    "8": Setting(8, (1, 1), 1.2, cutoff=3),
    "grades": Setting(150, (3, 2, 2, 1, 1, 1), 1.5),
}


def make(name: str, measure: str) -> losses.Loss:
    """A loss from the text of a row: "ListNet()", "Approx()", or "Approx() balance=1"."""
    made, _, options = name.partition(") ")
    known = load_all() | {"ListNet": losses.ListNet}
    built = eval(made if made.endswith(")") else f"{made})", dict(known))
    if isinstance(built, losses.Loss):
        built.reduction = "none"
        return built
    return losses.DirectMetric(measure, built, reduction="none", **eval(f"dict({options})"))


def train(name: str, measure: str, setting: Setting, start: float, seeds: int, steps: int) -> dict[str, Any]:
    """By step, then by seed: the share of lists that are alive, the spread of scores, and nDCG@10 on new lists."""
    (features, labels), (new, new_labels) = setting.draw(POOL, range(seeds)), setting.draw(TEST, range(seeds))
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(seeds, FEATURES, 1, generator=generator) * (start / 5 / FEATURES**0.5)
    optimizer = torch.optim.Adam([weights.requires_grad_()], lr=RATE)
    loss, shown = make(name, measure), parse("nDCG@10")
    targets = labels[:BATCH].repeat(seeds, 1)  # the same in every list
    alive, spread, quality = [], [], []
    for step in range(steps + 1):
        if step % 10 == 0:
            with torch.no_grad():
                scores = (new.flatten(1, 2) @ weights).view(seeds, TEST, setting.size)
                values = shown.exact(scores.flatten(0, 1), new_labels.repeat(seeds, 1)).view(seeds, TEST)
            quality.append([round(v, 4) for v in values.mean(dim=1).tolist()])
            spread.append([float(f"{v:.3g}") for v in scores.std(dim=2).mean(dim=1).tolist()])
        chosen = torch.randperm(POOL, generator=generator)[:BATCH]
        scores = (features[:, chosen].flatten(1, 2) @ weights).view(seeds * BATCH, setting.size)
        scores.retain_grad()
        optimizer.zero_grad()
        (loss(scores, targets, seeds=chosen.repeat(seeds) + step * POOL).sum() / BATCH).backward()
        assert scores.grad is not None
        norms = scores.grad.norm(dim=1).view(seeds, BATCH) * BATCH
        living = (norms > 1e-3 * norms.amax(dim=1, keepdim=True)) & (norms > 1e-8)
        alive.append([round(v, 4) for v in living.float().mean(dim=1).tolist()])
        optimizer.step()
    return {"alive": alive, "spread": spread, "quality": quality}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: means over seeds, for the last step the standard deviation over seeds too."""
    steps = [step for step in SHOWN if step <= rows[0]["steps"]]
    lines = [
        f"| lists | start | measure | loss | alive | {' | '.join(f'step {step}' for step in steps)} | spread |",
        "|---|---|---|---|---|" + "---|" * (len(steps) + 1),
    ]
    for row in rows:
        alive = mean(mean(step) for step in row["alive"][:FIRST])
        cells = [f"{mean(row['quality'][step // 10]):.3f}".lstrip("0") for step in steps]
        if row["seeds"] > 1:
            cells[-1] += f" ± {stdev(row['quality'][steps[-1] // 10]):.3f}".replace("0.", ".")
        first = f"| {row['setting']} | {row['start']:g} | {row['measure']} | {row['loss']} | {100 * alive:.0f} % | "
        lines.append(first + " | ".join(cells) + f" | {mean(row['spread'][-1]):.2g} |")
    return "\n".join(lines)


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Dead lists and nDCG@10 over the first 200 steps, with and without a cut-off, before and after."""
    from matplotlib.figure import Figure

    setting = SETTINGS["150"]
    found = {(row["measure"], row["loss"]): row for row in rows if (row["setting"], row["start"]) == ("150", START)}
    figure = Figure(figsize=(14, 7.5), layout="constrained")
    panels = figure.subplots(2, 4, sharex=True, sharey="row")
    columns = (
        ("papers' formulas, cut at 10", f"nDCG@{setting.cutoff}", PAPERS),
        ("defaults, cut at 10", f"nDCG@{setting.cutoff}", (*DEFAULTS, *SLOW)),
        ("papers' formulas, not cut", "nDCG", PAPERS),
        ("defaults, not cut", "nDCG", (*DEFAULTS, *SLOW)),
    )
    names = list(load_all())
    for column, (title, measure, wanted) in enumerate(columns):
        top, bottom = panels[:, column]
        for loss in ("ListNet()", *wanted):
            row = found.get((measure, loss))
            if row is None:
                continue
            kind = loss.partition("(")[0]
            style: dict[str, Any] = {
                "color": "black" if kind == "ListNet" else f"C{names.index(kind)}",
                "linestyle": "--" if kind in ("FastSoftSort", "SmoothI", "NeuralSort") else "-",  # where lines coincide
                "linewidth": 1.3,
            }
            dead = [100 * (1 - mean(step)) for step in row["alive"][:FIRST]]
            smooth = [mean(dead[max(0, i - 9) : i + 1]) for i in range(len(dead))]
            top.plot(smooth, label=loss, **style)
            quality = [mean(step) for step in row["quality"][: FIRST // 10 + 1]]
            bottom.plot(range(0, 10 * len(quality), 10), quality, **style)
        top.set(title=title, ylim=(-3, 103))
        top.legend(fontsize=7)
        bottom.set(xlabel="step", ylim=(0, 0.8))
    panels[0, 0].set_ylabel("lists without a gradient, % (mean of 10 steps)")
    panels[1, 0].set_ylabel("nDCG@10 on new lists")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def read(path: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The runs that are done, the last of each kind."""
    lines = path.read_text().splitlines() if path.is_file() else []
    return {key(row): row for row in map(json.loads, lines)}


def key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("setting", "start", "measure", "loss", "seeds", "steps"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True, help="runs, a line each")
    parser.add_argument("--settings", nargs="+", default=["150"], choices=[*SETTINGS])
    parser.add_argument("--losses", nargs="+", default=["ListNet()", *PAPERS, *DEFAULTS, *SLOW])
    parser.add_argument("--measures", nargs="+", help="default: nDCG with the setting's cut-off, and without")
    parser.add_argument("--start", type=float, default=START, help="how far apart the scores of a list lie at first")
    parser.add_argument("--options", action="store_true", help="rows for balance instead")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--figure", type=Path, help="draw the runs of 150 documents into this file")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    wanted = [
        {"setting": setting, "start": arguments.start, "measure": measure, "loss": loss}
        | {"seeds": arguments.seeds, "steps": arguments.steps}
        for setting in arguments.settings
        for measure in arguments.measures or [f"nDCG@{SETTINGS[setting].cutoff}", "nDCG"]
        for loss in (OPTIONS if arguments.options else arguments.losses)
    ]
    done = read(arguments.output)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    with arguments.output.open("a") as file:
        for row in wanted:
            if key(row) not in done:
                how = (row["start"], row["seeds"], row["steps"])
                done[key(row)] = row | train(row["loss"], row["measure"], SETTINGS[row["setting"]], *how)
                print(json.dumps(done[key(row)]), file=file, flush=True)
    rows = [done[key(row)] for row in wanted]
    print(table(rows))
    if arguments.figure:
        draw(list(done.values()), arguments.figure)


if __name__ == "__main__":
    main()
