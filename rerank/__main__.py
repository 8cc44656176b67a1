"""``python -m rerank``: the ``rerank`` command, also for ``accelerate launch -m`` and ``torchrun -m``."""

from __future__ import annotations

import sys

from rerank.commands.cli import main

if __name__ == "__main__":
    sys.exit(main())
