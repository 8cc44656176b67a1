"""What a ladder found: its rungs, as a table, as JSON, as a page, and in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pandas import DataFrame

from rerank.evaluation.beside import shown_difference
from rerank.evaluation.render import Section, document, plain
from rerank.html import shown
from rerank.models.base import Model
from rerank.models.contract import FUSION, MIX, read_contract
from rerank.models.load import load_model
from rerank.report.charts import Bar, Bars
from rerank.report.page import Report, write_report
from rerank.storage.files import atomic_write
from rerank.storage.hashes import read_sealed, write_sealed

LADDER = "ladder.json"
"""Written last: the ladder is complete."""


@dataclass(frozen=True)
class Rung:
    """One ranker of a ladder.

    Attributes:
        kept: whether it earned its place.
        validation: mean of the monitor, of what was tuned over queries that it was not tuned on.
        test: mean over the test queries; None without test lists.
        difference: from the first rung, on test, or on validation where there is no test.
        low: where its 95 % interval begins; None where nothing varies.
        high: where it ends.
        below: the same beside the highest kept rung below.
        note: what was left out.
        seconds: how long it took.
    """

    name: str
    what: str
    kept: bool
    validation: float
    test: float | None
    difference: float | None
    low: float | None
    high: float | None
    below: dict[str, Any] | None
    note: str
    seconds: float

    @property
    def first_shown(self) -> str:
        """The difference from the first rung, with its interval."""
        return "" if self.difference is None else shown_difference(self.difference, (self.low, self.high))

    @property
    def below_shown(self) -> str:
        """The difference from the kept rung below, with its interval."""
        return "" if self.below is None else shown_difference(self.below["difference"], self.below["interval"])


@dataclass(frozen=True)
class Ladder:
    """A finished ladder.

    Attributes:
        folder: where it is; ``ranker`` in it is the highest rung that was kept.
        monitor: the measure.
        rungs: lowest first.
        left_out: why the others are not there.
        notes: what a reader has to know.
        queries: how many queries there are of each split.
        on: what differences are measured on: ``test``, or ``validation`` where there is no test.
    """

    folder: Path
    monitor: str
    rungs: list[Rung]
    left_out: Mapping[str, str]
    notes: Sequence[str]
    queries: Mapping[str, int]
    on: str

    @classmethod
    def read(cls, folder: str | Path) -> Ladder:
        """The ladder that a folder holds."""
        content = read_sealed(Path(folder) / LADDER)
        return cls(Path(folder), **content | {"rungs": [Rung(**rung) for rung in content["rungs"]]})

    @property
    def kept(self) -> Rung:
        return next(rung for rung in reversed(self.rungs) if rung.kept)

    @property
    def sentence(self) -> str:
        best, first = self.kept, self.rungs[0].name
        if best is self.rungs[0]:
            return f"Keep what you have: validation does not tell that anything is better than the {first}."
        where = f"{self.monitor}, {self.queries[self.on]} {self.on} queries"
        what = f"the ranker ({best.name}) differs from the {first} by {best.first_shown} ({where})"
        if best.low is None or best.high is None or best.low <= 0 <= best.high:
            return f"No difference beyond chance: {what}."
        if best.high < 0:
            return f"Worse, keep what you have: {what}."
        return f"Better: {what}." if self.on == "test" else f"Better, where it was chosen: {what}; test it on others."

    @cached_property
    def ranker(self) -> Model:
        """The ranker, loaded at its first use."""
        return load_model(self.folder / "ranker")

    def to_dataframe(self) -> DataFrame:
        return DataFrame([{key: value for key, value in asdict(rung).items() if key != "below"} for rung in self.rungs])

    def _repr_html_(self) -> str:
        return shown(self.sentence, self.to_dataframe())

    def table(self) -> Section:
        header = ["rung", "kept", "valid.", "test", f"against {self.rungs[0].name}", "against the one below"]
        rows = []
        for rung in self.rungs:
            kept, test = "yes" if rung.kept else "no", "" if rung.test is None else f"{rung.test:.4f}"
            rows.append(plain(rung.name, kept, f"{rung.validation:.4f}", test, rung.first_shown, rung.below_shown))
        return Section("Rungs", header, rows, self.facts(), names=6)

    def __str__(self) -> str:
        return document([self.table()], self.facts(), self.sentence, indent="  ")

    @property
    def saved(self) -> str:
        """Where the ranker is, how it is used, and what a query has to bring along."""
        place = self.folder / "ranker"
        contract = read_contract(place)
        mix = contract.get(MIX, {})
        needs = [name for name in mix.get("columns", ()) if name not in mix.get("cosines", {})]
        with_texts = contract.get("class") in (None, FUSION, "CrossEncoder", "Decoder")
        use = f"serve {place}" if with_texts else f"rerank --model {place} --lists LISTS --output FILE"
        return f"Saved: {place}. Next: rerank {use}" + (f"; it needs {', '.join(needs)}." if needs else ".")

    def facts(self) -> list[str]:
        """What stands below the table."""
        queries = ", ".join(f"{count} {name}" for name, count in self.queries.items())
        facts = [
            f"{self.monitor}; queries: {queries}; 95 % intervals: bootstrap over the {self.on} queries, "
            "widened by Student's t."
        ]
        facts += [f"{r.name}: {r.what}, {r.seconds:.0f} s{f'; {r.note}' if r.note else ''}" for r in self.rungs]
        facts += [f"{name}: left out, {why}" for name, why in self.left_out.items()]
        return [*facts, *self.notes]


def write_ladder(ladder: Ladder) -> None:
    """Write the table, the page, and, last, the JSON."""
    with atomic_write(ladder.folder / "ladder.txt") as file:
        file.write(f"{ladder}\n")
    bars = [Bar(r.name, r.difference or 0.0, r.low, r.high, r.kept, r.first_shown) for r in ladder.rungs]
    title = f"{ladder.monitor} on {ladder.on}, difference from the {ladder.rungs[0].name}"
    report = Report(title=ladder.sentence, tables=[ladder.table()], values={}, baseline="", bars=Bars(title, bars))
    write_report(report, ladder.folder / "ladder.html")
    content = {key: value for key, value in vars(ladder).items() if key not in ("folder", "rungs", "ranker")}
    write_sealed(ladder.folder / LADDER, {"rungs": [asdict(rung) for rung in ladder.rungs]} | content)
