"""Collections of ir_datasets, by its ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rerank.collections.base import Document, Qrels, Query, joined
from rerank.errors import UserError, nearest, one_line
from rerank.storage.files import digest


def known_ids() -> list[str]:
    """Return the ids that ir_datasets lists."""
    import ir_datasets

    return list(ir_datasets.registry)


class IrDataset:
    """An ir_datasets id such as ``cranfield`` or ``beir/scifact/train``.

    The text of a document is ir_datasets' default text, or the chosen fields. Nothing is downloaded before it is
    needed. An unknown id is a KeyError.
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
            for document in self._dataset.docs_iter():
                yield Document(document.doc_id, _text(document, self.fields))

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
        """Return a digest of the fields and of the id that the documents come from, whose files have checksums."""
        import ir_datasets

        self._require("docs")
        return digest("ir_datasets", ir_datasets.docs_parent_id(self.name), "\0".join(self.fields or ()))


def _text(record: Any, fields: Sequence[str] | None) -> str:
    return joined([record.default_text()] if not fields else [getattr(record, field) for field in fields])


@contextmanager
def _available(name: str) -> Iterator[None]:
    """Say in one line that ir_datasets could not get its files."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
        reason = f"{type(error).__name__}: {one_line(error)}"
        advice = "check the network, or place them where the message above says"
        raise UserError(f"{name}: ir_datasets cannot get its files ({reason}); {advice}") from error
    except ImportError as error:  # some collections need further packages
        raise UserError(f"{name}: {one_line(error)}") from error
