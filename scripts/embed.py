"""Score the candidates of lists folders by an embedding model: the cosine of query and document, a run for each folder.

    python scripts/embed.py --lists lists/train lists/test --model sentence-transformers/all-MiniLM-L6-v2 --output dense
    rerank add --lists lists/train --run dense=dense/train.trec
    rerank add --lists lists/test --run dense=dense/test.trec

The column can then be mixed in, or a cross-encoder can start from it (``--model.start '[bm25, dense]'``). With
``--depth 150`` each query's best of all documents that the folder has are found instead, as runs to make lists of
(``rerank retrieve --bm25 true --run dense=dense/test.trec``). Needs sentence-transformers, which the extra ``bench``
installs. Each distinct text is encoded once; documents longer than the model's own limit are cut there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from rerank.lists import Lists
from rerank.models.weights import find_model
from rerank.retrieval.runs import Scored, write_run
from rerank.storage.arrow import Array


def scored(lists: Lists, known: Mapping[str, Array], depth: int | None) -> Iterator[tuple[str, list[Scored]]]:
    """Each query's candidates by the product of the vectors, or the best of all that the lists have."""
    rows, at = np.unique(lists.documents, return_inverse=True)
    ids = np.array(lists.document_ids(rows), dtype=object)
    documents = np.stack([known[text] for text in lists.store.documents.column("text").take(rows).to_pylist()])
    for index, (query, text) in enumerate(zip(lists.query_ids, lists.query_texts, strict=True)):
        of = slice(None) if depth else at[slice(*lists.offsets[index : index + 2])]
        scores = documents[of] @ known[text]
        best = np.argsort(-scores, kind="stable")[:depth]
        yield query, list(map(Scored, ids[of][best].tolist(), scores[best].tolist()))


def main() -> None:
    """Encode, multiply, write."""
    from sentence_transformers import SentenceTransformer

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lists", required=True, nargs="+", type=Path, help="lists folders")
    parser.add_argument("--model", required=True, help="embedding model: a folder or a name on the hub")
    parser.add_argument("--output", required=True, type=Path, help="folder of the runs, called as the lists are")
    parser.add_argument("--depth", type=int, help="find so many of all documents, not only the candidates")
    options = parser.parse_args()
    model = SentenceTransformer(str(find_model(options.model)))
    known: dict[str, Array] = {}
    for folder in options.lists:
        lists = Lists.open(folder).with_added()
        texts = lists.store.documents.column("text").take(np.unique(lists.documents)).to_pylist()
        new = list(dict.fromkeys(text for text in [*texts, *lists.query_texts] if text not in known))
        known |= zip(new, model.encode(new, normalize_embeddings=True, show_progress_bar=True), strict=True)
        write_run(options.output / f"{folder.name}.trec", scored(lists, known, options.depth), tag="embed")


if __name__ == "__main__":
    main()
