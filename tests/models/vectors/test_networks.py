"""Networks over feature vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import rerank
from rerank.errors import UserError
from rerank.features.letor import letor_lists
from rerank.features.normalise import QueryZScore, ShiftedLog, Standardise
from rerank.lists import Lists
from rerank.models.load import load_model
from rerank.models.scorer import score_lists
from rerank.models.vectors.base import FeatureNetwork, columns_of
from rerank.models.vectors.networks import MLP, ListMLP, ListNorm, SelfAttention
from tests.builders import write_features
from tests.models.independent import check_independent


@pytest.fixture
def lists(tmp_path: Path, home: Path) -> Lists:
    return letor_lists(write_features(tmp_path / "train.txt"))


NETWORKS = [
    lambda: MLP(hidden=[8]),
    lambda: MLP("1024"),
    lambda: MLP("CE5", normalise=[QueryZScore()]),
    lambda: ListMLP("CE5", normalise=[QueryZScore()]),
    lambda: SelfAttention(8, 16, normalise=[Standardise(), QueryZScore()]),
    lambda: MLP(hidden=[8], normalise=[ShiftedLog(negated=[1], plain=[2])]),
]


def prepared(make: object, lists: Lists) -> FeatureNetwork:
    torch.manual_seed(0)
    model = make()
    model.prepare(lists, 42)
    return model.eval()


@pytest.mark.parametrize("make", NETWORKS)
def test_save_preserves_scores(make: object, lists: Lists, tmp_path: Path) -> None:
    model = prepared(make, lists)
    model.save(str(tmp_path / "new" / "best"))
    loaded = load_model(tmp_path / "new" / "best")
    assert type(loaded) is type(model)
    assert loaded.contract() == model.contract() and repr(loaded.normalisers) == repr(model.normalisers)
    scores = score_lists(model, model.inputs(lists), lists)
    assert np.unique(scores).size > len(scores) / 2
    np.testing.assert_array_equal(score_lists(loaded, loaded.inputs(lists), lists), scores)


def test_loaded_model_can_be_trained_again(lists: Lists, tmp_path: Path) -> None:
    name = columns_of(lists, ["features"])[1]

    def trained(model: MLP, folder: str) -> rerank.Training:
        return rerank.train(model, lists, rerank.ListNet(), validation=None, output=tmp_path / folder, epochs=1)

    first = trained(MLP(hidden=[4], columns=[name], normalise=[QueryZScore()]), "first")
    loaded = load_model(first.folder / "best")
    assert isinstance(loaded, MLP)
    again = trained(loaded, "again")
    np.testing.assert_array_equal(again.model.predict(lists), first.model.predict(lists))


def test_list_norm_equals_batch_norm_of_one_list(lists: Lists) -> None:
    model = prepared(lambda: ListMLP("R4.L"), lists)
    norms = [layer for layer in model.layers if isinstance(layer, ListNorm)]
    assert len(norms) == 5 and norms[-1].weight.shape == (1,)
    for number in (0, 2):
        alone = lists.select([number])
        values = torch.from_numpy(alone.matrix(["features"]).copy())
        for layer in model.layers:
            if isinstance(layer, ListNorm):
                values = torch.nn.functional.batch_norm(values, None, None, layer.weight, layer.bias, training=True)
            else:
                values = layer(values)
        expected = values[:, 0].detach().numpy()
        np.testing.assert_allclose(score_lists(model, model.inputs(alone), alone), expected, atol=1e-5)


@pytest.mark.parametrize("make", NETWORKS)
def test_scores_do_not_depend_on_other_lists_of_the_batch(make: object, lists: Lists) -> None:
    check_independent(prepared(make, lists), lists, 1, 7, 64)


def test_self_attention_is_permutation_equivariant(lists: Lists) -> None:
    model = prepared(lambda: SelfAttention(8, 16), lists)
    inputs, rows = model.inputs(lists), np.arange(lists.offsets[3], lists.offsets[4])
    turned, start = np.random.default_rng(1).permutation(rows), np.zeros(1, dtype=np.int64)
    with torch.no_grad():
        whole, other, part = (model.score(inputs.collate(some, start)) for some in (rows, turned, rows[:-1]))
    torch.testing.assert_close(other, whole[torch.from_numpy(turned - rows[0])], atol=1e-5, rtol=0)
    assert (whole[:-1] - part).abs().max() > 1e-4


def test_batch_norm_refuses_one_document(lists: Lists) -> None:
    model = prepared(lambda: MLP("1024"), lists).train()
    with pytest.raises(UserError, match="one document has no spread"):
        model.score(model.inputs(lists).collate(lists.row_numbers[:1], np.zeros(1, dtype=np.int64)))


@pytest.mark.parametrize(
    ("preset", "sizes", "last", "norms"),
    [
        ("linear", [6, 1], nn.Linear, 0),
        ("1024", [6, 1024, 1], nn.Linear, 2),
        ("CE5", [6, 100, 100, 100, 100, 1], nn.CELU, 4),
        ("R4.L", [6, 100, 100, 100, 100, 1], nn.Linear, 4),
        ("B256", [6, 256, 128, 64, 32, 16, 1], nn.Linear, 6),
    ],
)
def test_presets_have_the_papers_layers(lists: Lists, preset: str, sizes: list[int], last: type, norms: int) -> None:
    model = prepared(lambda: MLP(preset), lists)
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    assert [linear[0].in_features, *(layer.out_features for layer in linear)] == sizes
    assert isinstance(model.layers[-1], last)
    assert sum(isinstance(layer, nn.BatchNorm1d) for layer in model.modules()) == norms


def test_arguments_override_the_preset(lists: Lists) -> None:
    model = prepared(lambda: MLP("B64", hidden=[5], output="tanh"), lists)
    assert [layer.out_features for layer in model.modules() if isinstance(layer, nn.Linear)] == [5, 1]
    assert score_lists(model, model.inputs(lists), lists).max() <= 1


def test_constructor_refuses_wrong_settings(lists: Lists) -> None:
    with pytest.raises(ValueError, match="did you mean 'B1024'"):
        MLP("B102")
    with pytest.raises(ValueError, match=r"width 10.*multiple of model.heads 3"):
        SelfAttention(width=10, heads=3)
    with pytest.raises(UserError, match=r"model\.columns: empty"):
        MLP(columns=[]).prepare(lists, 0)
