"""Decoders without padding, next to Hugging Face's own forward passes over padded texts."""

from __future__ import annotations

import copy
from types import MethodType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModelForSequenceClassification

from rerank.kernels import flat_attention
from rerank.kernels.flat import NAME, SEQUENCES, can_share, flatten, reads_flat, rows, use_flat_decoder
from rerank.kernels.flat_attention import AttentionCall, Sequences, attend
from rerank.kernels.interface import use_attention
from rerank.models.text.decoder import _classify
from tests.close import check_close, check_gradients, gradients_of
from tests.kernels.flat import check

WINDOW = 5
NEAR: dict[str, Any] = {"sliding_window": WINDOW}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("qwen3", {}),
    "qwen3, near": ("qwen3", NEAR | {"use_sliding_window": True, "max_window_layers": 1}),
    "qwen2": ("qwen2", {}),
    "llama": ("llama", {}),
    "mistral, near": ("mistral", NEAR),
    "gemma": ("gemma", {}),
    "gemma3, near": ("gemma3_text", NEAR),
    "phi3, near": ("phi3", NEAR),
    "olmo2": ("olmo2", {}),
}
LENGTHS = [12, 3, 9, 12, 4]


def network_of(kind: str) -> Any:
    torch.manual_seed(0)
    name, settings = KINDS[kind]
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
    sizes |= {"head_dim": 4, "intermediate_size": 24, "initializer_range": 0.3, "max_position_embeddings": 64}
    sizes |= {"vocab_size": 50, "pad_token_id": 0, "eos_token_id": 2, "bos_token_id": 1, "num_labels": 1}
    return AutoModelForSequenceClassification.from_config(AutoConfig.for_model(name, **sizes | settings)).eval()


def flat_network(kind: str) -> tuple[Any, Any]:
    """A network that reads flat chunks, and its architecture's own in float64."""
    network = network_of(kind)
    exact = copy.deepcopy(network).double()
    assert use_attention(network) and network.config._attn_implementation == NAME
    use_flat_decoder(network)
    network.forward = MethodType(_classify, network)
    return network, exact


def padded(shared: int) -> dict[str, Tensor]:
    mask = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]
    ids = torch.randint(3, 50, mask.shape, generator=torch.Generator().manual_seed(1))
    ids[:, :shared] = ids[:1, :shared]
    return {"input_ids": ids.masked_fill(~mask, 0), "attention_mask": mask.long()}


@pytest.mark.parametrize("shared", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_and_gradients_are_those_of_the_architecture(kind: str, shared: int) -> None:
    network, exact = flat_network(kind)
    assert reads_flat(network) and can_share(network)
    batch = padded(shared)
    weight, found = torch.arange(1.0, len(LENGTHS) + 1).cos(), []
    flat = flatten(batch, network, shared)
    with rows(flat.pop(SEQUENCES)):
        ours = network(**flat).logits[:, 0]
    for model, scores in ((network, ours), (exact, exact(**batch).logits[:, 0])):
        (scores * weight).sum().backward()
        found.append((scores, gradients_of(model)))
    check_close(found[0][0], found[1][0], "scores")
    check_gradients(found[0][1], found[1][1])


def test_what_drops_shares_nothing_while_it_trains() -> None:
    network, _ = flat_network("qwen3")
    assert can_share(network.train())
    network.config.attention_dropout = 0.1
    assert not can_share(network) and can_share(network.eval())


def one_by_one(states: list[Tensor], sequences: Sequences, window: int | None, causal: bool) -> Tensor:
    """The formula, token by token; a head's keys are those of half as many."""
    query, (key, value) = states[0], (state.repeat_interleave(2, 1) for state in states[1:])
    before, found = list(range(sequences.shared)), []
    for number, (start, length) in enumerate(zip(sequences.starts.tolist(), sequences.lengths, strict=False)):
        own = list(range(start, start + length))
        seen = own if not number and before else [*before, *own]
        for place in own:
            at = seen.index(place)
            near = [
                j for i, j in enumerate(seen) if (i <= at or not causal) and (window is None or abs(i - at) <= window)
            ]
            weights = (0.7 * torch.einsum("hd,nhd->hn", query[place], key[near])).softmax(-1)
            found.append(torch.einsum("hn,nhd->hd", weights, value[near]))
    return torch.stack(found)


def kernel(
    query: Tensor, key: Tensor, value: Tensor, starts: Tensor, key_starts: Tensor, *told: Any, **named: Any
) -> Tensor:
    """What FlashAttention's authors write of it: the last query lies beside the last key, windows include both ends."""
    longest, most, _, causal, *_ = told
    found = []
    left, right = named.get("window_size_left"), 0 if causal else named.get("window_size_right")
    assert (longest, most) == (int(starts.diff().max()), int(key_starts.diff().max()))
    for first, last, begin, end in zip(
        *(x.tolist() for x in (starts, starts[1:], key_starts, key_starts[1:])), strict=False
    ):
        at = torch.arange(last - first)[:, None] + (end - begin) - (last - first) - torch.arange(end - begin)
        mask = torch.ones_like(at, dtype=torch.bool)
        mask &= at <= left if left is not None else mask
        mask &= at >= -right if right is not None else mask
        states = (
            query[first:last],
            *(x[begin:end].repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value)),
        )
        q, k, v = (x.transpose(0, 1) for x in states)
        found.append(F.scaled_dot_product_attention(q, k, v, mask, scale=named["scale"]).transpose(0, 1))
    return torch.cat(found)


