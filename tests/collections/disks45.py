"""A folder that ir_datasets takes for TREC disks 4 and 5: the markup of their four sources, words made up."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

FILES = 2295
"""As many as the disks have without the Congressional Record; ir_datasets counts them."""

FORMS = {
    "FT": "<HEADLINE>\nFT  14 MAY 91 / {title}\n</HEADLINE>\n<TEXT>\n{text}\n</TEXT>",
    "FB": "<HEADER>\n<H3> <TI>      {title} </TI></H3>\n</HEADER>\n\n<TEXT>\n{text}\n</TEXT>",
    "LA": "<HEADLINE>\n<P>\n{title}\n</P>\n</HEADLINE>\n<TEXT>\n<P>\n{text}\n</P>\n</TEXT>",
    "FR": "<TEXT>\n\n<!-- PJG FTAG 4700 -->\n\n&blank;/&blank;Notices\n<DOCTITLE>{title}</DOCTITLE>\n{text}\n</TEXT>",
}
"""By the beginnings of ids."""


def make_text(id: str) -> tuple[str, str]:
    """Title and text of a document: words that its id decides, some texts longer than a chunk."""
    rng = random.Random(id)
    words = ["government", "trade", "market", "crime", "telescope", "health", "river", "tunnel", "export", "drug"]
    words += ["ship", "energy", "law", "women", "science", "police", "computer", "school", "forest", "water", f"w{id}"]
    return " ".join(rng.choices(words, k=5)), " ".join(rng.choices(words, k=rng.choice([15, 60, 150])))


def write_disks(folder: Path, ids: Iterable[str]) -> None:
    """Write the documents into ``FILES`` files, those left over with a document that nobody asks for."""
    inside: list[list[str]] = [[] for _ in range(FILES)]
    for i, id in enumerate(ids):
        inside[i % FILES].append(id)
    (folder / "FT" / "FT911").mkdir(parents=True)
    for i, some in enumerate(inside):
        text = "".join(_markup(id) for id in some or [f"FT911-{90000 + i}"])
        (folder / "FT" / "FT911" / f"FT911_{i}").write_text(text)


def _markup(id: str) -> str:
    title, text = make_text(id)
    return f"<DOC>\n<DOCNO> {id} </DOCNO>\n{FORMS[id[:2]].format(title=title, text=text)}\n</DOC>\n"
