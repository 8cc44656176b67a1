"""Collections of ir_datasets, by its ids."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rerank.collections.base import Document, Qrels, Query, joined
from rerank.errors import UserError, nearest, one_line
from rerank.storage.files import digest, file_state, warn_once


def known_ids() -> list[str]:
    """The ids that ir_datasets lists."""
    import ir_datasets

    return list(ir_datasets.registry)


class IrDataset:
    """An ir_datasets id such as ``cranfield`` or ``beir/scifact/train``.

    The text of a document is what ir_datasets calls its default text, or the chosen fields. Nothing is downloaded
    before it is needed. An unknown id is a KeyError.
    """

    def __init__(self, name: str, fields: Sequence[str] | None = None):
        import ir_datasets

        self.name = name
        self.fields = fields
        self._dataset: Any = ir_datasets.load(name)
        if fields and self._dataset.has_docs():
            self._check_fields("documents", fields, self._dataset.docs_cls()._fields)

    def _check_fields(self, of: str, fields: Sequence[str], known: Sequence[str]) -> None:
        for field in fields:
            if field not in known:
                raise UserError(f"{self.name}: {of} have no field {field!r}{nearest(field, known)}; {', '.join(known)}")

    def _require(self, part: str) -> None:
        if not getattr(self._dataset, f"has_{part}")():
            raise UserError(f"{self.name}: this ir_datasets id has no {part}; take one that has, such as a split of it")

    def documents(self) -> Iterator[Document]:
        self._require("docs")
        with _available(self.name):
            yield from self._read(self._dataset.docs_iter())

    def cheaper_by_id(self, wanted: int) -> bool:
        """Only where ir_datasets has a copy for looking them up: to make one takes longer than to stream."""
        return self._copy() is not None and 2 * wanted < (self.document_count() or 0)

    def documents_by_id(self, ids: Set[str]) -> Iterator[Document]:
        left = set(ids)  # ids longer than any of its own are cut by ir_datasets, and then found
        with _available(self.name):
            for document in self._read(self._copy().get_many_iter(sorted(ids))):
                if document.id in left:
                    left.remove(document.id)
                    yield document

    def _copy(self) -> Any:
        """ir_datasets' own copy of the documents, which has an index and their order; None where there is none."""
        from ir_datasets.indices import PickleLz4FullStore

        self._require("docs")
        with _available(self.name):
            store = self._dataset.docs_store()
            return store if isinstance(store, PickleLz4FullStore) and store.built() else None

    def _read(self, docs: Iterable[Any]) -> Iterator[Document]:
        return (Document(doc.doc_id, _text(doc, self.fields)) for doc in docs)

    def queries(self, fields: Sequence[str] | None = None) -> Iterator[Query]:
        self._require("queries")
        self._check_fields("queries", fields or (), self._dataset.queries_cls()._fields)
        with _available(self.name):
            for query in self._dataset.queries_iter():
                yield Query(query.query_id, _text(query, fields))

    def qrels(self) -> Qrels | None:
        if not self._dataset.has_qrels():
            return None
        with _available(self.name):
            return self._dataset.qrels_dict()

    def document_count(self) -> int | None:
        with _available(self.name):
            return self._dataset.docs_count() if self._dataset.has_docs() else None

    def fingerprint(self) -> str:
        """Digest of the id that the documents come from, the fields, and the files if the user supplies them.

        What ir_datasets downloads it verifies by checksum, so there the id says it all.
        """
        import ir_datasets

        self._require("docs")
        documents = ir_datasets.docs_parent_id(self.name)
        with _available(self.name):
            handler = self._dataset.docs_handler()
            # Where they are missing, reading the documents says what to do.
            supplied = [_files(path) for path in _supplied(handler, set()) if path.exists()]
            for files in supplied:
                _warn_of_old_copy(handler, files)
            states = [file_state(files) for files in supplied]
        return digest("ir_datasets", documents, "\0".join(self.fields or ()), *states)


def _text(record: Any, fields: Sequence[str] | None) -> str:
    return joined([record.default_text()] if not fields else [getattr(record, field) for field in fields])


def _supplied(part: Any, seen: set[int]) -> Iterator[Path]:
    """The files and folders that ir_datasets cannot download but expects from the user, below one of its objects.

    It has no name for them: handlers keep their sources in attributes, wrapped in one another.
    """
    from ir_datasets.util.download import Download, LocalDownload

    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, Download):
        if all(isinstance(source, LocalDownload) for source in part.mirrors):
            yield Path(part.path(force=False))
    elif isinstance(part, list | tuple):
        for inner in part:
            yield from _supplied(inner, seen)
    elif type(part).__module__.startswith("ir_datasets.") and hasattr(part, "__dict__"):
        yield from _supplied(list(vars(part).values()), seen)


def _files(path: Path) -> list[Path]:
    """List a file, or the files of a folder at any depth, through links to folders too: so are disks put together."""
    if path.is_file():
        return [path]
    found = (Path(name) for name in sorted(glob.glob(f"{glob.escape(str(path))}/**/*", recursive=True)))
    return [file for file in found if file.is_file()]


def _warn_of_old_copy(handler: Any, files: Sequence[Path]) -> None:
    """Where ir_datasets has a copy of the documents for looking them up, it reads that and never the files again."""
    copy = Path(getattr(handler.docs_store(), "path", "nowhere"))
    if copy.is_dir():
        made = max(file.stat().st_mtime for file in [copy, *copy.iterdir()])
        changed = next((file for file in files if file.stat().st_mtime > made), None)
        if changed is not None:
            warn_once(f"{copy}: ir_datasets reads this copy, which is older than {changed}; delete it if that changed")


@contextmanager
def _available(name: str) -> Iterator[None]:
    """Say in one line that ir_datasets could not get its files."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
        reason = f"{type(error).__name__}: {one_line(error)}"
        advice = "check the network, or place them where the message above says"
        raise UserError(f"{name}: ir_datasets cannot get its files ({reason}); {advice}") from error
    except ImportError as error:  # it asks for the packages of some collections only when they are read
        raise UserError(f"{name}: {one_line(error)}") from error
