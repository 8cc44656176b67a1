"""Small networks that read flat chunks, and references for their scores and gradients."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForSequenceClassification

from rerank.kernels.flat import SEQUENCES, lay, use_flat_encoder
from rerank.kernels.flat_attention import SEEN, Sequences, having
from tests.close import check_close, check_gradients, gradients_of


def network_of(kind: str, layers: int = 2, dropout: float = 0.0, **settings: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": layers, "num_attention_heads": 2, "intermediate_size": 24}
    sizes |= {"embedding_size": 8, "vocab_size": 50, "max_position_embeddings": 40, "type_vocab_size": 2, "dim": 16}
    sizes |= {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout, "n_layers": 1, "n_heads": 2}
    sizes |= {"num_labels": 1, "initializer_range": 0.3, "pad_token_id": 1}
    config = AutoConfig.for_model(kind, **sizes | settings)
    network = AutoModelForSequenceClassification.from_config(config).eval()
    use_flat_encoder(network)
    return network


def padded(lengths: list[int], holes: bool = False, types: bool = True, pad: int = 1) -> dict[str, Tensor]:
    """Make rows of random tokens, the same every time; ``holes`` masks some tokens but never the first."""
    drawn, width = torch.Generator().manual_seed(len(lengths)), max(lengths)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    if holes:
        mask &= (torch.rand(mask.shape, generator=drawn) < 0.7) | (torch.arange(width) == 0)
    ids, kinds = (torch.randint(first, last, mask.shape, generator=drawn) for first, last in ((4, 50), (0, 2)))
    batch = {"input_ids": ids.masked_fill(~mask, pad), "attention_mask": mask.long()}
    return batch | ({"token_type_ids": kinds.masked_fill(~mask, 0)} if types else {})


def flatten(batch: dict[str, Tensor], network: Any) -> dict[str, Any]:
    """Lay padded rows end to end."""
    mask = batch["attention_mask"].bool()
    tokens = {name: batch[name][mask] for name in ("input_ids", "token_type_ids") if name in batch}
    return lay(tokens, torch.arange(mask.shape[1]).expand_as(mask)[mask], mask.sum(1), network)


def read(network: Any, batch: dict[str, Tensor]) -> Tensor:
    flat = flatten(batch, network)
    with having(SEEN, flat.pop(SEQUENCES)):
        return network(**flat).logits[:, 0]


def rows_of_layers(network: Any, batch: dict[str, Tensor]) -> list[tuple[str, int]]:
    """List the linear layers that read the batch, with their numbers of tokens."""
    seen: list[tuple[str, int]] = []
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda _, args, __, name=name: seen.append((name, len(args[0]))))
    read(network, batch)
    return seen


def check_flat(network: Any, batch: dict[str, Tensor], exact: Any = None) -> None:
    """Compare scores and gradients of flat chunks in float32 with the architecture's own in float64."""
    exact = copy.deepcopy(network).double() if exact is None else exact
    weight = torch.arange(1.0, len(batch["input_ids"]) + 1).cos()
    found = []
    for model, scores in ((network, read(network, batch)), (exact, exact(**batch).logits[:, 0])):
        model.zero_grad(set_to_none=True)
        (scores * weight).sum().backward()
        found.append((scores, gradients_of(model)))
    check_close(found[0][0], found[1][0], "scores", least=1.0)
    check_gradients(found[0][1], found[1][1])


def formula(
    states: list[Tensor],
    sequences: Sequences,
    window: int | None = None,
    causal: bool = False,
    gone: Tensor | None = None,
) -> Tensor:
    """Compute attention with a scale of 0.7; ``gone`` marks the weights that dropout removes at a rate of a quarter."""
    query = states[0]
    key, value = (state.repeat_interleave(query.shape[1] // state.shape[1], 1) for state in states[1:])
    number = torch.arange(len(sequences.lengths)).repeat_interleave(torch.tensor(sequences.lengths))
    place = torch.arange(len(query)) - sequences.starts[number]
    mask = number[:, None] == number
    apart = place[:, None] - place
    mask &= (apart >= 0) | (not causal)
    mask &= apart.abs() <= (window if window is not None else len(query))
    weights = (0.7 * torch.einsum("qhd,khd->hqk", query, key)).masked_fill(~mask, -torch.inf).softmax(-1)
    weights = weights if gone is None else weights * ~gone / 0.75
    return torch.einsum("hqk,khd->qhd", weights, value)


def lost(words: Tensor, count: int, steps: int) -> Tensor:
    """Mark the elements that dropout removes: low bytes come first, then high ones."""
    pairs = words.view(torch.uint8).view(-1, 2)
    return torch.cat([pairs[:, 0], pairs[:, 1]])[:count] < steps


def check(ours: Tensor, theirs: Tensor, tensors: list[Tensor]) -> None:
    check_close(ours, theirs)
    weight = torch.arange(ours.numel(), dtype=ours.dtype).view_as(ours).cos()
    one, other = (
        dict(zip("qkv", torch.autograd.grad((output * weight).sum(), tensors), strict=True))
        for output in (ours, theirs)
    )
    check_gradients(one, other)
