"""What a large collection costs, term by term: constants measured at small sizes, predictions checked at larger ones.

    OMP_NUM_THREADS=1 python scripts/bench/cost_model.py [--model FOLDER] [--scales 0.00025 0.0005 0.001] [--folder DIR]

The whole is MS MARCO's: 8.8 million passages, 500,000 training queries with 100 candidates each. A scale has as
many passages and queries less, made texts of 75 word pieces, and all steps of the way: lists from a Parquet file of
hits, as a search engine writes it; token ids; an epoch of training on 8 candidates of each list; the scores of all
candidates, and the run. Of each term the processor's seconds count, as others may use the machine; a warm-up at a tiny
scale precedes them.

Seconds of a term are a + b times its units; a and b come from two scales, an eighth and a half of the smallest
one that is checked, the least of three runs of each. Bytes are told from the formats alone. Without --model a BERT of 2
layers of 128 is made, so that an hour is enough; its constants say nothing of larger ones, whose hours are told from
their operations.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

PASSAGES, QUERIES, DEPTH = 8_841_823, 502_939, 100
"""MS MARCO's passages and training queries; candidates a query."""
PIECES, ASKED, SAMPLED = 75, 6, 8
"""Word pieces of a passage and of a query; candidates of a list that a step sees."""
UNITS = {"lists": "pairs", "tokens": "pieces", "training": "trained", "scoring": "scored"}
"""What each term's time is proportional to: pairs, word pieces of texts, of the pairs trained on, of all pairs."""
NETWORKS = {"MiniLM-L6": (6, 384, 1536), "BERT-base": (12, 768, 3072)}
"""Layers, width and inner width of common encoders."""


def make_model(folder: Path) -> Path:
    """A BERT of 2 layers of 128 with random weights and a real vocabulary."""
    import torch
    from transformers import AutoTokenizer, BertConfig, BertModel

    from rerank.models.weights import find_model

    tokenizer = AutoTokenizer.from_pretrained(find_model("sentence-transformers/all-MiniLM-L6-v2"))
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    )
    torch.manual_seed(0)
    BertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def vocabulary(model: str) -> list[str]:
    """Words that are a word piece each."""
    from transformers import AutoTokenizer

    known = AutoTokenizer.from_pretrained(model).get_vocab()
    return sorted(word for word in known if word.isascii() and word.isalpha() and word.islower())


def write_hits(path: Path, words: list[str], passages: int, queries: int) -> dict[str, int]:
    """A Parquet file of lists with their texts, as a search engine's export has it; returns how much there is."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    rng = np.random.default_rng(passages)
    lengths = np.maximum(rng.poisson(PIECES, passages), 1)
    texts = [" ".join(rng.choice(words, size)) for size in lengths]
    schema = pa.schema(
        [(name, pa.string()) for name in ("query_id", "query", "doc_id", "text")]
        + [("score", pa.float32()), ("grade", pa.int16())]
    )
    seen = np.zeros(passages, dtype=bool)
    depth = min(DEPTH, passages)
    with ParquetWriter(path, schema) as writer:
        for query in range(queries):
            chosen = rng.choice(passages, depth, replace=False)
            seen[chosen] = True
            asked = " ".join(rng.choice(words, ASKED))
            columns = {
                "query_id": [str(query)] * depth,
                "query": [asked] * depth,
                "doc_id": [str(one) for one in chosen],
                "text": [texts[one] for one in chosen],
                "score": np.sort(rng.random(depth).astype(np.float32))[::-1],
                "grade": (np.arange(depth) == rng.integers(SAMPLED)).astype(np.int16),
            }
            writer.write_table(pa.table(columns, schema=schema))
    return {
        "pairs": queries * depth,
        "queries": queries,
        "documents": int(seen.sum()),
        "pieces": int(lengths[seen].sum()) + queries * ASKED,
        "text": sum(len(texts[one]) for one in np.flatnonzero(seen)),
        "names": sum(len(str(one)) for one in np.flatnonzero(seen)),
    }


def go(folder: Path, model: str, scale: float) -> dict[str, Any]:
    """Do it all at a scale; the processor's seconds by term, units, and bytes."""
    import rerank
    from rerank.collections import open_collection
    from rerank.lists.data import ListsData
    from rerank.lists.hits import lists_of_hits
    from rerank.lists.sampling import Full
    from rerank.losses.listnet import ListNet
    from rerank.scoring.run import write_reranked
    from rerank.training.config import TrainConfig
    from rerank.training.fit import fit

    folder.mkdir()
    seconds: dict[str, float] = {}
    passages, queries = max(DEPTH, round(PASSAGES * scale)), max(4, round(QUERIES * scale))
    units = write_hits(folder / "hits.parquet", vocabulary(model), passages, queries)

    def timed(term: str, work: Any) -> Any:
        before = time.process_time()
        result = work()
        seconds[term] = time.process_time() - before
        return result

    source = open_collection(f"hits:{folder / 'hits.parquet'}")
    lists = timed("lists", lambda: lists_of_hits(source, folder / "lists", depth=DEPTH))
    network = rerank.CrossEncoder(model, query_length=ASKED + 2, document_length=128)
    inputs = timed("tokens", lambda: network.inputs(lists))
    rows = lists.row_numbers
    units["scored"] = int(inputs.lengths(rows).sum())
    first = (rows - np.repeat(lists.offsets[:-1], lists.lengths)) < SAMPLED
    units["trained"] = int(inputs.lengths(rows[first]).sum())
    config = TrainConfig(
        data=ListsData(str(folder / "lists"), validation_share=0.0),
        model=network,
        loss=ListNet(),
        sampler=Full(depth=SAMPLED),
        batch_size=4,
        tracker=[],
        checkpoint_every=10**9,
        gradient="full",
    )
    timed("training", lambda: fit(config, folder / "run"))
    timed("scoring", lambda: write_reranked(folder / "run" / "best", lists, folder / "run.trec"))
    return {"scale": scale, "seconds": seconds, "units": units, "bytes": sizes(folder)}


