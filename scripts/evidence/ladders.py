"""What each rung of the ladder was worth on test queries."""

from __future__ import annotations

import functools

import pandas as pd

from scripts.evidence.kept import KEPT, claims_of_scifact
from scripts.evidence.statistics import Found, mean, of_queries, pooled, rows, signed

TEXTS = {"scifact": "SciFact", "nfcorpus": "NFCorpus", "dl": "DL 2019", "cranfield": "Cranfield", "cisi": "CISI"}
TEXTS |= {"vaswani": "Vaswani", "demo": "the demo's questions"}
FEATURES = {"MQ2008": "MQ2008, fold 1", "OHSUMED": "OHSUMED, fold 1"}
FIRST, FUSED = "first stage", "fused"
FIRST_STAGES = {"bm25": "BM25", "rm3": "RM3", "tasb": "TAS-B", "ada2": "ada-002", "splade": "SPLADE"}
FIRST_STAGES |= {"repllama": "RepLLaMA"}
RUNGS = {FIRST: FIRST, "other evidence": "cosines", FUSED: FUSED, "from documents alone": "documents alone"}
RUNGS |= {rung: rung for rung in ("fine-tuned", "averaged", "mixed")}
TRAINED = ("from documents alone", "fine-tuned", "averaged", "mixed")


@functools.cache
def ladders() -> dict[str, tuple[pd.DataFrame, str]]:
    """nDCG@10 ``[query, rung]``, lowest first, and the highest rung that was kept, by collection."""
    table = pd.read_csv(KEPT / "ladders.tsv.xz", sep="\t", dtype={"query": str})
    found = {}
    for name, of in table.groupby("collection", sort=False):
        values = of.pivot(index="query", columns="rung", values="value")[of.rung.unique()]
        found[str(name)] = values, of[of.kept == 1].rung.iloc[-1]
    return found


def against(name: str, rung: str | None, other: str) -> Found:
    """A rung of a collection against another; None is what was kept."""
    values, kept = ladders()[name]
    return of_queries(values[rung or kept] - values[other])


def _shown(name: str, rung: str) -> str:
    values, kept = ladders()[name]
    if rung not in values:
        return ""
    return f"**{mean(values[rung])}**" if rung == kept else mean(values[rung])


def ladders_by_collection() -> str:
    """Every rung, that which was kept in bold."""
    body = []
    for name, shown in TEXTS.items():
        values, kept = ladders()[name]
        gaps = ["" if kept == other else against(name, None, other) for other in (FIRST, FUSED)]
        body.append([shown, len(values), *(_shown(name, rung) for rung in RUNGS), *gaps])
    means = [signed(sum(against(name, None, other).mean for name in TEXTS) / len(TEXTS)) for other in (FIRST, FUSED)]
    body.append(["mean of the differences", *[""] * (1 + len(RUNGS)), *means])
    return rows(["", "queries", *RUNGS.values(), "ranker − first stage", "ranker − fused"], body)


def trained(rung: str) -> dict[str, Found]:
    """A trained rung against the fusion, by collection."""
    return {name: against(name, rung, FUSED) for name in TEXTS if rung in ladders()[name][0]}


def ladders_trained() -> str:
    body = []
    for rung in TRAINED:
        found = trained(rung)
        gaps = [found.get(name, "") for name in trained("mixed")]
        body.append([RUNGS[rung], *gaps, pooled([*found.values()])])
    return rows(["− fused", *(TEXTS[name] for name in trained("mixed")), "pooled"], body)


def ladders_of_features() -> str:
    body = []
    for name, shown in FEATURES.items():
        values, _ = ladders()[name]
        best, *others = values.columns
        gaps = [f"{_shown(name, rung)} ({against(name, rung, best)})" for rung in others]
        body.append([shown, len(values), _shown(name, best), *gaps])
    return rows(["", "queries", "best feature", FUSED, "fine-tuned", "mixed"], body)


def ladders_seen() -> str:
    """SciFact's rungs by whether training claims share a relevant abstract."""
    values = ladders()["scifact"][0]
    seen = claims_of_scifact().seen.set_axis(claims_of_scifact().index.astype(str)).reindex(values.index)
    parts = {"300 claims": values, "196 with a seen abstract": values[seen == 1], "104 others": values[seen == 0]}
    body = [[RUNGS[rung], *(mean(part[rung]) for part in parts.values())] for rung in values]
    return rows(["", *parts], body)


def ladders_by_first_stage() -> str:
    """DL 2020's queries by what found their candidates: three folds, and the ranker that each fold's ladder kept."""
    body: list[list[object]] = []
    gaps: dict[str, list[pd.Series]] = {"ranker": [], FUSED: []}
    for name, shown in FIRST_STAGES.items():
        values, _ = ladders()[f"dl20-{name}"]
        means = [mean(values[rung]) for rung in (FIRST, "other evidence", FUSED, "ranker")]
        for rung, found in gaps.items():
            found.append(values[rung] - values[FIRST])
        cells = [of_queries(found[-1]) if found[-1].any() else "" for found in gaps.values()]
        body.append([shown, *means, *cells])
    pooled_gaps = [of_queries(sum(found) / len(found)) for found in gaps.values()]
    body.append(["mean of the six, over queries", *[""] * 4, *pooled_gaps])
    head = ["first stage", "itself", "best other", FUSED, "ranker", "ranker − first stage", "fused − first stage"]
    return rows(head, body)


def ladders_of_splade() -> str:
    """DL 2020 from SPLADE's candidates, with training: three folds together."""
    values, _ = ladders()["dl20-splade-trained"]
    body = []
    for rung in values:
        apart = [values[rung] - values[other] for other in (FIRST, FUSED)]
        gaps = [of_queries(gap) if gap.any() else "" for gap in apart]
        body.append([RUNGS.get(rung, rung), mean(values[rung]), *gaps])
    return rows(["", "nDCG@10", "− first stage", "− fused"], body)
