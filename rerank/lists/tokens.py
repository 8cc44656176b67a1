"""Token ids of a lists folder: computed once, kept inside the folder, keyed by all that decides them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rerank.arrow import Array, ArrowWriter, Ragged, read_arrow
from rerank.errors import UserError
from rerank.files import atomic_folder, digest
from rerank.hashes import check_files, hash_files, read_sealed, write_sealed
from rerank.lists.store import Store
from rerank.locks import held, tidied
from rerank.progress import tqdm

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCH = 1024
REPORT = "tokens.json"
SCHEMA = pa.schema([("ids", pa.list_(pa.int32()))])


@dataclass(frozen=True)
class Tokens:
    """Token ids of the queries and documents of a lists folder, without special tokens.

    Attributes:
        queries: row of the store -> ids.
        documents: row of the store -> ids.
        query_lengths: ``[queries]`` int64.
        document_lengths: ``[documents]`` int64.
        truncated: how many documents were longer than ``document_length``.
    """

    queries: Ragged
    documents: Ragged
    query_lengths: Array
    document_lengths: Array
    truncated: int

    @classmethod
    def of(cls, queries: list[Array], documents: list[Array]) -> Tokens:
        """Tokens of texts that are in no store."""
        sides = Ragged.of(queries), Ragged.of(documents)
        return cls(*sides, sides[0].lengths(), sides[1].lengths(), truncated=0)


@dataclass(frozen=True)
class Side:
    """How the texts of queries, or of documents, become tokens.

    Attributes:
        length: word pieces kept of a text.
        lead: what stands before a text wherever it is read, and joins its first word (a space).
        tail: what stands behind it, and joins its last one (a line's end); never cut.
    """

    length: int
    lead: str = ""
    tail: str = ""

    def key(self) -> str:
        """What of it decides the tokens."""
        return f"{self.length}{self.lead!r}{self.tail!r}" if self.lead or self.tail else str(self.length)


def encode(tokenizer: PreTrainedTokenizerBase, side: Side, texts: Sequence[str]) -> tuple[list[Array], int]:
    """Token ids of texts, without special tokens, and how many texts were cut."""
    if not texts:
        return [], 0
    keys: dict[str, Any] = {"add_special_tokens": False, "truncation": False, "verbose": False}
    keys |= {"return_attention_mask": False, "return_token_type_ids": False}
    tail = tokenizer(side.tail, **keys)["input_ids"] if side.tail else []
    whole = tokenizer([f"{side.lead}{text}{side.tail}" for text in texts], **keys)["input_ids"]
    found = [ids if len(ids) <= side.length else [*ids[: side.length], *tail] for ids in whole]
    cut = sum(len(ids) > side.length + len(tail) for ids in whole)
    return [np.asarray(ids, dtype=np.int32) for ids in found], cut


Around = tuple[tuple[str, str], tuple[str, str]]
"""``lead`` and ``tail`` of queries and of documents."""

NOTHING: Around = ("", ""), ("", "")


def tokenise(
    store: Store,
    tokenizer: PreTrainedTokenizerBase,
    query_length: int,
    document_length: int,
    around: Around = NOTHING,
) -> Tokens:
    """The tokens of all texts of a store, from its cache where they are there.

    Lists in memory keep them there; lists made of several folders use those folders' own.

    Args:
        store: where the texts are.
        tokenizer: a fast Hugging Face tokenizer.
        query_length: word pieces kept of a query.
        document_length: word pieces kept of a document.
        around: what stands around the texts wherever they are read.
    """
    query, document = Side(query_length, *around[0]), Side(document_length, *around[1])
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(f"{tokenizer.name_or_path}: has no fast tokenizer (tokenizer.json); choose a model with one")
    if not store.has_text:
        raise UserError(f"{store}: has no texts to read; use a model over columns, such as MLP or LightGBM")
    key = digest(store.texts_hash(), backend.to_str(), f"{query.key()}/{document.key()}")
    if key not in store.memory:
        if store.parts:
            parts = [tokenise(part, tokenizer, query_length, document_length, around) for part in store.parts]
            store.memory[key] = _joined(parts)
        elif store.folder is None:
            with tempfile.TemporaryDirectory() as folder:
                _write(store, Path(folder), tokenizer, query, document)
                store.memory[key] = _read(Path(folder), in_memory=True)
        else:
            store.memory[key] = _cached(store, store.folder / "tokens" / key, tokenizer, query, document)
    return store.memory[key]


def _cached(store: Store, folder: Path, tokenizer: PreTrainedTokenizerBase, query: Side, document: Side) -> Tokens:
    """The tokens in a folder, computed into it by the first process that needs them; others wait."""
    if (folder / REPORT).is_file():
        tidied(folder)
    else:
        with held(folder, "tokenising", wait=True):
            if not (folder / REPORT).is_file():
                with atomic_folder(folder, replace=True) as temporary:
                    _write(store, temporary, tokenizer, query, document)
    try:
        check_files(folder, read_sealed(folder / REPORT)["files"])
    except UserError as error:
        raise UserError(f"{error} (it is a cache: the folder {folder} may be removed)") from error
    return _read(folder)


def _write(store: Store, folder: Path, tokenizer: PreTrainedTokenizerBase, query: Side, document: Side) -> None:
    report: dict[str, Any] = {}
    sides = ("queries", store.queries, query), ("documents", store.documents, document)
    for name, table, side in sides:
        cuts = []
        with (
            tqdm(total=table.num_rows, desc=f"tokenise {name}", unit=f" {name}", disable=None) as progress,
            ArrowWriter(folder / f"{name}.arrow", SCHEMA) as file,
        ):
            for start in range(0, table.num_rows, BATCH):
                texts = table.column("text").slice(start, BATCH).to_pylist()
                ids, cut = encode(tokenizer, side, texts)
                file.add({"ids": ids})
                cuts.append(cut)
                progress.update(len(texts))
        report[f"truncated_{name}"] = sum(cuts)
    write_sealed(folder / REPORT, report | {"files": hash_files(folder, [f"{name}.arrow" for name, _, _ in sides])})


def _read(folder: Path, in_memory: bool = False) -> Tokens:
    report = read_sealed(folder / REPORT)
    read = (lambda path: pa.ipc.open_stream(path.read_bytes()).read_all()) if in_memory else read_arrow
    queries, documents = (Ragged(read(folder / f"{name}.arrow").column("ids")) for name in ("queries", "documents"))
    return Tokens(queries, documents, queries.lengths(), documents.lengths(), report["truncated_documents"])


def _joined(parts: Sequence[Tokens]) -> Tokens:
    return Tokens(
        queries=Ragged.joined([part.queries for part in parts]),
        documents=Ragged.joined([part.documents for part in parts]),
        query_lengths=np.concatenate([part.query_lengths for part in parts]),
        document_lengths=np.concatenate([part.document_lengths for part in parts]),
        truncated=sum(part.truncated for part in parts),
    )