def least(place: Path, model: str, scale: float) -> dict[str, Any]:
    """A scale three times over; of each term the least seconds, as whatever disturbs a run only adds to them."""
    runs = [go(place / f"{scale}-{turn}", model, scale) for turn in range(3)]
    return runs[0] | {"seconds": {term: min(run["seconds"][term] for run in runs) for term in UNITS}}


def sizes(folder: Path) -> dict[str, int]:
    """Bytes of what was written, by kind."""
    lists = folder / "lists"
    kinds = {
        "texts": [lists / "documents.arrow", lists / "queries.arrow"],
        "candidates": [lists / "candidates.arrow", lists / "ends.arrow", *(lists / "columns").glob("*.arrow")],
        "runs": [lists / "run.trec", lists / "qrels.trec", folder / "run.trec"],
        "tokens": list((lists / "tokens").glob("*/*.arrow")),
    }
    return {kind: sum(file.stat().st_size for file in files if file.exists()) for kind, files in kinds.items()}


def told_bytes(units: dict[str, int], line: float) -> dict[str, float]:
    """Bytes by kind, as the formats say.

    Args:
        units: how much there is of everything.
        line: bytes of a run's line, all runs together, which depend on the ids.
    """
    pairs, queries, documents = units["pairs"], units["queries"], units["documents"]
    return {
        "texts": units["text"] + units["names"] + 8 * documents + queries * (6 * ASKED + 14),  # offsets of 4 bytes
        "candidates": (4 + 4 + 2 + 1 + 4) * pairs + 12 * queries,  # query, document, grade, added, one column
        "runs": line * pairs,
        "tokens": 4 * (units["pieces"] + documents + queries),
    }


def flops(network: tuple[int, int, int], length: float) -> float:
    """Operations of a pass forward, of a word piece in a pair of so many."""
    layers, width, inner = network
    return layers * (2 * (4 * width**2 + 2 * width * inner) + 4 * width * length)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    parser.add_argument("--scales", type=float, nargs="+", default=[0.00025, 0.0005, 0.001])
    parser.add_argument("--folder")
    parser.add_argument(
        "--teraflops", type=float, default=200.0, help="what a GPU is taken to reach, for the last table"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as place:
        model = options.model or str(make_model(Path(place) / "model"))
        go(Path(place) / "warm", model, 0.0)
        gc.collect()
        gc.freeze()  # collecting what was imported takes .3 s, more than a small term
        low, high = (least(Path(place), model, min(options.scales) / share) for share in (8, 2))
        line = high["bytes"]["runs"] / high["units"]["pairs"]
        slope, base = {}, {}
        for term, unit in UNITS.items():
            per = (high["seconds"][term] - low["seconds"][term]) / (high["units"][unit] - low["units"][unit])
            slope[term], base[term] = per, high["seconds"][term] - per * high["units"][unit]
        print("| scale | pairs | term | predicted | measured | ratio |\n|---:|---:|---|---:|---:|---:|")
        for scale in options.scales:
            found = go(Path(place) / f"{scale}", model, scale)
            units = found["units"]
            rows = [(f"{t}, s", base[t] + slope[t] * units[u], found["seconds"][t]) for t, u in UNITS.items()]
            bytes_ = told_bytes(units, line)
            rows += [(f"{kind}, MB", bytes_[kind] / 1e6, found["bytes"][kind] / 1e6) for kind in bytes_]
            for name, told, seen in rows:
                print(f"| {scale:g} | {units['pairs']:,} | {name} | {told:.2f} | {seen:.2f} | {told / seen:.2f} |")
            sys.stdout.flush()
    units = {name: round(count / scale) for name, count in units.items()}
    bytes_ = told_bytes(units, line)
    print("\n| the whole | units | us a unit | hours of a core | GB |\n|---|---:|---:|---:|---:|")
    for term, unit in UNITS.items():
        hours = f"{slope[term] * units[unit] / 3600:.1f}" if term in ("lists", "tokens") else "-"
        print(f"| {term} | {units[unit]:,} {unit} | {1e6 * slope[term]:.2f} | {hours} | |")
    for kind, count in bytes_.items():
        print(f"| {kind} | | | | {count / 1e9:.1f} |")
    length = units["scored"] / units["pairs"]
    print(f"\n| network | scoring PFLOP | hours of a GPU at {options.teraflops:g} TFLOP/s | training on all | hours |")
    print("|---|---:|---:|---:|---:|")
    for name, network in NETWORKS.items():
        forward = flops(network, length) * units["scored"]
        hours = forward / (options.teraflops * 1e12) / 3600
        print(f"| {name} | {forward / 1e15:,.0f} | {hours:.1f} | {3 * forward / 1e15:,.0f} | {3 * hours:.1f} |")


if __name__ == "__main__":
    main()