@pytest.fixture
def flash(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch's operation, by :func:`kernel`: there is none without a GPU."""

    def forward(*given: Any, **named: Any) -> tuple[Tensor, ...]:
        return kernel(*given, **named), *[torch.zeros(1)] * 4

    def backward(gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *others: Any, **named: Any) -> Any:
        _, _, *told, _, _ = others
        with torch.enable_grad():
            states = [state.detach().requires_grad_() for state in (query, key, value)]
            return torch.autograd.grad(kernel(*states, *told, **named), states, gradient)

    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", forward)
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_backward", backward)


@pytest.mark.usefixtures("flash")
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("window", "causal"), [(None, True), (3, True), (3, False)])
@pytest.mark.parametrize("way", ["runs", "padded", "flash"])
def test_every_way_is_the_formula(way: str, window: int | None, causal: bool, shared: bool) -> None:
    if shared and not causal:
        return
    sequences = Sequences.of([4, 9, 1, 6, 6], shared=shared)
    torch.manual_seed(0)
    states = [torch.randn(26, heads, 8).requires_grad_() for heads in (4, 2, 2)]
    call = AttentionCall(*states, sequences, 0.7, 0.0, False, window, causal)
    if way == "runs":
        found = attend(*states, sequences, 0.7, 0.0, False, window=window, causal=causal)
    else:
        found = flat_attention._padded(call) if way == "padded" else flat_attention._by_flash(call)
    check(found, one_by_one(states, sequences, window, causal), states)


def test_gradients_of_what_texts_share_add_up_in_one_order_if_asked() -> None:
    """And in float32: in bf16 256 + 1 is 256."""
    states, seen = torch.zeros(2, 1, 1, dtype=torch.bfloat16, requires_grad=True), list[bool]()

    class Look(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if "index_add" in str(func):
                seen.append(torch.are_deterministic_algorithms_enabled())
            return func(*args, **(kwargs or {}))

    for wanted in (False, True):
        token = flat_attention.DETERMINISTIC.set(wanted)
        picked = flat_attention._Picked.apply(states, torch.tensor([0, *[1] * 300]))
        flat_attention.DETERMINISTIC.reset(token)
        with Look():
            (gradient,) = torch.autograd.grad(picked.sum(), states)
        assert gradient.flatten().tolist() == [1, 300]
    assert seen == [False, True] and not torch.are_deterministic_algorithms_enabled()


def test_places_without_a_token_change_nothing() -> None:
    """On a CPU, where there are few shapes."""
    lengths = [101, 203, 203, 77]
    tight, roomy = (Sequences.of(lengths, few_shapes=few, shared=True) for few in (False, True))
    assert roomy.rooms != tight.rooms
    torch.manual_seed(0)
    states = [torch.randn(roomy.total, 2, 8) for _ in range(3)]
    real = torch.cat([torch.arange(n) + int(s) for n, s in zip(lengths, roomy.starts, strict=False)])
    for window in (None, 30):
        found = attend(*states, roomy, 0.7, 0.0, False, window=window, causal=True)
        expected = attend(*(state[real] for state in states), tight, 0.7, 0.0, False, window=window, causal=True)
        check_close(found[real], expected)
    assert torch.equal(real[tight.last], roomy.last)
