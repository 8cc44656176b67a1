"""Score the candidates of a lists folder by an embedding model: the cosine of query and document, as a run.

    python scripts/embed.py --lists lists/train --model sentence-transformers/all-MiniLM-L6-v2 --output dense.trec
    rerank add --lists lists/train --run dense=dense.trec

The column can then be mixed in, or a cross-encoder can start from it (``--model.start '[bm25, dense]'``). Needs
sentence-transformers, which the extra ``bench`` installs. Each distinct text is encoded once; documents longer than the
model's own limit are cut there.
"""

from __future__ import annotations

import argparse

import numpy as np

from rerank.lists import Lists
from rerank.models.weights import find_model
from rerank.retrieval.runs import write_run


def main() -> None:
    """Encode, multiply, write."""
    from sentence_transformers import SentenceTransformer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lists", required=True, help="lists folder")
    parser.add_argument("--model", required=True, help="embedding model: a folder or a name on the hub")
    parser.add_argument("--output", required=True, help="TREC run to write")
    options = parser.parse_args()
    lists = Lists.open(options.lists).with_added()
    model = SentenceTransformer(str(find_model(options.model)), device=None)

    def encode(texts: list[str]) -> np.ndarray:
        return model.encode(texts, normalize_embeddings=True, show_progress_bar=True)

    documents, rows = np.unique(lists.documents, return_inverse=True)
    texts = lists.store.documents.column("text").take(documents).to_pylist()
    vectors, queries = encode(texts), encode(lists.query_texts)
    ids = lists.document_ids(lists.documents)

    def ranked(index: int) -> list[tuple[str, float]]:
        span = slice(lists.offsets[index], lists.offsets[index + 1])
        scores = vectors[rows[span]] @ queries[index]
        return sorted(zip(ids[span], scores.tolist(), strict=True), key=lambda scored: -scored[1])

    write_run(options.output, ((name, ranked(i)) for i, name in enumerate(lists.query_ids)), tag="embed")


if __name__ == "__main__":
    main()
