"""Chunks without padding, next to Hugging Face's own forward pass over padded ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rerank.kernels import cpu_attention, flat_attention
from rerank.kernels.dropout import draw
from rerank.kernels.flat import KINDS, OWN_CODE, reads_flat
from rerank.kernels.flat_attention import Sequences, attend
from rerank.kernels.implementations import Implementations, use_implementations
from tests.kernels.flat import check, check_flat, network_of, read

LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=9)


def padded(lengths: list[int], holes: bool = False) -> dict[str, Tensor]:
    """Rows of random tokens; with holes, some tokens but the first are masked, as in CEDR's rows."""
    width = max(lengths)
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    if holes:
        mask &= (torch.rand(mask.shape) < 0.7) | (torch.arange(width) == 0)
    ids = torch.randint(2, 50, mask.shape).masked_fill(~mask, 1)
    types = torch.randint(0, 2, mask.shape).masked_fill(~mask, 0)
    return {"input_ids": ids, "attention_mask": mask.long(), "token_type_ids": types}


@pytest.mark.parametrize("kind", KINDS)
@given(lengths=LENGTHS, holes=st.booleans())
def test_scores_and_gradients_are_those_of_the_architecture(kind: str, lengths: list[int], holes: bool) -> None:
    check_flat(network_of(kind), padded(lengths, holes))


def test_positions_of_roberta_skip_the_padding_token_also_within_a_text() -> None:
    network, batch = network_of("roberta"), padded([6, 9])
    batch["input_ids"][1, 4] = 1
    check_flat(network, batch)


def test_no_layer_computes_padding_and_the_last_nothing_but_cls() -> None:
    network, batch = network_of("bert"), padded([3, 9, 1, 4])
    seen: list[tuple[str, int]] = []
    for name, module in network.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(lambda _, args, __, name=name: seen.append((name, len(args[0]))))
    read(network, batch)
    for name, count in seen:
        only_cls = "layer.1" in name and "key" not in name and "value" not in name
        assert count == (4 if only_cls or ".layer." not in name else 17), name


def test_without_being_told_a_network_is_what_it_was() -> None:
    network, batch = network_of("roberta"), padded([3, 5])
    hidden = network.roberta(**batch, output_hidden_states=True)
    assert hidden.last_hidden_state.shape == (2, 5, 16)
    assert len(hidden.hidden_states) == 3


def test_other_architectures_are_left_alone() -> None:
    assert not reads_flat(network_of("mpnet"))
    assert not reads_flat(torch.nn.Linear(1, 1))
    assert reads_flat(network_of("bert"))


@pytest.mark.parametrize("kind", OWN_CODE)
def test_scores_and_gradients_of_encoders_by_their_own_code(kind: str) -> None:
    network = network_of(kind)
    assert reads_flat(network)
    for lengths in ([7, 2, 11, 7], [5]):
        check_flat(network, padded(lengths))


def states(total: int, kind: torch.dtype = torch.float32, size: float = 1.0) -> list[Tensor]:
    return [(size * torch.randn(total, 3, 4)).to(kind).requires_grad_() for _ in range(3)]


def one_by_one(tensors: list[Tensor], lengths: list[int], scale: float, gone: list[Tensor] | None = None) -> Tensor:
    """The formula, sequence by sequence; ``gone`` are the weights that are dropped, at a rate of a quarter."""
    found = []
    for i, parts in enumerate(zip(*(tensor.split(lengths) for tensor in tensors), strict=True)):
        query, key, value = (part.transpose(0, 1) for part in parts)
        weights = (scale * query @ key.transpose(1, 2)).softmax(-1)
        if gone is not None:
            weights = weights * ~gone[i] / 0.75
        found.append((weights @ value).transpose(0, 1))
    return torch.cat(found)


@pytest.mark.parametrize("way", ["products", "pytorch", "padded"])
@given(lengths=LENGTHS, first=st.booleans())
def test_every_way_gives_the_same_attention(way: str, lengths: list[int], first: bool) -> None:
    tensors, sequences = states(sum(lengths)), Sequences.of(lengths)
    asked = [tensors[0][sequences.first] if first else tensors[0], *tensors[1:]]
    theirs = one_by_one(tensors, lengths, 0.7)
    theirs = theirs[sequences.first] if first else theirs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_attention, "FASTER", (torch.float32,) if way == "products" else ())
        patch.setattr(flat_attention, "ELEMENTS", 100)
        given = (*asked, sequences, 0.7, 0.0, first)
        ours = flat_attention._padded(flat_attention.AttentionCall(*given)) if way == "padded" else attend(*given)
        check(ours, theirs, tensors)


