"""Collections of ir_datasets, by its ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rerank.collections.base import Document, Qrels, Query, joined
from rerank.errors import UserError, nearest
from rerank.files import digest


def known_ids() -> list[str]:
    """The ids that ir_datasets lists."""
    import ir_datasets

    return list(ir_datasets.registry)


class IrDataset:
    """An ir_datasets id such as ``cranfield`` or ``beir/scifact/train``.

    The text of a document is what ir_datasets calls its default text, or the chosen fields.
    """

    def __init__(self, name: str, fields: Sequence[str] | None = None):
        """Open it; nothing is downloaded before it is needed.

        Raises:
            KeyError: ir_datasets knows no such id.
            UserError: its documents have no such field.
        """
        import ir_datasets

        self.name = name
        self.fields = fields
        self._dataset: Any = ir_datasets.load(name)
        if fields and self._dataset.has_docs():
            known = self._dataset.docs_cls()._fields
            for field in fields:
                if field not in known:
                    raise UserError(
                        f"{name}: documents have no field {field!r}{nearest(field, known)}; {', '.join(known)}"
                    )

    def _require(self, part: str) -> None:
        if not getattr(self._dataset, f"has_{part}")():
            raise UserError(f"{self.name}: this ir_datasets id has no {part}; take one that has, such as a split of it")

    def documents(self) -> Iterator[Document]:
        """Stream the documents."""
        self._require("docs")
        with _available(self.name):
            for doc in self._dataset.docs_iter():
                values = [doc.default_text()] if self.fields is None else [getattr(doc, field) for field in self.fields]
                yield Document(doc.doc_id, joined(values))

    def queries(self) -> Iterator[Query]:
        """The queries in ir_datasets' order."""
        self._require("queries")
        with _available(self.name):
            for query in self._dataset.queries_iter():
                yield Query(query.query_id, joined([query.default_text()]))

    def qrels(self) -> Qrels | None:
        """The judgments, if this id has any."""
        if not self._dataset.has_qrels():
            return None
        with _available(self.name):
            return self._dataset.qrels_dict()

    def document_count(self) -> int | None:
        """As ir_datasets' metadata tell."""
        with _available(self.name):
            return self._dataset.docs_count() if self._dataset.has_docs() else None

    def fingerprint(self) -> str:
        """Digest of the id that the documents come from (their files are verified by checksum) and the fields."""
        import ir_datasets

        documents = ir_datasets.docs_parent_id(self.name)
        return digest("ir_datasets", documents, "\0".join(self.fields or ()), str(self.document_count()))


@contextmanager
def _available(name: str) -> Iterator[None]:
    """Say in one line that ir_datasets could not get its files."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # requests' errors are OSErrors
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        advice = "check the network, or place them where the message above says"
        raise UserError(f"{name}: ir_datasets cannot get its files ({reason}); {advice}") from error
    except ImportError as error:  # it asks for the packages of some collections only when they are read
        raise UserError(f"{name}: {' '.join(str(error).split())}") from error
