"""Values that are kept per query, and nothing of the package that made them."""

from __future__ import annotations

import functools
import json
import lzma
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).parent.parent.parent
KEPT = ROOT / "configs" / "evidence" / "kept"
STUDIES = ROOT / "docs" / "studies"
FIRST, MIXED = "first stage", " + first stage"
MEASURE = "nDCG@10"
NAMES = {"scifact": "SciFact", "nfcorpus": "NFCorpus", "dl": "DL 2019", "dl19": "DL 2019", "cranfield": "Cranfield"}
NAMES |= {"cisi": "CISI", "vaswani": "Vaswani", "demo": "demo"}


@dataclass(frozen=True)
class Kept:
    """An experiment: values ``[fold and query, seed]`` by method and measure, how many trainings, and their seconds."""

    tables: dict[tuple[str, str], pd.DataFrame]
    cells: int
    seconds: float

    def table(self, method: str, measure: str = MEASURE) -> pd.DataFrame:
        return self.tables[method, measure]

    def methods(self) -> list[str]:
        return sorted({method for method, _ in self.tables})


@functools.cache
def kept(name: str, folder: Path = KEPT) -> Kept:
    """The kept cells of an experiment."""
    parts: dict[tuple[str, str], dict[int, list[pd.Series]]] = {}
    cells, seconds = 0, 0.0
    with lzma.open(folder / f"{name}.jsonl.xz", "rt") as lines:
        for line in map(json.loads, lines):
            content, file = line.get("content"), line.get("path", "").rsplit("/", 1)[-1]
            cells += file == "measures.json"
            seconds += sum(part["seconds"] for part in content) if file == "provenance.json" else 0
            if not file.startswith("test-"):
                continue
            queries = pd.MultiIndex.from_product([[line["fold"] or ""], content["queries"]], names=["fold", "query"])
            for measure, values in zip(content["measures"], content["values"], strict=True):
                seeds = parts.setdefault((line["method"], measure), {})
                seeds.setdefault(line["seed"], []).append(pd.Series(values, queries))
    tables = {key: pd.DataFrame({seed: pd.concat(found) for seed, found in of.items()}) for key, of in parts.items()}
    for key, table in tables.items():
        if key[0] == FIRST:  # has no seeds, but is kept with the first
            tables[key] = table[[min(table.columns)]].set_axis([0], axis=1)
    return Kept(tables, cells, seconds)


@functools.cache
def study(name: str) -> pd.DataFrame:
    """The table of a study that is not an experiment; ``fold`` is empty where there are none."""
    table = pd.read_csv(KEPT / f"{name}.tsv.xz", sep="\t", dtype={"query": str}, na_filter=False)
    return table if "fold" in table else table.assign(fold="")


def study_values(name: str, **cells: object) -> pd.DataFrame:
    """nDCG@10 ``[fold and query, seed]`` of rows that have these cells; what was not trained has the seed 0."""
    of = study(name)
    of = of[(of[[*cells]] == pd.Series(cells)).all(axis=1)]
    return of.pivot(index=["fold", "query"], columns="seed", values="value")


def ranked(of: str, run: str) -> pd.Series:
    """nDCG@10 of a run that a page speaks of, by query."""
    table = study("pages")
    return table[(table.of == of) & (table.run == run)].set_index("query").value


@functools.cache
def claims_of_scifact() -> pd.DataFrame:
    """nDCG@10 of six rankings of SciFact's test claims, and whether training has seen a relevant abstract of each."""
    path = ROOT / "configs" / "scifact" / "kept" / "minilm.tsv"
    return pd.read_csv(path, sep="\t", dtype={"query": str}, index_col="query")
