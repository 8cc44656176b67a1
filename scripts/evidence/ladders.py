"""What each rung of the ladder was worth on test queries."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pandas as pd

from scripts.evidence.kept import FIRST, claims_of_scifact, study
from scripts.evidence.losses import SIX
from scripts.evidence.statistics import Found, mean, of_queries, pooled, signed, table

TEXTS = SIX | {"demo": "the demo's questions"}
FUSED = "fused"
FIRST_STAGES = {"bm25": "BM25", "rm3": "RM3", "tasb": "TAS-B", "ada2": "ada-002", "splade": "SPLADE"}
FIRST_STAGES |= {"repllama": "RepLLaMA"}
RUNGS = {FIRST: FIRST, "other evidence": "cosines", FUSED: FUSED, "from documents alone": "documents alone"}
RUNGS |= {rung: rung for rung in ("fine-tuned", "averaged", "mixed")}


@functools.cache
def ladder(name: str) -> tuple[pd.DataFrame, str]:
    """nDCG@10 ``[query, rung]`` of a collection, lowest first, and the highest rung that was kept."""
    of = study("ladders")
    of = of[of.collection == name]
    return of.pivot(index="query", columns="rung", values="value")[of.rung.unique()], of[of.kept == 1].rung.iloc[-1]


def against(name: str, rung: str, other: str) -> Found:
    """A rung of a collection against another."""
    values, _ = ladder(name)
    return of_queries(values[rung] - values[other])


def _gap(one: pd.Series, other: pd.Series) -> Found | str:
    """Nothing for a rung and itself."""
    return of_queries(one - other) if (one - other).any() else ""


def _means(name: str) -> dict[str, str]:
    """Of every rung, that which was kept in bold."""
    values, kept = ladder(name)
    return {rung: f"**{mean(values[rung])}**" if rung == kept else mean(values[rung]) for rung in values}


@table("ladders")
def ladders_by_collection() -> Iterator[list[object]]:
    yield ["", "queries", *RUNGS.values(), "ranker − first stage", "ranker − fused"]
    for name, shown in TEXTS.items():
        values, kept = ladder(name)
        gaps = [_gap(values[kept], values[other]) for other in (FIRST, FUSED)]
        yield [shown, len(values), *(_means(name).get(rung, "") for rung in RUNGS), *gaps]
    gains = [[against(name, ladder(name)[1], other).mean for name in TEXTS] for other in (FIRST, FUSED)]
    yield ["mean of the differences", *[""] * (1 + len(RUNGS)), *(signed(sum(of) / len(of)) for of in gains)]


@table("ladders-trained")
def ladders_trained() -> Iterator[list[object]]:
    """Trained rungs against the fusion."""
    names = [name for name in TEXTS if "mixed" in ladder(name)[0]]
    yield ["− fused", *(TEXTS[name] for name in names), "pooled"]
    for rung in ("from documents alone", "fine-tuned", "averaged", "mixed"):
        gaps = {name: against(name, rung, FUSED) for name in TEXTS if rung in ladder(name)[0]}
        yield [RUNGS[rung], *(gaps.get(name, "") for name in names), pooled([*gaps.values()])]


@table("ladders-features")
def ladders_of_features() -> Iterator[list[object]]:
    yield ["", "queries", "best feature", FUSED, "fine-tuned", "mixed"]
    for name in ("MQ2008", "OHSUMED"):
        (best, mean_of_best), *others = _means(name).items()
        gaps = [f"{shown} ({against(name, rung, best)})" for rung, shown in others]
        yield [f"{name}, fold 1", len(ladder(name)[0]), mean_of_best, *gaps]


@table("ladders-seen")
def ladders_seen() -> Iterator[list[object]]:
    """SciFact's rungs by whether training claims share a relevant abstract."""
    values = ladder("scifact")[0]
    seen = claims_of_scifact().seen.reindex(values.index)
    parts = {"300 claims": values, "196 with a seen abstract": values[seen == 1], "104 others": values[seen == 0]}
    yield ["", *parts]
    for rung in values:
        yield [RUNGS[rung], *(mean(part[rung]) for part in parts.values())]


@table("ladders-first")
def ladders_by_first_stage() -> Iterator[list[object]]:
    """DL 2020's queries by what found their candidates: three folds, and the ranker that each fold's ladder kept."""
    yield ["first stage", "itself", "best other", FUSED, "ranker", "ranker − first stage", "fused − first stage"]
    tables = {shown: ladder(f"dl20-{name}")[0] for name, shown in FIRST_STAGES.items()}
    for shown, values in tables.items():
        means = [mean(values[rung]) for rung in (FIRST, "other evidence", FUSED, "ranker")]
        yield [shown, *means, *(_gap(values[rung], values[FIRST]) for rung in ("ranker", FUSED))]
    gains = [[values[rung] - values[FIRST] for values in tables.values()] for rung in ("ranker", FUSED)]
    yield ["mean of the six, over queries", *[""] * 4, *(of_queries(sum(of) / len(of)) for of in gains)]


@table("ladders-splade")
def ladders_of_splade() -> Iterator[list[object]]:
    """DL 2020 from SPLADE's candidates, with training: three folds together."""
    values, _ = ladder("dl20-splade-trained")
    yield ["", "nDCG@10", "− first stage", "− fused"]
    for rung in values:
        gaps = [_gap(values[rung], values[other]) for other in (FIRST, FUSED)]
        yield [RUNGS.get(rung, rung), mean(values[rung]), *gaps]
