"""Kernels and waits of a training step on a GPU, counted without one.

    python scripts/bench/count_kernels.py [--models BERT ModernBERT decoder] [--losses SmoothINDCG] [--lists 8]
        [--depths 50] [--tokens 270] [--hidden 384] [--layers 6] [--budgets 8192 65536] [--dropout 0.1] [--alone]

prints a Markdown table, as in docs/internals/speed.md. The step runs on the meta device, whose tensors have shapes and
no numbers, and which takes the ways of a GPU (fake CUDA tensors cannot go backwards without CUDA). Every operation that
would be launched is counted, and so is every one for which the host would wait: a number that Python reads, a shape
that depends on values, a copy that is not asynchronous. Casts by autocast are not among them, and nothing is said about
time.
"""

# ruff: noqa: E402, since rerank may not be installed

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent)]

from common import head, parser_of, row
from models import need_no_arrow, random_model, ready_lists, whole

need_no_arrow()

from rerank.lists.tokens import Tokens
from rerank.losses import load_all
from rerank.training.step import Gradients, MemoryLimits

VIEWS = (
    *("view", "_unsafe_view", "reshape", "expand", "slice", "select", "unsqueeze", "squeeze", "transpose", "t"),
    *("permute", "unbind", "split", "split_with_sizes", "detach", "alias", "as_strided", "unfold", "diagonal"),
    *("empty", "empty_like", "new_empty", "empty_strided"),
)
"""Operations that launch nothing."""

