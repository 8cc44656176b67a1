"""Few shapes of matrices on a CPU: oneDNN generates code for every new one, and waits for it.

A text's tokens and a chunk's are rounded up to the rungs of a ladder. What is filled in reaches no score: attention
does not look at it, and nothing reads what becomes of it.
"""

from __future__ import annotations

import os

TEXT, CHUNK = 0.02, 0.03
"""How much longer a text may become by it, and a chunk in all: the share of work that is done for nothing."""

ROWS = 8
"""The rows of a chunk's last layer, one for each text, come in multiples of this."""


def rounded(length: int, share: float) -> int:
    """The next rung of the ladder: a multiple of the largest power of two that adds no more than a share.

    >>> [rounded(length, 0.02) for length in (49, 51, 149, 150, 151, 509, 2047)]
    [49, 52, 150, 152, 152, 512, 2048]
    >>> max(rounded(length, 0.02) / length for length in range(1, 5000)) <= 1.02
    True
    """
    step = 1 << (int(share * length) + 1).bit_length() - 1
    return -(-length // step) * step


def remember_code() -> None:
    """Let oneDNN keep more of the code that it generated than the 1,024 shapes that it keeps by itself.

    It asks once, when the first product in bf16 is computed, so this comes before that. A user's own setting stays.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "8192")
