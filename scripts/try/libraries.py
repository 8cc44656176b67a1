"""Scores of a trained model in the libraries that load it, beside ours, over real pairs: short ones and the longest.

    python scripts/try/libraries.py --model runs/x/best --lists lists/scifact-test --pairs 64

Prints a Markdown table with the largest difference from ``predict`` in fp32. The ONNX and OpenVINO backends of
sentence-transformers need older versions of transformers than ours, each another one: ``--onnx`` and ``--openvino``
name Pythons of environments that have them. Text Embeddings Inference is a server; only the files that it reads are
checked, and what they contain.
"""

from __future__ import annotations

import argparse
import json
import subprocess
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np

from rerank import CrossEncoder, Lists

Pairs = list[tuple[str, str]]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", required=True, help="folder of a trained cross-encoder")
    parser.add_argument("--lists", required=True, help="lists folder")
    parser.add_argument("--pairs", type=int, default=64, help="pairs, half of them those with the longest documents")
    parser.add_argument("--onnx", help="Python that has sentence-transformers[onnx]")
    parser.add_argument("--openvino", help="Python that has sentence-transformers[openvino]")
    options = parser.parse_args()
    backends = {"ONNX": options.onnx, "OpenVINO": options.openvino}
    libraries = LIBRARIES | {
        f"sentence-transformers, {name}": in_another_python(python, name.lower())
        for name, python in backends.items()
        if python
    }
    folder = Path(options.model)
    model = CrossEncoder(str(folder), start=[])
    pairs = choose(model, Lists.open(options.lists), options.pairs)
    ours = model.text_scores(pairs, precision="fp32")
    lengths = [len(text.split()) for _, text in pairs]
    print(f"{len(pairs)} pairs, documents of {min(lengths)} to {max(lengths)} words,", end=" ")
    print(f"scores from {ours.min():.2f} to {ours.max():.2f}\n")
    print("| library | largest difference where texts are read whole | where they are cut |\n|---|---:|---:|")
    half = len(pairs) // 2
    for name, score in libraries.items():
        try:
            off = np.abs(score(folder, pairs) - ours)
        except ImportError as error:
            print(f"| {name} | not installed ({error}) | |")
            continue
        print(f"| {name} | {off[:half].max():.1g} | {off[half:].max():.1g} |")
    print(f"\nText Embeddings Inference: {layout(folder)}")


def choose(model: CrossEncoder, lists: Lists, count: int) -> Pairs:
    """Pairs at random whose texts the model reads whole, as half of them; then those with the longest documents."""
    frame = lists.to_dataframe().drop_duplicates("doc_id").sample(frac=1, random_state=0)
    longest = frame["text"].str.len().nlargest(count - count // 2).index
    pairs: Pairs = list(frame.loc[longest, ["query", "text"]].itertuples(index=False, name=None))
    limits = (model.query_length, model.document_length)
    others = frame.drop(longest)[["query", "text"]].itertuples(index=False, name=None)
    whole = (
        pair
        for pair in others
        if all(len(model.tokenizer.tokenize(text)) <= limit for text, limit in zip(pair, limits, strict=True))
    )
    return [*islice(whole, count // 2), *pairs]


BACKEND = """
import json, sys
from sentence_transformers import CrossEncoder
folder, backend, pairs = json.load(sys.stdin)
scores = CrossEncoder(folder, device="cpu", backend=backend).predict(pairs)
print(json.dumps([float(score) for score in scores]))
"""


def in_another_python(python: str, backend: str) -> Callable[[Path, Pairs], np.ndarray]:
    def score(folder: Path, pairs: Pairs) -> np.ndarray:
        asked = json.dumps([str(folder.resolve()), backend, pairs])
        done = subprocess.run([python, "-c", BACKEND], input=asked, stdout=subprocess.PIPE, text=True, check=True)
        return np.array(json.loads(done.stdout.splitlines()[-1]))

    return score


def by_sentence_transformers(folder: Path, pairs: Pairs) -> np.ndarray:
    from sentence_transformers import CrossEncoder as Theirs

    return np.asarray(Theirs(str(folder), device="cpu").predict(pairs))


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
    "sentence-transformers": by_sentence_transformers,
    "transformers": by_transformers,
    "PyTerrier": by_pyterrier,
}

if __name__ == "__main__":
    main()
