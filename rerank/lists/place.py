"""Where lists are made: a folder that appears whole or not at all, and may take the place of older lists."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rerank.errors import UserError
from rerank.lists.layout import is_lists_folder
from rerank.lists.store import Store
from rerank.storage.files import atomic_folder


@contextmanager
def new_lists(folder: str | Path, replace: bool = False) -> Iterator[Path]:
    """Fill a lists folder beside its place and rename it there at the end.

    Args:
        folder: where it shall be.
        replace: whether lists that are there give way; anything else is refused. Token ids and added columns stay where
            texts and candidates are the same, as after regrading.

    Yields:
        The temporary folder to fill.
    """
    folder = Path(folder)
    if folder.exists() and replace and not is_lists_folder(folder):
        raise UserError(f"{folder}: holds no ranked lists, so it is not replaced; name another folder")
    with atomic_folder(folder, replace=replace) as temporary:
        yield temporary
        if folder.exists():
            _keep_what_fits(folder, temporary)


def _keep_what_fits(old: Path, new: Path) -> None:
    """Keep the token ids of lists that give way, if texts are the same, and columns added to them, if candidates are.

    Regrading costs neither, then. Files are linked: the old folder is whole until the new one takes its place.
    """
    try:
        before, after = Store.open(old), Store.open(new)
    except UserError:  # of another version, or damaged
        return
    if before.texts_hash() == after.texts_hash() and (old / "tokens").is_dir():
        shutil.copytree(old / "tokens", new / "tokens", copy_function=_link)
    if before.manifest["candidates"] == after.manifest["candidates"]:
        added = set(before.column_names) - set(before.manifest["columns"])
        for name in added - set(after.column_names):
            _link(before.column_path(name), after.column_path(name))


def _link(source: str | Path, target: str | Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # a disk that has no links
        shutil.copy2(source, target)
