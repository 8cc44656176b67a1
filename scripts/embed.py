"""Score the candidates of lists folders by an embedding model: the cosine of query and document, a run for each folder.

    python scripts/embed.py --lists lists/train lists/test --model sentence-transformers/all-MiniLM-L6-v2 --output dense
    rerank add --lists lists/train --run dense=dense/train.trec
    rerank add --lists lists/test --run dense=dense/test.trec

The column can then be mixed in, or a cross-encoder can start from it (``--model.start '[bm25, dense]'``). Needs
sentence-transformers, which the extra ``bench`` installs. Each distinct text is encoded once; documents longer than the
model's own limit are cut there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from rerank.arrow import Array
from rerank.lists import Lists
from rerank.models.weights import find_model
from rerank.retrieval.runs import Scored, write_run


def scored(lists: Lists, documents: Array, queries: list[Array]) -> Iterator[tuple[str, list[Scored]]]:
    """Each query's candidates by the product of the vectors, best first; ``documents`` has a row per candidate."""
    ids = lists.document_ids(lists.documents)
    for index, query in enumerate(lists.query_ids):
        span = slice(*lists.offsets[index : index + 2])
        found = map(Scored, ids[span], (documents[span] @ queries[index]).tolist())
        yield query, sorted(found, key=lambda document: -document.score)


def main() -> None:
    """Encode, multiply, write."""
    from sentence_transformers import SentenceTransformer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", required=True, nargs="+", type=Path, help="lists folders")
    parser.add_argument("--model", required=True, help="embedding model: a folder or a name on the hub")
    parser.add_argument("--output", required=True, type=Path, help="folder of the runs, called as the lists are")
    options = parser.parse_args()
    model = SentenceTransformer(str(find_model(options.model)))
    known: dict[str, Array] = {}
    for folder in options.lists:
        lists = Lists.open(folder).with_added()
        rows, at = np.unique(lists.documents, return_inverse=True)
        texts = lists.store.documents.column("text").take(rows).to_pylist()
        new = list(dict.fromkeys(text for text in [*texts, *lists.query_texts] if text not in known))
        known |= zip(new, model.encode(new, normalize_embeddings=True, show_progress_bar=True), strict=True)
        run = scored(lists, np.stack([known[text] for text in texts])[at], [known[text] for text in lists.query_texts])
        write_run(options.output / f"{folder.name}.trec", run, tag="embed")


if __name__ == "__main__":
    main()
