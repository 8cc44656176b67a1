"""List what ``rerank retrieve`` will read, and say what is missing and where it goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from rerank.errors import UserError, one_line

if TYPE_CHECKING:
    from rerank.tasks.retrieve import Search


def retrieve_inputs(
    collection: str | None = None,
    records: str | None = None,
    run: Sequence[str] | None = None,
    search: Search | None = None,
    dense: str | None = None,
    queries: str | None = None,
    qrels: str | None = None,
    **others: Any,
) -> Iterator[tuple[str, str]]:
    """Yield the inputs of :func:`rerank.retrieve` with these options, and what to do about each that is missing.

    Nothing is downloaded.
    """
    titles = queries == "titles"
    if collection is not None:
        needed = {"docs": True, "queries": queries is None, "qrels": qrels is None and not titles}
        yield from _collection(collection, [part for part, own in needed.items() if own])
    for source, part in ((None if titles else queries, "queries"), (qrels, "qrels")):
        if source is not None:
            yield from [(source, "")] if Path(source).expanduser().is_file() else _collection(source, [part])
    for word in run or []:
        file = Path(word if Path(word).is_file() else word.partition("=")[2] or word).expanduser()
        yield f"run {file}", "" if file.is_file() else f"no such file; put it at {file.absolute()}"
    for name, kind in ((records, "dataset"), (dense, "model")):
        if name is not None:
            yield f"{kind} {name}", _local_or_hub(name, kind)
    if search is not None and search.index is not None:
        yield f"index {search.index}", _index(search.index)


def _collection(name: str, parts: Sequence[str]) -> Iterator[tuple[str, str]]:
    from rerank.collections.irdatasets import IrDataset
    from rerank.collections.names import open_collection

    prefix, _, path = name.partition(":")
    if prefix == "lucene":
        yield f"index {path}", _index(path)
    elif name in IrDataset.known():
        dataset = IrDataset(name)
        for part in filter(dataset.has, parts):
            advice = [
                f"put them at {place}, see {url}"
                if size is None
                else f"{place}, {tqdm.format_sizeof(size, 'B')} from {url}"
                for place, size, url in dataset.missing_files(part)
            ]
            if part == "docs" and not advice:
                advice = [dataset.miscounted_files()]
            yield f"{part} of {name}", "; ".join(advice)
    else:
        try:
            found = open_collection(name)
            if "queries" in parts:
                next(iter(found.queries()), None)
            yield name, ""
        except UserError as error:
            yield name, one_line(error)


def _index(name: str) -> str:
    """Return how to get an index; empty if it is there."""
    if Path(name).expanduser().is_dir():
        return ""
    from rerank.collections.lucene import start_jvm

    start_jvm()  # before pyserini starts it in its own way
    from pyserini.prebuilt_index_info import TF_INDEX_INFO
    from pyserini.util import get_cache_home

    if name not in TF_INDEX_INFO:
        return "neither a folder nor one of Pyserini's prebuilt indexes"
    about, folder = TF_INDEX_INFO[name], Path(get_cache_home()) / "indexes"
    size = tqdm.format_sizeof(about["size compressed (bytes)"], "B")
    place = folder / f"{Path(about['urls'][0]).name.removesuffix('.tar.gz')}.{about['md5']}"
    return "" if any(folder.glob(f"*.{about['md5']}")) else f"{place}, unpacked; {size} from {about['urls'][0]}"


def _local_or_hub(name: str, kind: str) -> str:
    """Return how to get a model or a data set; empty if it is there."""
    from huggingface_hub import constants

    stored = Path(constants.HF_HUB_CACHE, f"{kind}s--{name.partition(':')[0].replace('/', '--')}")
    there = Path(name).expanduser().exists() or stored.is_dir()
    return "" if there else f"no such file or folder; from the hub, it goes to {constants.HF_HUB_CACHE}"
