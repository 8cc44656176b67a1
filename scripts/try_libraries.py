"""Scores of a trained model in the libraries that load it, beside ours, over real pairs: short ones and the longest.

    python scripts/try_libraries.py --model runs/x/best --lists lists/scifact-test --pairs 64

Prints a Markdown table with the largest difference from ``predict`` in fp32; what is not installed is said so. Of Text
Embeddings Inference, which is a server, only what it reads is checked: its files, and what they say.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from rerank import CrossEncoder, Lists

Pairs = list[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", required=True, help="folder of a trained cross-encoder")
    parser.add_argument("--lists", required=True, help="lists folder")
    parser.add_argument("--pairs", type=int, default=64, help="pairs, half of them with the longest documents")
    options = parser.parse_args()
    folder = Path(options.model)
    pairs = choose(Lists.open(options.lists), options.pairs)
    ours = scores_of_ours(folder, pairs)
    print(f"{len(pairs)} pairs, documents of {min(map(words, pairs))} to {max(map(words, pairs))} words\n")
    print("| library | largest difference | of the shorter half | of the longer half |\n|---|---:|---:|---:|")
    half = len(pairs) // 2
    for name, score in LIBRARIES.items():
        try:
            off = np.abs(score(folder, pairs) - ours)
        except ImportError as error:
            print(f"| {name} | not installed ({error}) | | |")
            continue
        print(f"| {name} | {off.max():.1g} | {off[:half].max():.1g} | {off[half:].max():.1g} |")
    print(f"\nText Embeddings Inference: {layout(folder)}")


def words(pair: tuple[str, str]) -> int:
    return len(pair[1].split())


def choose(lists: Lists, count: int) -> Pairs:
    """Half of them drawn at random, then as many of the longest documents."""
    frame = lists.to_dataframe()
    drawn = frame.sample(count // 2, random_state=0)
    rest = frame.drop(drawn.index).drop_duplicates("doc_id")
    longest = rest.loc[rest["text"].str.split().str.len().nlargest(count - len(drawn)).index]
    return [(row.query, row.text) for part in (drawn, longest) for row in part[["query", "text"]].itertuples()]


def scores_of_ours(folder: Path, pairs: Pairs) -> np.ndarray:
    return CrossEncoder(str(folder), start=[]).text_scores(pairs, precision="fp32")


def by_sentence_transformers(backend: str) -> Callable[[Path, Pairs], np.ndarray]:
    def score(folder: Path, pairs: Pairs) -> np.ndarray:
        if backend != "torch" and find_spec("optimum") is None:
            raise ImportError("optimum")
        from sentence_transformers import CrossEncoder as Theirs

        return np.asarray(Theirs(str(folder), device="cpu", backend=backend).predict(pairs))  # type: ignore[arg-type]

    return score


def by_transformers(folder: Path, pairs: Pairs) -> np.ndarray:
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()
    queries, documents = map(list, zip(*pairs, strict=True))
    with torch.inference_mode():
        batch = tokenizer(queries, documents, padding=True, truncation=True, return_tensors="pt")
        return model(**batch).logits[:, 0].numpy()


def by_pyterrier(folder: Path, pairs: Pairs) -> np.ndarray:
    import pandas as pd

    from rerank.pyterrier import RerankTransformer

    rows = [(str(number), query, f"d{number}", text, 0.0) for number, (query, text) in enumerate(pairs)]
    frame = pd.DataFrame(rows, columns=["qid", "query", "docno", "text", "score"])
    done = RerankTransformer(CrossEncoder(str(folder), start=[])).transform(frame)
    return done.set_index("qid").loc[[str(number) for number in range(len(pairs))], "score"].to_numpy()


def layout(folder: Path) -> str:
    """Whether the files are what the server reads of a reranker."""
    lacking = [name for name in ("config.json", "tokenizer.json", "model.safetensors") if not (folder / name).is_file()]
    config = json.loads((folder / "config.json").read_text())
    kinds = config.get("architectures") or []
    single = len(config.get("id2label") or {0: "", 1: ""}) == 1
    if lacking or not single or not any(kind.endswith("ForSequenceClassification") for kind in kinds):
        return f"not its layout (lacks {lacking}, {kinds}, one label: {single})"
    return f"{', '.join(kinds)} with one label, tokenizer.json, model.safetensors: its layout; the server was not run"


LIBRARIES: dict[str, Callable[[Path, Pairs], np.ndarray]] = {
    "sentence-transformers": by_sentence_transformers("torch"),
    "sentence-transformers, ONNX": by_sentence_transformers("onnx"),
    "sentence-transformers, OpenVINO": by_sentence_transformers("openvino"),
    "transformers": by_transformers,
    "PyTerrier": by_pyterrier,
}

if __name__ == "__main__":
    main()
