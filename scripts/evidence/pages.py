"""The pages that hold tables and claims, and what differs between them and the kept values."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from scripts.evidence import documents, effects, fusion, ladders, losses, others, where
from scripts.evidence.claims import claims, claims_table
from scripts.evidence.kept import ROOT, STUDIES
from scripts.evidence.pointwise import pointwise
from scripts.evidence.statistics import MARGIN, plain

BLOCKS: dict[str, Callable[[], str]] = {
    "effects": effects.effects_table,
    "readme": effects.readme_table,
    "losses-pooled": losses.losses_pooled,
    "losses-collections": losses.losses_by_collection,
    "losses-seed-1": losses.first_seed,
    "losses-seeds": losses.seeds,
    "losses-cost": lambda: others.costs(*losses.SIX),
    "fusion": fusion.fusion_by_collection,
    "started": fusion.started_by_collection,
    "hybrid-nfcorpus": fusion.hybrid_nfcorpus,
    "hybrid-cost": lambda: others.costs("hybrid-nfcorpus"),
    "ladders": ladders.ladders_by_collection,
    "ladders-trained": ladders.ladders_trained,
    "ladders-features": ladders.ladders_of_features,
    "ladders-seen": ladders.ladders_seen,
    "ladders-first": ladders.ladders_by_first_stage,
    "ladders-splade": ladders.ladders_of_splade,
    "mixing": losses.mixing_by_collection,
    "mixing-counts": losses.counts_table,
    "seen": others.seen_and_unseen,
    "seen-cost": lambda: others.costs("hybrid-scifact"),
    **{name: functools.partial(others.matrix, name) for name in others.MATRICES},
    "matrix-pooled": others.matrix_pooled,
    "matrix-power": others.matrix_power,
    "matrix-cost": lambda: others.costs(*others.MATRICES),
    "teachers": others.teachers,
    "teachers-cost": lambda: others.costs("distillation"),
    "lengths": others.lengths,
    "lengths-cost": lambda: others.costs("lengths", "lengths-started"),
    "where": where.where_primary,
    "where-losses": where.where_losses,
    "where-between": where.where_between,
    "where-cost": where.where_cost,
    "where-pointwise": where.where_pointwise,
    "where-ladder": where.where_ladder,
    "documents": documents.documents_means,
    "documents-fresh": documents.documents_against_fresh,
    "documents-seen": documents.documents_seen,
    "pointwise": pointwise,
    "claims": claims_table,
}
"""What stands between ``<!-- table: NAME -->`` and ``<!-- end -->``."""

BLOCK = re.compile(r"(<!-- table: (\S+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.\-/])[+−]?\.\d{3,}")
"""A number without a leading zero, as measures and differences are written."""


@functools.cache
def made(name: str) -> str:
    """A table, as the kept values have it."""
    return BLOCKS[name]()


def pages() -> dict[str, str]:
    """The pages that have tables or claims."""
    paths = [ROOT / "README.md", ROOT / "docs" / "evidence.md", *sorted(STUDIES.glob("*.md"))]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}


def filled(text: str) -> str:
    """A page with its tables as the kept values have them."""
    return BLOCK.sub(lambda found: f"{found[1]}\n{made(found[2])}\n\n{found[4]}", text)


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text.replace("*", ""))


def problems(texts: dict[str, str]) -> list[str]:
    """Tables and sentences that are not those of the kept values, and numbers in sentences that no claim has."""
    found = []
    for page, text in texts.items():
        for block in BLOCK.finditer(text):
            if block[3].strip() != made(block[2]):
                found.append(f"{page}: the table {block[2]} is not that of the kept values")
    for claim in claims():
        if claim.text not in squeezed(texts[claim.page]):
            found.append(f"{claim.page}: not there: {claim.text}")
    for page in ("README.md", "docs/evidence.md"):
        text = squeezed(BLOCK.sub("", texts[page]))
        if page == "README.md":
            text = text[text.index("## What moves the number") : text.index("## Is it for you?")]
        for claim in claims():
            text = text.replace(claim.text, "")
        found += [f"{page}: no claim has {number}" for number in NUMBER.findall(text) if number != plain(MARGIN, 2)]
    return found
