"""Whether a training is the same however it is cut: four trainings by 1, 2 and 4 processes, in 1, 2 and 4 pieces.

    python scripts/try/processes.py --data DIR [--folder DIR]

``DIR`` holds ``dl20`` (a ``files:`` folder with runs) and ``MQ2008`` (LETOR). Each training is small, in float32 and
without dropout (whose random numbers are each process's own). An entry has the largest difference of a weight, and of a
validation measure after any epoch, from the training by one process in one piece. Biases that neither a softmax nor a
ranking loss sees have no gradient but rounding errors, of which Adam makes steps of full length: their differences are
in brackets. A process's share of a batch is cut into the pieces; with batch norm one process has the whole batch.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.multiprocessing import start_processes

from rerank.commands.cli import main as rerank
from rerank.training.configuration import configured
from rerank.training.fit import fit

BATCH = 16
Trained = tuple[dict[str, torch.Tensor], list[dict[str, float]]]
UNSEEN = ("key.bias", "classifier.bias", "layers.2.bias", "classifier.out_proj.bias")
"""Ends of the names of parameters whose gradient is 0 but for rounding."""


def tiny_bert(folder: Path) -> str:
    """Two layers of 64 with random weights, and the uncased vocabulary."""
    from transformers import AutoTokenizer, BertConfig, BertModel

    from rerank.models.weights import find_model

    tokenizer = AutoTokenizer.from_pretrained(find_model("sentence-transformers/all-MiniLM-L6-v2"))
    sizes: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 128, "max_position_embeddings": 128, "vocab_size": len(tokenizer)}
    torch.manual_seed(0)
    BertModel(BertConfig(**sizes, initializer_range=0.1)).save_pretrained(folder)
    tokenizer.model_max_length = 128
    tokenizer.save_pretrained(folder)
    return str(folder)


def trainings(data: Path, place: Path) -> dict[str, dict[str, Any]]:
    """The four configurations, by what the table calls them."""
    lists = place / "lists"
    words = ["retrieve", "--collection", f"files:{data / 'dl20'}", "--output", str(lists), "--depth", "20"]
    assert rerank([*words, "--run", f"bm25={data / 'dl20' / 'runs' / 'bm25.trec'}"]) == 0
    folds = {"class_path": "FoldsData", "init_args": {"lists": str(lists), "fold": 1, "folds": 3, "depth": 20}}
    letor = {"class_path": "LetorData", "init_args": {"path": str(data / "MQ2008"), "fold": 1}}
    lengths = {"name": tiny_bert(place / "bert"), "query_length": 16, "document_length": 48, "dropout": 0.0}
    smoothi = {"class_path": "DirectMetric", "init_args": {"measure": "nDCG@10", "relaxation": "SmoothI"}}
    common = {"batch_size": BATCH, "precision": "fp32", "loss": smoothi, "tracker": [], "test": False}
    common |= {"checkpoint_every": 1, "monitor": "nDCG@10", "measures": "AP", "optimization": {"encoder_lr": 1e-4}}

    def text(head: str) -> dict[str, Any]:
        return {"data": folds, "model": {"class_path": "CrossEncoder", "init_args": {**lengths, "head": head}}}

    some = {"class_path": "PositivesNegatives", "init_args": {"positives": 2, "negatives": 6}}
    network = {"class_path": "MLP", "init_args": {"hidden": [32, 16], "batch_norm": "before"}}
    return {
        "cross-encoder, head cls, whole lists": common | text("cls") | {"epochs": 3},
        "cross-encoder, `Full(5)`": common
        | text("hf")
        | {"epochs": 3, "sampler": {"class_path": "Full", "init_args": {"depth": 5}}},
        "cross-encoder, `PositivesNegatives(2, 6)`": common | text("hf") | {"epochs": 3, "sampler": some},
        "MLP with batch norm": common | {"data": letor, "model": network, "epochs": 1},
    }


def one(process: int, processes: int, port: int, settings: dict[str, Any], output: str) -> None:
    """What one process of a training does."""
    logging.getLogger("rerank").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    numbers = {"RANK": process, "LOCAL_RANK": process, "WORLD_SIZE": processes, "MASTER_PORT": port}
    if processes > 1:
        os.environ.update({name: str(value) for name, value in numbers.items()}, MASTER_ADDR="127.0.0.1")
    fit(configured(settings), output)
    if processes > 1:
        torch.distributed.destroy_process_group()


def trained(folder: Path) -> Trained:
    """The last weights, and the validation measures of every epoch."""
    weights = load_file(max((folder / "checkpoints").glob("step-*")) / "model.safetensors")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return weights, [line["validation"] for line in lines if "validation" in line]


def difference(found: Trained, alone: Trained) -> str:
    """How far a training is from another, as the table has it."""
    keys = [key for key in alone[0] if not key.endswith("num_batches_tracked")]
    off = {key: float((found[0][key] - alone[0][key]).abs().max()) for key in keys}
    seen = max(value for key, value in off.items() if not key.endswith(UNSEEN))
    unseen = max((value for key, value in off.items() if key.endswith(UNSEEN)), default=0.0)
    pairs = zip(found[1], alone[1], strict=True)
    measures = max(abs(ours[key] - theirs[key]) for ours, theirs in pairs for key in theirs)
    return f"{seen:.1e} ({unseen:.1e}); {measures:.4f}"


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    logging.getLogger("rerank").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        place = Path(temporary)
        print("| training | processes | 1 piece | 2 pieces | 4 pieces |\n|---|---|---|---|---|")
        for number, (name, settings) in enumerate(trainings(options.data, place).items()):
            alone = None
            for processes in (1, 2, 4):
                entries = []
                shares = processes if "batch_norm" not in settings["model"]["init_args"] else 1
                for pieces in (1, 2, 4):
                    folder = place / f"{number}-{processes}-{pieces}"
                    cut = settings | {"micro_batch_size": BATCH // shares // pieces}
                    start_processes(one, (processes, free_port(), cut, str(folder)), processes, start_method="fork")
                    found = trained(folder)
                    alone = alone or found
                    entries.append(difference(found, alone))
                print(f"| {name} | {processes} | {' | '.join(entries)} |", flush=True)


if __name__ == "__main__":
    main()
