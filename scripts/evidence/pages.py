"""The pages that hold tables and claims, and what differs between them and the kept values."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

from scripts.evidence.claims import claims, claims_table
from scripts.evidence.documents import documents_against_fresh, documents_means, documents_seen
from scripts.evidence.effects import effects_table, readme_table
from scripts.evidence.fusion import fusion_by_collection, hybrid_nfcorpus, started_by_collection
from scripts.evidence.kept import ROOT, STUDIES
from scripts.evidence.ladders import (
    ladders_by_collection,
    ladders_by_first_stage,
    ladders_of_features,
    ladders_of_splade,
    ladders_seen,
    ladders_trained,
)
from scripts.evidence.losses import (
    SIX,
    counts_table,
    first_seed,
    losses_by_collection,
    losses_pooled,
    mixing_by_collection,
    seeds,
)
from scripts.evidence.others import (
    MATRICES,
    costs,
    lengths,
    matrix,
    matrix_pooled,
    matrix_power,
    seen_and_unseen,
    teachers,
)
from scripts.evidence.statistics import MARGIN, plain
from scripts.evidence.where import (
    where_between,
    where_cost,
    where_ladder,
    where_losses,
    where_pointwise,
    where_primary,
)

BLOCKS: dict[str, Callable[[], str]] = {
    "effects": effects_table,
    "readme": readme_table,
    "losses-pooled": losses_pooled,
    "losses-collections": losses_by_collection,
    "losses-seed-1": first_seed,
    "losses-seeds": seeds,
    "losses-cost": lambda: costs(*SIX),
    "fusion": fusion_by_collection,
    "started": started_by_collection,
    "hybrid-nfcorpus": hybrid_nfcorpus,
    "hybrid-cost": lambda: costs("hybrid-nfcorpus"),
    "ladders": ladders_by_collection,
    "ladders-trained": ladders_trained,
    "ladders-features": ladders_of_features,
    "ladders-seen": ladders_seen,
    "ladders-first": ladders_by_first_stage,
    "ladders-splade": ladders_of_splade,
    "mixing": mixing_by_collection,
    "mixing-counts": counts_table,
    "seen": seen_and_unseen,
    "seen-cost": lambda: costs("hybrid-scifact"),
    **{name: functools.partial(matrix, name) for name in MATRICES},
    "matrix-pooled": matrix_pooled,
    "matrix-power": matrix_power,
    "matrix-cost": lambda: costs(*MATRICES),
    "teachers": teachers,
    "teachers-cost": lambda: costs("distillation"),
    "lengths": lengths,
    "lengths-cost": lambda: costs("lengths", "lengths-started"),
    "where": where_primary,
    "where-losses": where_losses,
    "where-between": where_between,
    "where-cost": where_cost,
    "where-pointwise": where_pointwise,
    "where-ladder": where_ladder,
    "documents": documents_means,
    "documents-fresh": documents_against_fresh,
    "documents-seen": documents_seen,
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
