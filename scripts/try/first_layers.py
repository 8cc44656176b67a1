"""Write a model's first layers as a model of its own: half the layers take half the time.

python scripts/try/first_layers.py sentence-transformers/all-MiniLM-L6-v2 3 models/minilm-3
"""

from __future__ import annotations

import argparse
from pathlib import Path

from rerank.models.weights import find_model
from rerank.storage.files import atomic_folder


def main() -> None:
    from transformers import AutoConfig, AutoModel, AutoTokenizer

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a model folder or a name on the hub")
    parser.add_argument("layers", type=int, help="how many layers to keep")
    parser.add_argument("output", type=Path, help="model folder to make")
    options = parser.parse_args()
    folder = find_model(options.model)
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if not 1 <= options.layers <= config.num_hidden_layers:
        parser.error(f"layers: {options.model} has 1 to {config.num_hidden_layers}, not {options.layers}")
    config.num_hidden_layers = options.layers
    model = AutoModel.from_pretrained(folder, config=config, local_files_only=True, use_safetensors=True)
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    with atomic_folder(options.output) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
    print(f"{options.output}: {options.layers} layers, {model.num_parameters():,} parameters")


if __name__ == "__main__":
    main()
