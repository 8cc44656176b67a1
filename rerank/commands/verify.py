"""``rerank verify``: whether a folder of ours is whole, every file of it read again."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from pathlib import Path

from rerank.errors import NotFoundError, UserError
from rerank.models.contract import CONTRACT, checked_contract
from rerank.storage.hashes import check_files, read_sealed
from rerank.training.ids import file_of

log = logging.getLogger("rerank")

NOTES = ("config.yaml", "log.txt", "metrics.jsonl", "provenance.json")
"""Files of a run that are for people: a run writes some of them again later, and none has a hash."""


def verify(path: str | Path) -> list[str]:
    """Check a run folder, a checkpoint, a trained model, an experiment or a lists folder.

    Args:
        path: the folder.

    Returns:
        A line for each folder that was checked; all of them are whole.

    Raises:
        UserError: names the damaged file; or the folder is none of ours.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise NotFoundError(f"{folder}: no such folder")
    lines = list(_verified(folder))
    if not lines:
        raise UserError(f"{folder}: neither a run, a checkpoint, a model, an experiment, nor lists; nothing to verify")
    if any(line.endswith(": run") for line in lines):
        log.info("not compared, as nothing is computed from them: a run's %s", ", ".join(NOTES))
    return lines


def _verified(folder: Path) -> Iterator[str]:
    if (folder / "manifest.json").is_file():
        from rerank.lists.store import verify as verify_lists

        verify_lists(folder)
        yield f"{folder}: lists"
    elif (folder / "state.json").is_file():
        yield _checkpoint(folder)
    elif (folder / CONTRACT).is_file():
        yield _model(folder)
    elif (folder / "cells").is_dir():
        for cell in sorted({file.parent for file in (folder / "cells").rglob("*.json") if _is_run_file(file)}):
            yield from _run(cell)
    elif any(_is_run_file(file) for file in folder.glob("*.json")):
        yield from _run(folder)


def _is_run_file(path: Path) -> bool:
    """Whether a file is one by which a run folder, or the folder of a row that was not trained, is known."""
    if path.parent.name == "best" or path.parent.parent.name == "checkpoints":
        return False
    return path.name in ("identity.json", "measures.json") or path.name.startswith("test")


def _checkpoint(folder: Path) -> str:
    from rerank.training.checkpoint import check_checkpoint

    check_checkpoint(folder, remembered=False)
    return f"{folder}: checkpoint"


def _model(folder: Path) -> str:
    contract = checked_contract(folder, remembered=False)
    return f"{folder}: model" + ("" if "files" in contract else ", of a version without hashes")


def _run(folder: Path) -> Iterator[str]:
    """A run folder, with its checkpoints and its model; what is not there is not missed, as a run may be under way."""
    for checkpoint in sorted(folder.glob("checkpoints/step-*")):
        yield _checkpoint(checkpoint)
    if (folder / "best").is_dir():
        yield _model(folder / "best")
    identity = folder / "identity.json"
    own = hashlib.sha256(identity.read_bytes()).hexdigest() if identity.is_file() else None
    if (folder / "measures.json").is_file():
        content = read_sealed(folder / "measures.json")
        if own not in (None, content.get("id")):
            raise UserError(f"{identity}: damaged (sha256 {own}, measures.json is of {content.get('id')})")
    for path in sorted(folder.glob("test*.json")):
        content = read_sealed(path)
        if path.name == "test.json" and (folder / "test.trec").is_file():
            check_files(folder, {"test.trec": content["run"]}, remembered=False)
        elif path.name not in ("test.json", file_of(str(content["id"]))):
            raise UserError(f"{path}: holds {file_of(str(content['id']))}; give it that name, or remove it")
    yield f"{folder}: run"
