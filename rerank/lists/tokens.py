"""Token ids of a lists folder: computed once, kept inside the folder, keyed by all that decides them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from tqdm import tqdm

from rerank.arrow import Array, Ragged, read_arrow, write_arrow
from rerank.errors import UserError
from rerank.files import atomic_folder, digest
from rerank.lists.store import Lists

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BATCH = 1024
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


def tokenise(lists: Lists, tokenizer: PreTrainedTokenizerBase, query_length: int, document_length: int) -> Tokens:
    """The tokens of a lists folder, from its cache where they are there.

    Args:
        lists: the lists; all texts of their folder are tokenised.
        tokenizer: a fast Hugging Face tokenizer.
        query_length: word pieces kept of a query.
        document_length: word pieces kept of a document.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UserError(f"{tokenizer.name_or_path}: has no fast tokenizer (tokenizer.json); choose a model with one")
    key = digest(lists.text_digest(), backend.to_str(), f"{query_length}/{document_length}")
    folder = lists.folder / "tokens" / key
    if not (folder / "tokens.json").is_file():
        with atomic_folder(folder, replace=True) as temporary:
            report = {}
            for name, table, limit in (
                ("queries", lists.query_table, query_length),
                ("documents", lists.document_table, document_length),
            ):
                progress = tqdm(total=table.num_rows, desc=f"tokenise {name}", unit=f" {name}", disable=None)
                with progress:
                    batches = _Batches(tokenizer, table.column("text"), limit, progress)
                    write_arrow(temporary / f"{name}.arrow", SCHEMA, batches)
                report[f"truncated_{name}"] = batches.truncated
            (temporary / "tokens.json").write_text(json.dumps(report) + "\n")
    report = json.loads((folder / "tokens.json").read_text())
    queries, documents = (Ragged(read_arrow(folder / f"{n}.arrow").column("ids")) for n in ("queries", "documents"))
    return Tokens(queries, documents, queries.lengths(), documents.lengths(), report["truncated_documents"])


class _Batches:
    """Tokenises a text column batch by batch, counting the texts that were cut."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, texts: pa.ChunkedArray, limit: int, progress: Any) -> None:
        self.tokenizer, self.texts, self.limit, self.progress = tokenizer, texts, limit, progress
        self.truncated = 0

    def __iter__(self) -> Iterator[dict[str, list[Array]]]:
        for start in range(0, len(self.texts), BATCH):
            texts = self.texts.slice(start, BATCH).to_pylist()
            encoded = self.tokenizer(
                texts,
                add_special_tokens=False,
                truncation=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )
            self.truncated += sum(len(ids) > self.limit for ids in encoded["input_ids"])
            self.progress.update(len(texts))
            yield {"ids": [np.asarray(ids[: self.limit], dtype=np.int32) for ids in encoded["input_ids"]]}
