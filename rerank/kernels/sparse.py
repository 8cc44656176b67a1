"""Gradients of embeddings by rows while they are summed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn


@contextmanager
def sparse_embeddings(model: nn.Module) -> Iterator[None]:
    """On a CPU, let a chunk's gradient of an embedding hold the rows of its tokens, which are added to a dense one.

    BERT's has 30,522 rows, of which a chunk has some hundreds: to fill a table with zeros and to add it up, for every
    chunk, would take a part of a small model's step that one notices.
    """
    embeddings = [m for m in model.modules() if isinstance(m, nn.Embedding) and m.weight.device.type == "cpu"]
    before, weights = [module.sparse for module in embeddings], [module.weight for module in embeddings]
    hooks = [weight.register_post_accumulate_grad_hook(_dense) for weight in weights if weight.requires_grad]
    for module in embeddings:
        module.sparse = True
    try:
        yield
    finally:
        for module, sparse in zip(embeddings, before, strict=True):
            module.sparse = sparse
        for hook in hooks:
            hook.remove()


def _dense(weight: Tensor) -> None:
    if weight.grad is not None and weight.grad.is_sparse:
        weight.grad = weight.grad.to_dense()
