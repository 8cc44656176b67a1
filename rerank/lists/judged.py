"""Check that runs and judgments are about a collection: count what it lacks, or refuse another collection's."""

from __future__ import annotations

from collections.abc import Collection

from rerank.errors import UserError
from rerank.progress import log

SHARE = 10
"""One of this many ids has to be known."""


def check_known(name: str, what: str, ids: Collection[str], unknown: Collection[str], least: int) -> None:
    """Warn of ids that a collection lacks, which are left out; refuse those of another collection.

    Args:
        name: what messages call the collection.
        what: what the ids are, such as ``judged queries``.
        ids: the ids.
        unknown: those among them that the collection lacks.
        least: a tenth of this many have to be known: of all ids, or of the collection's, if it may be a small part.

    Raises:
        UserError: none is known, or too few.
    """
    if not unknown:
        return
    known, example = len(ids) - len(unknown), min(unknown)
    if not known or SHARE * known < least:
        found = f"has only {known} of the {len(ids)} {what}, and not {example!r}"
        raise UserError(f"{name}: {found}; are they of another collection?")
    log.warning("%s: lacks %d of the %d %s, such as %r; left out", name, len(unknown), len(ids), what, example)
