"""``rerank demo`` and ``rerank auto``: see the library work, and let it choose a ranker."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from rerank.selection.auto import auto as choose


def demo(output: str = "demo", ask: str | None = None, precision: Literal["auto", "bf16", "fp32"] = "auto") -> None:
    """Fine-tune a reranker on the Python standard library.

    Compares it with BM25 and MiniLM, in about three minutes on two cores, and answers a question.

    Args:
        output: folder for candidates, model and logs; completed steps are reused.
        ask: a question to answer, such as "how do I flatten a list of lists".
        precision: floating-point format of the encoder; auto uses bf16 if the hardware is fast at it.
    """
    from rerank.demo import run_demo

    run_demo(Path(output), ask, precision)


def auto(**asked: Any) -> str:
    """Compare rankers on held-out queries, and save the best.

    Repeating the command reuses completed steps, and continues a run that was killed.

    Args:
        asked: the arguments of :func:`rerank.auto`.
    """
    return str(choose(**asked))
