"""Token ids of a lists folder: computed once, kept inside the folder, keyed by all that decides them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from rerank.collections.base import encodable
from rerank.errors import UserError
from rerank.lists.store import Store
from rerank.progress import tqdm
from rerank.storage.arrow import Array, Ragged, read_arrow, write_arrow
from rerank.storage.files import atomic_folder, digest, exclusive_lock, read_json, write_json

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCH = 1024
REPORT = "tokens.json"
SCHEMA = pa.schema([("ids", pa.list_(pa.int32()))])


@dataclass(frozen=True)
class Tokens:
    """Token ids of queries and documents, without special tokens; ``truncated`` counts documents that were cut."""

    queries: Ragged
    documents: Ragged
    truncated: int = 0

    @classmethod
    def of(cls, queries: list[Array], documents: list[Array]) -> Tokens:
        """Tokens of texts that are in no store."""
        sides = [Ragged(pa.chunked_array([pa.array(side, SCHEMA.types[0])])) for side in (queries, documents)]
        return cls(sides[0], sides[1])

    @cached_property
    def query_lengths(self) -> Array:
        return self.queries.lengths()

    @cached_property
    def document_lengths(self) -> Array:
        return self.documents.lengths()


@dataclass(frozen=True)
class Side:
    """Tokenisation of queries or documents.

    Attributes:
        lead: what stands before a text wherever it is read, and joins its first word (a space).
        tail: what stands behind it, and joins its last one (a line's end); never cut.
    """

    length: int
    lead: str = ""
    tail: str = ""


def encode(tokenizer: PreTrainedTokenizerBase, side: Side, texts: Sequence[str]) -> tuple[list[Array], int]:
    """Return the token ids of texts, without special tokens, and the number of texts that were cut."""
    if not texts:
        return [], 0
    keys: dict[str, Any] = {"add_special_tokens": False, "truncation": False, "verbose": False}
    keys |= {"return_attention_mask": False, "return_token_type_ids": False}
    tail = tokenizer(side.tail, **keys)["input_ids"] if side.tail else []
    most = side.length + len(tail)
    whole = tokenizer([encodable(f"{side.lead}{text}{side.tail}") for text in texts], **keys)["input_ids"]
    fits = (len(ids) <= side.length or (len(ids) <= most and ids[-len(tail) :] == tail) for ids in whole)
    found = [ids if fit else [*ids[: side.length], *tail] for ids, fit in zip(whole, fits, strict=True)]
    cut = sum(len(ids) > most for ids in whole)
    return [np.asarray(ids, dtype=np.int32) for ids in found], cut


Around = tuple[tuple[str, str], tuple[str, str]]
"""``lead`` and ``tail`` of queries and of documents."""

NOTHING: Around = ("", ""), ("", "")


def tokenise(
    store: Store, tokenizer: PreTrainedTokenizerBase, query_length: int, document_length: int, around: Around = NOTHING
) -> Tokens:
    """Return the tokens of all texts of a store, kept in its folder, in memory, or in the folders of its parts."""
    query, document = Side(query_length, *around[0]), Side(document_length, *around[1])
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(f"{tokenizer.name_or_path}: has no fast tokenizer (tokenizer.json); choose a model with one")
    if not store.has_text:
        raise UserError(f"{store}: has no texts to read; use a model over columns, such as MLP or LightGBM")
    key = digest(_rules(backend), repr((query, document)))
    if key not in store.memory:
        if store.parts:
            parts = [tokenise(part, tokenizer, query_length, document_length, around) for part in store.parts]
            sides = Ragged.joined([part.queries for part in parts]), Ragged.joined([part.documents for part in parts])
            store.memory[key] = Tokens(*sides, sum(part.truncated for part in parts))
        elif store.folder is None:
            with tempfile.TemporaryDirectory() as folder:
                _write(store, Path(folder), tokenizer, query, document)
                store.memory[key] = _read(Path(folder))  # mapped, so it may be deleted
        else:
            store.memory[key] = _cached(store, store.folder / "tokens" / key, tokenizer, query, document)
    return store.memory[key]


def _rules(backend: Any) -> str:
    """Return a tokenizer's rules without truncation and padding, which its last caller set."""
    described = json.loads(backend.to_str())
    return json.dumps({name: rule for name, rule in described.items() if name not in ("truncation", "padding")})


def _cached(store: Store, folder: Path, tokenizer: PreTrainedTokenizerBase, query: Side, document: Side) -> Tokens:
    """Read the tokens in a folder; the first process that needs them writes them, others wait."""
    if not (folder / REPORT).is_file():
        with exclusive_lock(folder, wait=True):
            if not (folder / REPORT).is_file():
                with atomic_folder(folder, replace=True) as temporary:
                    _write(store, temporary, tokenizer, query, document)
    return _read(folder)


def _write(store: Store, folder: Path, tokenizer: PreTrainedTokenizerBase, query: Side, document: Side) -> None:
    report: dict[str, Any] = {}

    def encoded(name: str, texts: pa.ChunkedArray, side: Side) -> Iterator[dict[str, list[Array]]]:
        report[f"truncated_{name}"] = 0
        with tqdm(total=len(texts), desc=f"tokenise {name}", unit=f" {name}", disable=None) as progress:
            for start in range(0, len(texts), BATCH):
                ids, cut = encode(tokenizer, side, texts.slice(start, BATCH).to_pylist())
                report[f"truncated_{name}"] += cut
                progress.update(len(ids))
                yield {"ids": ids}

    for name, table, side in (("queries", store.queries, query), ("documents", store.documents, document)):
        write_arrow(folder / f"{name}.arrow", SCHEMA, encoded(name, table.column("text"), side))
    write_json(folder / REPORT, report)


def _read(folder: Path) -> Tokens:
    report = read_json(folder / REPORT)
    queries, documents = (read_arrow(folder / f"{name}.arrow").column("ids") for name in ("queries", "documents"))
    return Tokens(Ragged(queries), Ragged(documents), report["truncated_documents"])