WAITS = ("_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "item", "is_nonzero")
"""Operations for whose result the host waits."""

MAKING = (torch.tensor, torch.as_tensor, torch.asarray)
"""What makes tensors of lists and arrays."""


class Count(TorchDispatchMode):
    """Counts what a GPU would compute by operation, and where the host would wait for it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: Counter[str] = Counter()
        self.waits: list[str] = []
        self._lists = _Lists(self.waits)

    def __enter__(self) -> Any:
        self._lists.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._lists.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        name = name if name.startswith("_") else name.rstrip("_")
        given = _tensors((args, kwargs))
        there = any(tensor.is_meta for tensor in given)
        if there and name == "_local_scalar_dense":
            self.waits.append("a number")
            return {torch.bool: True, torch.int64: 1}.get(given[0].dtype, 1.0)
        if there and name == "_to_copy" and torch.device(kwargs.get("device") or "meta").type == "cpu":
            self.waits.append("a copy to the host")
            return torch.full(given[0].shape, 1e-3, dtype=kwargs.get("dtype") or given[0].dtype)
        masks = [tensor for tensor in given[1:] if tensor.is_meta and tensor.dtype == torch.bool]
        if there and (name in WAITS or (name in ("index", "index_put") and masks)):
            self.waits.append(name)
        out = func(*args, **kwargs)
        arrives = any(tensor.is_meta for tensor in _tensors(out))
        comes = name in ("_to_copy", "copy") and arrives and any(not tensor.is_meta for tensor in given)
        if comes and not (kwargs.get("non_blocking") or (name == "copy" and len(args) > 2 and args[2])):
            self.waits.append("a copy from the host")
        if (there or arrives) and name not in VIEWS:
            self.kernels[name] += 1
        return out


class _Lists(TorchFunctionMode):
    """Counts lists and arrays of numbers that become tensors of the device, where such a copy is no operation."""

    def __init__(self, waits: list[str]) -> None:
        super().__init__()
        self.waits = waits

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = len(self.waits)
        out = func(*args, **(kwargs or {}))
        given = args[1] if func is torch.Tensor.new_tensor else args[0] if func in MAKING else None
        made = given is not None and not isinstance(given, torch.Tensor)
        indexed = func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and any(
            isinstance(index, list | np.ndarray) for index in (args[1] if isinstance(args[1], tuple) else [args[1]])
        )
        if len(self.waits) == before and ((made and out.is_meta) or (indexed and args[0].is_meta)):
            self.waits.append("a copy of a list")
        return out


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


@contextmanager
def as_on_a_gpu() -> Iterator[None]:
    """Within it the meta device has random numbers, no autocast, and FlashAttention, as far as code asks."""
    with (
        mock.patch("torch.get_device_module"),
        mock.patch("torch.autocast", lambda *_, **__: nullcontext()),
        mock.patch("torch.is_autocast_enabled", lambda *_: False),
        mock.patch("rerank.kernels.flat_attention._has_kernel", lambda _: True),
    ):
        yield


def count_step(
    model: Any, inputs: Any, lists: Any, loss: Any, budget: int, mode: str = "full"
) -> tuple[Counter[str], list[str], int]:
    """Kernels of a step without the optimizer, the waits within it, and how many of them come before its end.

    The model is of no use afterwards: its numbers are gone.
    """
    model.to("meta")
    gradients = Gradients(model, inputs, lists, loss, "bf16", MemoryLimits(budget), gradient=mode)  # type: ignore[arg-type]
    finish, within = gradients._finish, []
    with as_on_a_gpu(), Count() as count:

        def end(*given: Any) -> Any:
            within.append(len(count.waits))
            return finish(*given)

        with mock.patch.object(gradients, "_finish", end):
            gradients.accumulate(whole(lists), 1)
    return count.kernels, count.waits, within[0]


def count_loss(loss: Any, lists: int, depth: int) -> Counter[str]:
    """Kernels of a loss of scores, and of its gradient."""
    scores = torch.zeros(lists, depth, device="meta", requires_grad=True)
    labels, mask = torch.zeros(lists, depth, device="meta"), torch.ones(lists, depth, dtype=torch.bool, device="meta")
    with as_on_a_gpu(), Count() as count:
        loss(scores, labels, mask, seeds=torch.zeros(lists, dtype=torch.long, device="meta")).backward()
    assert not count.waits
    return count.kernels


MODELS = {"BERT": "MiniLM-L6", "ModernBERT": "ModernBERT-base", "decoder": "Qwen3, 8 of 0.6B's 28 layers"}
"""What can be counted, and whose architecture it has."""


def made(kind: str, depth: int, options: argparse.Namespace) -> tuple[Any, Any, Any]:
    """A random model, a decoder with adapters of rank 16, and lists of random words for it."""
    from rerank.models.text.adapter import LoRA
    from rerank.models.text.cross_encoder import CrossEncoder
    from rerank.models.text.decoder import Decoder

    heads = max(1, options.hidden // 32)
    sizes = {"hidden_size": options.hidden, "num_hidden_layers": options.layers, "num_attention_heads": heads}
    sizes |= {"intermediate_size": 4 * options.hidden, "num_key_value_heads": max(1, heads // 2)}
    lengths: dict[str, Any] = {"query_length": 32, "document_length": 448, "dropout": options.dropout}
    model: Any
    with tempfile.TemporaryDirectory() as folder:
        name = random_model(MODELS[kind], Path(folder), **sizes)
        if kind == "decoder":
            model = Decoder(name, head="hf", template="plain", lora=LoRA(16), **lengths | {"dropout": 0.0})
        else:
            model = CrossEncoder(name, **lengths)
    lists = ready_lists(options.lists, depth)
    rng = np.random.default_rng(0)
    queries = [rng.integers(1000, 20_000, 12) for _ in range(options.lists)]
    words = np.clip(rng.normal(options.tokens - 15, 30, lists.size), 8, 440).astype(int)
    tokens = Tokens.of(queries, [rng.integers(1000, 20_000, size) for size in words])
    return model.train(), model.token_inputs(tokens, lists.store.query, lists.store.document), lists


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--lists", type=int, default=8)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["BERT"])
    parser.add_argument("--losses", nargs="+", default=["SmoothINDCG"])
    parser.add_argument("--depths", type=int, nargs="+", default=[50])
    parser.add_argument("--tokens", type=int, default=270, help="mean tokens of a pair")
    parser.add_argument("--budgets", type=int, nargs="+", default=[8192, 65536])
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--alone", action="store_true", help="the losses without a model, forwards and backwards")
    options = parser.parse_args()
    known = load_all()
    if options.alone:
        head("loss", *(f"{depth:,} documents" for depth in options.depths))
        for loss in options.losses:
            numbers = [count_loss(known[loss](), options.lists, depth).total() for depth in options.depths]
            row(loss, *(f"{number:,}" for number in numbers))
        return
    print("| model | loss | documents | tokens of a chunk | kernels | attention | waits within the step | at its end |")
    print("|---|---|---:|---:|---:|---:|---:|---:|")
    for kind, loss, depth, budget in product(options.models, options.losses, options.depths, options.budgets):
        kernels, waits, before = count_step(*made(kind, depth, options), known[loss](), budget)
        attention = sum(n for name, n in kernels.items() if "flash" in name or "attention" in name)
        numbers = [depth, budget, kernels.total(), attention, before, len(waits) - before]
        row(kind, loss, *(f"{number:,}" for number in numbers))


if __name__ == "__main__":
    main()
