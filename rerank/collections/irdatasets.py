"""Collections of ir_datasets, by its ids."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from glob import glob
from pathlib import Path
from typing import Any

from rerank.collections.base import Document, Qrels, Query, joined
from rerank.errors import UserError, nearest, one_line
from rerank.storage.files import digest


class IrDataset:
    """An ir_datasets id such as ``cranfield`` or ``beir/scifact/train``.

    The text of a document is ir_datasets' default text. Nothing is downloaded before it is needed. An unknown id is a
    KeyError.
    """

    def __init__(self, name: str) -> None:
        import ir_datasets

        logging.getLogger("ir_datasets").addFilter(_is_news)
        self.name = name
        self._dataset: Any = ir_datasets.load(name)

    @staticmethod
    def known() -> list[str]:
        """Return the ids that ir_datasets lists."""
        import ir_datasets

        return list(ir_datasets.registry)

    def has(self, part: str) -> bool:
        """Return True if the id has ``docs``, ``queries`` or ``qrels``."""
        return bool(getattr(self._dataset, f"has_{part}")())

    def _require(self, part: str) -> None:
        if not self.has(part):
            raise UserError(f"{self.name}: this ir_datasets id has no {part}; take one that has, such as a split of it")

    def documents(self) -> Iterator[Document]:
        self._require("docs")
        with _available(self.name):
            for document in self._dataset.docs_iter():
                yield Document(document.doc_id, joined([document.default_text()]))

    def queries(self) -> Iterator[Query]:
        return self.queries_of(())

    def queries_of(self, fields: Sequence[str]) -> Iterator[Query]:
        """Yield the queries with these fields as their texts, or with ir_datasets' default text if there are none."""
        self._require("queries")
        known = self._dataset.queries_cls()._fields
        if lacking := next((field for field in fields if field not in known), None):
            raise UserError(
                f"{self.name}: queries have no field {lacking!r}{nearest(lacking, known)}; {', '.join(known)}"
            )
        with _available(self.name):
            for query in self._dataset.queries_iter():
                texts = [getattr(query, field) for field in fields] if fields else [query.default_text()]
                yield Query(query.query_id, joined(texts))

    def qrels(self) -> Qrels | None:
        if not self.has("qrels"):
            return None
        with _available(self.name):
            return self._dataset.qrels_dict()

    def fingerprint(self) -> str:
        """Return a digest of the id that the documents come from, whose files have checksums."""
        import ir_datasets

        self._require("docs")
        return digest("ir_datasets", ir_datasets.docs_parent_id(self.name))

    def missing_files(self, part: str) -> list[tuple[Path, int | None, str]]:
        """Return place, size in bytes and URL of the files of a part that are not there; manual ones have no size."""
        found = {}
        for download, extracted in _downloads(getattr(self._dataset, f"{part}_handler")()):
            local = [Path(mirror._path) for mirror in download.mirrors if hasattr(mirror, "_path")]
            place = next(filter(None, [download._cache_path, extracted, *local]), None)
            if place and not any(path.exists() for path in (Path(place), *local)):
                terms = re.findall(r"<(https?:[^>]+)>", download.dua or "")
                urls = [mirror.url for mirror in download.mirrors if hasattr(mirror, "url")] + terms
                found[place] = Path(place), download._size_hint, urls[0] if urls else "its authors"
        return list(found.values())

    def miscounted_files(self) -> str:
        """Say how many files of a licensed collection are in its folder, unless that is their right number."""
        documents: Any = self._dataset.docs_handler()
        expected = getattr(documents, "_expected_file_count", None)
        if expected is None or not Path(documents.docs_path()).is_dir():  # an archive has its files inside
            return ""
        folder, patterns = documents.docs_path(), documents._path_globs
        count = sum(len(glob(f"{folder}/{pattern}", recursive=True)) for pattern in patterns)
        names = ", ".join(patterns)
        return "" if count == expected else f"found {count} of {expected} files in {folder}, called {names}"


def _is_news(record: logging.LogRecord) -> bool:
    """Drop failed downloads, up to 900 characters each, which become one error."""
    return not record.getMessage().lower().startswith(("download error", "download failed"))


def _downloads(handler: Any, place: Path | None = None) -> Iterator[tuple[Any, Path | None]]:
    """Yield the downloads behind a handler of ir_datasets with the places of their extracted files, unless there."""
    from ir_datasets.util import Download

    for value in vars(handler).values():
        for inner in value if isinstance(value, list | tuple) else [value]:
            if isinstance(inner, Download):
                yield inner, place
            elif type(inner).__module__.startswith("ir_datasets") and hasattr(inner, "__dict__"):
                extracted = Path(vars(inner).get("_path") or vars(inner).get("_extract_path") or "")
                if not (extracted.is_absolute() and extracted.exists()):
                    yield from _downloads(inner, extracted if extracted.is_absolute() else place)


LONGEST = 300
"""Characters of an error of ir_datasets that is shown; those of failed downloads have up to 900."""


@contextmanager
def _available(name: str) -> Iterator[None]:
    """Say in one line that ir_datasets could not get its files."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
        reason = one_line(error) if len(str(error)) <= LONGEST else type(error).__name__
        raise UserError(
            f"{name}: ir_datasets cannot get its files ({reason}); see where they go with rerank retrieve --check"
        ) from error
    except ImportError as error:  # some collections need further packages
        raise UserError(f"{name}: {one_line(error)}") from error
