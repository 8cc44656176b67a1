"""``rerank verify``: whether a folder of ours is whole, every file of it read again."""

from __future__ import annotations

import hashlib
from pathlib import Path

from rerank.errors import NotFoundError, UserError
from rerank.lists.store import verify as check_lists
from rerank.models.contract import CONTRACT, checked_contract
from rerank.progress import log
from rerank.storage.hashes import check_files, read_sealed
from rerank.training.checkpoint import check_checkpoint
from rerank.training.ids import file_of


def verify(path: str | Path) -> list[str]:
    """Check all runs, checkpoints, trained models and lists in a folder, such as an experiment's."""
    root = Path(path)
    if not root.is_dir():
        raise NotFoundError(f"{root}: no such folder")
    inside = sorted(folder.relative_to(root) for folder in root.rglob("*") if folder.is_dir())
    folders = [root, *(root / name for name in inside if not any(part.startswith(".") for part in name.parts))]
    lines = [f"{folder}: {kind}" for folder in folders if (kind := _checked(folder))]
    if not lines:
        raise UserError(f"{root}: neither a run, a checkpoint, a model, an experiment, nor lists; nothing to verify")
    if any(line.endswith(": run") for line in lines):
        log.info("not compared, as nothing is computed from them: a run's config.yaml, logs and provenance.json")
    return lines


def _checked(folder: Path) -> str:
    """What a folder is, now that it was found whole; empty if it is none of ours."""
    if (folder / "manifest.json").is_file():
        check_lists(folder)
        return "lists"
    if (folder / "state.json").is_file():
        check_checkpoint(folder, remembered=False)
        return "checkpoint"
    if (folder / CONTRACT).is_file() and not any(folder.glob("segments_*")):  # as a Lucene index has
        checked_contract(folder, remembered=False)
        return "model"
    if any((folder / name).is_file() for name in ("identity.json", "measures.json")) or any(folder.glob("test*.json")):
        _check_run(folder)
        return "run"
    return ""


def _check_run(folder: Path) -> None:
    """The files of a run beside its checkpoints and its model; what is missing may be under way."""
    identity, measures = folder / "identity.json", folder / "measures.json"
    if measures.is_file():
        id = read_sealed(measures).get("id")
        if identity.is_file() and (own := hashlib.sha256(identity.read_bytes()).hexdigest()) != id:
            raise UserError(f"{identity}: damaged (sha256 {own}, measures.json is of {id})")
    for path in sorted(folder.glob("test*.json")):
        content = read_sealed(path)
        if path.name == "test.json" and (folder / "test.trec").is_file():
            check_files(folder, {"test.trec": content["run"]}, remembered=False)
        elif path.name not in ("test.json", file_of(str(content["id"]))):
            raise UserError(f"{path}: holds {file_of(str(content['id']))}; give it that name, or remove it")
