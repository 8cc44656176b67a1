"""What a calibration found: as tables, as what ``rerank.json`` says, and as a part of the card."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pandas import DataFrame

from rerank.evaluation.calibration import Bin, Found, Quality
from rerank.evaluation.render import Section, document, plain
from rerank.html import shown
from rerank.models.card import without_part
from rerank.models.contract import CARD
from rerank.storage.files import atomic_write

HEADING = "Calibration"


@dataclass(frozen=True)
class Measured:
    """How good probabilities are on some lists."""

    lists: str
    queries: int
    n: int
    relevant: int
    before: Quality
    after: Quality
    found: Sequence[Found]
    curve: Sequence[Bin]


@dataclass(frozen=True)
class Calibrated:
    """A calibrated ranker.

    Attributes:
        a: of the fit, what scores were multiplied by.
        b: what was added.
        grade: the lowest grade that counts as relevant.
        unjudged: whether candidates without a judgment count as not relevant, as the judgments name no others.
        folded: whether the last layer has a and b, so that a sigmoid of the scores is the probability.
        thresholds: for each promised precision the lowest probability; None where it cannot be promised.
        validation: on the lists that it was fitted on, each query by what was fitted on the others.
        test: on others; None without.
    """

    folder: str
    a: float
    b: float
    grade: int
    unjudged: bool
    folded: bool
    thresholds: Mapping[float, float | None]
    validation: Measured
    test: Measured | None = None

    def contract(self) -> dict[str, Any]:
        """What ``rerank.json`` says; a and b are those that are left to apply."""
        left = {"a": 1.0, "b": 0.0} if self.folded else {"a": self.a, "b": self.b}
        thresholds = {f"{precision:g}": least for precision, least in self.thresholds.items()}
        more = {"fitted": {"a": self.a, "b": self.b}, "unjudged": self.unjudged, "thresholds": thresholds}
        measured = {"validation": asdict(self.validation)} | ({"test": asdict(self.test)} if self.test else {})
        return left | {"grade": self.grade, "n": self.validation.n} | more | measured

    @property
    def _measured(self) -> list[tuple[str, Measured]]:
        return [("validation", self.validation), *([("test", self.test)] if self.test else [])]

    def tables(self) -> list[Section]:
        """Quality, thresholds and the reliability curve."""
        quality = [
            plain(name, when, *(f"{value:.4f}" for value in asdict(of).values()))
            for name, measured in self._measured
            for when, of in (("before", measured.before), ("after", measured.after))
        ]
        thresholds = []
        for name, of in self._measured:
            for (precision, least), found in zip(self.thresholds.items(), of.found, strict=True):
                cells = [name, f"{precision:g}", "none" if least is None else f"{least:.4f}", _precision(found)]
                thresholds.append(plain(*cells, f"{found.count / of.queries:.2f}", f"{found.recall:.3f}"))
        promises = ["queries", "precision", "probability from", "found, 95 % interval", "a query", "recall"]
        bins = [
            plain(name, f"{bin.low:.1f} to {bin.high:.1f}", bin.count, f"{bin.probability:.3f}", f"{bin.relevant:.3f}")
            for name, measured in self._measured
            for bin in measured.curve
        ]
        return [
            Section("Quality", ["queries", "", "log loss", "Brier score", "calibration error"], quality, names=2),
            Section("Thresholds", promises, thresholds),
            Section("Reliability", ["queries", "probability", "candidates", "mean", "relevant"], bins, names=2),
        ]

    def facts(self) -> list[str]:
        """What the numbers are of."""
        holds = "the last layer holds now." if self.folded else "rerank.json holds; scores stay as they are."
        facts = [f"p = sigmoid({self.a:.6g} s {self.b:+.6g}), which {holds}"]
        for name, of in self._measured:
            how = "; each by what was fitted on four other fifths of the queries" if name == "validation" else ""
            facts.append(
                f"{name}: {of.lists}, {of.queries} queries, {of.n} candidates, {of.relevant} of them relevant (grade "
                f"{self.grade} or more){how}."
            )
        facts.append(
            "Above a threshold the precision is what is promised, or more, for queries like these: each threshold by "
            "itself, with 95 % confidence."
        )
        if none := [f"{precision:g}" for precision, least in self.thresholds.items() if least is None]:
            facts.append(
                f"No threshold for {', '.join(none)}: too few candidates score high enough, or too few of those are "
                "relevant. Calibrate with more queries, or cut by rank."
            )
        facts.append(
            "The judgments name relevant documents alone, so the others count as not relevant: these are probabilities "
            "that a judge has marked a candidate, for lists like these."
            if self.unjudged
            else "These are probabilities for judged candidates of lists like these."
        )
        return facts

    def __str__(self) -> str:
        return document(self.tables(), self.facts())

    def _repr_html_(self) -> str:
        return shown(self.facts()[0], self.to_dataframe())

    def to_dataframe(self) -> DataFrame:
        """A row per bin of the reliability curve: ``lists`` and what :class:`Bin` has."""
        return DataFrame([{"lists": name} | asdict(bin) for name, of in self._measured for bin in of.curve])

    def describe(self, folder: Path) -> None:
        """Let the card say it, in place of what it said of an earlier one."""
        card = folder / CARD
        before = card.read_text(encoding="utf-8") if card.is_file() else f"# {Path(self.folder).name}\n"
        before = without_part(before, HEADING)
        code = "```python\nimport rerank\n\nprobabilities = rerank.load(path).probabilities(lists)\n```"
        tables = ["\n".join(table.markdown()) for table in self.tables()]
        with atomic_write(card) as file:
            file.write("\n\n".join([f"{before.rstrip()}\n\n## {HEADING}", *self.facts(), *tables, code]) + "\n")


def _precision(found: Found) -> str:
    if found.precision is None:
        return "-"
    interval = "" if found.low is None else f" [{found.low:.3f}, {found.high:.3f}]"
    return f"{found.precision:.3f}{interval}"