@given(lengths=LENGTHS)
def test_with_dropout_it_is_its_formula(lengths: list[int]) -> None:
    tensors, sequences = states(sum(lengths)), Sequences.of(lengths)
    torch.manual_seed(3)
    ours = attend(*tensors, sequences, 0.7, 0.25, first=False)
    torch.manual_seed(3)
    gone = []
    for _, _, count, length in sequences.runs(flat_attention.ELEMENTS // 3):
        shape = (count, 3, length, length)
        pairs = draw(int(np.prod(shape))).numpy().view(np.uint8).reshape(-1, 2)
        bytes_ = np.concatenate([pairs[:, 0], pairs[:, 1]])[: np.prod(shape)]
        gone += list(torch.from_numpy(bytes_ < 64).view(shape))
    check(ours, one_by_one(tensors, lengths, 0.7, gone), tensors)


def test_padded_dropout_keeps_the_mean() -> None:
    lengths = [7, 3, 12]
    tensors, sequences = states(22), Sequences.of(lengths)
    tensors[2] = torch.ones_like(tensors[2])
    asked = flat_attention.AttentionCall(*tensors, sequences, 0.7, 0.3, False)
    found = torch.stack([flat_attention._padded(asked) for _ in range(400)])
    assert float((found == 1).float().mean()) < 0.5
    assert float(found.detach().mean()) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("size", [1.0, 8.0, 30.0], ids=["usual", "large", "beyond the exponential"])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_weights_of_any_size_are_softmax(size: float, sign: float) -> None:
    """Also where every product of a query is so large, or so small, that its exponential is none."""
    query, key, value = (state.detach() for state in states(10, size=size))
    key = sign * query.mean(0) + 0.1 * key
    tensors = [query.requires_grad_(), key.requires_grad_(), value.requires_grad_()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cpu_attention, "FASTER", (torch.float32,))
        check(attend(*tensors, Sequences.of([10]), 0.7, 0.0, False), one_by_one(tensors, [10], 0.7), tensors)


def test_in_bf16_it_errs_no_more_than_pytorchs() -> None:
    lengths, exact = [40, 40, 25], states(105, torch.float64)
    rounded = [tensor.detach().bfloat16().requires_grad_() for tensor in exact]
    whole = torch.autograd.grad(one_by_one(exact, lengths, 0.7).square().sum(), exact)

    def error(output: Tensor) -> float:
        found = torch.autograd.grad(output.float().square().sum(), rounded)
        return max(float((a - b).norm() / b.norm()) for a, b in zip(found, whole, strict=True))

    def theirs(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        parts = zip(*(tensor.split(lengths) for tensor in (query, key, value)), strict=True)
        return torch.cat(
            [F.scaled_dot_product_attention(*(x.transpose(0, 1) for x in p), scale=0.7).transpose(0, 1) for p in parts]
        )

    assert error(attend(*rounded, Sequences.of(lengths), 0.7, 0.0, False)) < 1.5 * error(theirs(*rounded))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["own", "torch"])
@given(lengths=st.lists(st.integers(1, 37), min_size=1, max_size=9))
def test_what_few_shapes_fill_in_changes_nothing(kind: str, way: str, lengths: list[int]) -> None:
    """Rungs twice as coarse as they are, so that short texts have them, too."""
    network = network_of(kind)
    use_implementations(network, Implementations.all(way))  # type: ignore[arg-type]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flat_attention, "TEXT", 0.2)
        patch.setattr(flat_attention, "CHUNK", 0.5)
        check_flat(network, padded(lengths))


@given(st.lists(st.integers(1, 512), min_size=1, max_size=40))
def test_few_shapes_are_at_most_three_hundredths_more(lengths: list[int]) -> None:
    sequences = Sequences.of(lengths, few_shapes=True)
    assert sum(lengths) <= sum(sequences.rooms) <= sequences.total <= 1.03 * sum(lengths)
    assert all(length <= room <= 1.02 * length for length, room in zip(lengths, sequences.rooms, strict=True))
    for run in sequences.runs(1 << 30):
        number, start, count, places = run
        assert start == int(sequences.starts[number])
        assert count & (count - 1) == 0 or sequences.rooms == tuple(lengths)
        own, mask = lengths[number : number + count], sequences.mask_of(run)
        real = [places] * count if mask is None else (places - mask.shape[3] + mask.sum((1, 2, 3))).tolist()
        assert real == own
