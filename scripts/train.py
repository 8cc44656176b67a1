"""``rerank train`` as a script, for ``accelerate launch scripts/train.py --config ...`` and torchrun."""

from __future__ import annotations

import sys

from rerank.commands.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
