"""What it saves to compute the common beginning of prompts once: a random decoder like Qwen3 scores stored lists.

    OMP_NUM_THREADS=1 python scripts/bench_prefix.py --lists lists/scifact-test lists/dl19

Prints Markdown: for each template the pairs a second with every prompt computed whole, and with beginnings shared, in
seconds of the processor, the best of three rounds in turns; and the largest difference of a score.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from check_lora import make_model

from rerank import Decoder, Lists
from rerank.models.score import score_candidates
from rerank.models.text import decoder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lists", nargs="+", required=True)
    parser.add_argument("--pairs", type=int, default=200)
    options = parser.parse_args()
    print(
        "| lists | template | whole, pairs/s | shared, pairs/s | | largest difference |\n|---|---|---:|---:|---:|---:|"
    )
    never, always = 2.0, 0.0  # shares of a chunk
    for name in options.lists:
        lists = Lists.open(name)
        rows = np.sort(np.random.default_rng(0).permutation(lists.row_numbers)[: options.pairs])
        with tempfile.TemporaryDirectory() as folder:
            make_model(lists, Path(folder))
            for template in ("qwen3-reranker", "mxbai-rerank-v2"):
                model = Decoder(folder, template=template)
                inputs, took, scores = model.inputs(lists), {never: np.inf, always: np.inf}, {}
                for _ in range(3):
                    for least in took:
                        decoder.SHARED = least
                        started = time.process_time()
                        scores[least] = score_candidates(model, inputs, rows, np.zeros(1, np.int64), precision="fp32")
                        took[least] = min(took[least], time.process_time() - started)
                whole, once = (len(rows) / took[least] for least in took)
                off, gain = np.abs(scores[never] - scores[always]).max(), once / whole - 1
                print(f"| {Path(name).name} | {template} | {whole:.0f} | {once:.0f} | {gain:+.0%} | {off:.1e} |")


if __name__ == "__main__":
    main()
