"""Sums of losses: targets from columns, weights that change, steps and lists that teach nothing."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from rerank.errors import UserError
from rerank.lists import Lists
from rerank.lists.data import ListsData
from rerank.lists.sampling import Full, Pairs
from rerank.losses import BCE, KLDivergence, ListNet, MarginMSE, PairwiseHinge, SmoothINDCG
from rerank.losses.base import Criterion
from rerank.losses.terms import MinMax, Ramp, Term, Terms
from rerank.models.scorer import score_lists
from rerank.models.vectors.networks import MLP
from rerank.settings.arguments import canonical, described
from rerank.training.batches import Targets, check_sampler, pad
from rerank.training.config import Optimization, TrainConfig
from rerank.training.configuration import configuration
from rerank.training.fit import Training, fit
from rerank.training.run_folder import resolve
from tests.builders import make_lists
from tests.training.helpers import gradients


@pytest.fixture
def lists(tmp_path: Path) -> Lists:
    """Lists with a first stage ``bm25``, a ``teacher`` that did not see every candidate, and a feature ``x``."""
    made = make_lists(tmp_path)
    rng = np.random.default_rng(1)
    store, size = made.store, made.size
    teacher = rng.normal(size=size).astype(np.float32)
    teacher[rng.random(size) < 0.3] = np.nan
    store.add_column("teacher", teacher)
    store.add_column("x", np.stack([rng.normal(size=size), made.grades], axis=1).astype(np.float32), ["a", "b"])
    store.add_column("y", rng.normal(size=size).astype(np.float32))
    return Lists.open(tmp_path / "lists")


def config(folder: Path, loss: Criterion, **options: object) -> TrainConfig:
    data = options.pop("data", None) or ListsData(str(folder / "lists"), validation_fraction=0.3)
    settings: dict[str, object] = {"batch_size": 3, "epochs": 2, "monitor": "nDCG", "tracker": []}
    rates = Optimization(head_lr=1e-2, weight_decay=0.1, warmup=0)
    return TrainConfig(data, MLP(hidden=[4], columns=["x", "y"]), loss, optimization=rates, **(settings | options))  # type: ignore[arg-type]


def logged(run: Training) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]


def network(lists: Lists) -> MLP:
    model = MLP(hidden=[4], columns=["x", "y"], input_norm=False)
    model.prepare(lists, 42)
    return model


def test_terms_average_over_their_own_lists(lists: Lists) -> None:
    """The gradient of two terms is theirs one by one, weighted, although they learn from different lists."""
    teacher, metric = Term(KLDivergence(), "teacher"), Term(SmoothINDCG())
    counts = [int(Targets(lists, Terms([term])).usable().size) for term in (teacher, metric)]
    assert counts[0] != counts[1]
    parts = [gradients(network(lists), lists, Terms([term])) for term in (teacher, metric)]
    terms = Terms([Term(KLDivergence(), "teacher", 0.25), Term(SmoothINDCG(), weight=Ramp(0, 6))])
    both = gradients(network(lists), lists, terms, share=0.5)
    assert both[0] == pytest.approx(0.25 * parts[0][0] + 3 * parts[1][0], rel=1e-5)
    expected = {name: 0.25 * parts[0][1][name] + 3 * parts[1][1][name] for name in both[1]}
    torch.testing.assert_close(both[1], expected, rtol=1e-4, atol=1e-6)


def test_targets_mask_candidates_without_a_value(lists: Lists) -> None:
    """The loss is that of the other candidates, by hand."""
    values = lists.column("teacher")
    model = network(lists)
    scores = score_lists(model, model.inputs(lists), lists, precision="fp32", budget=None)
    rows = np.split(np.arange(lists.size), lists.offsets[1:-1])
    some = [row[~np.isnan(values[row])] for row in rows]
    padded, mask = pad([scores[row] for row in some])
    labels, _ = pad([values[row] for row in some])
    expected = MarginMSE()(padded, labels, mask)
    value, _ = gradients(model, lists, Terms([Term(MarginMSE(), "teacher")]))
    assert value == pytest.approx(float(expected), rel=1e-4)


def test_scaling_is_by_list(lists: Lists) -> None:
    targets = Targets(lists, Terms([Term(SmoothINDCG(), "teacher", scaling=MinMax())]))
    values, scaled = lists.column("teacher"), targets.flat[0]
    for given, found in zip(*(np.split(of, lists.offsets[1:-1]) for of in (values, scaled)), strict=True):
        known = given[~np.isnan(given)]
        if len(known) > 1:
            expected = (known - known.min()) / (known.max() - known.min())
            np.testing.assert_allclose(found[~np.isnan(given)], expected, atol=1e-6)
    assert (np.isnan(scaled) == np.isnan(values)).all()


@pytest.mark.parametrize(
    ("term", "says"),
    [
        (Term(SmoothINDCG(), "teacher"), "takes grades, and column 'teacher' goes down to -"),
        (Term(MarginMSE(), "techer"), "has no column 'techer' .did you mean 'teacher'"),
        (Term(MarginMSE(), "x"), "has 2 numbers a candidate"),
    ],
)
def test_fit_raises_for_unusable_targets(lists: Lists, term: Term, says: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=says):
        fit(config(tmp_path, Terms([term])), tmp_path / "run")
    assert not (tmp_path / "run" / "fingerprint.json").exists()


def test_terms_raise_for_invalid_arguments() -> None:
    for make, says in (
        (lambda: Terms([]), "one term at least"),
        (lambda: Term(ListNet(), weight=-1), "Term.weight: must be at least 0"),
        (lambda: Term(ListNet(), scaling=MinMax()), "MinMax scales columns"),
        (lambda: Term(ListNet(reduction="none")), "mean or sum, not none"),
        (lambda: Ramp(-1), "at least 0"),
        (lambda: Ramp(since=0.5, until=0.2), "in this order"),
    ):
        with pytest.raises((UserError, ValueError), match=says):
            make()


def test_training_without_any_judgment(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The teacher is linear in x, so that the order is learned; nothing is validated."""
    frame = make_lists(tmp_path).to_dataframe().drop(columns="grade")
    x = np.random.default_rng(0).normal(size=len(frame))
    folder = str(tmp_path / "unjudged")
    assert Lists.from_dataframe(frame.assign(x=x, teacher=x * 3 - 7)).save(folder).qrels is None
    loss = Terms([Term(MarginMSE(), "teacher")])
    asked = {"data": ListsData(folder, unjudged=True), "epochs": 40}
    with caplog.at_level(logging.INFO, logger="rerank"):
        run = fit(replace(config(tmp_path, loss, **asked), model=MLP(hidden=[8], columns=["x"])), tmp_path / "run")
    assert "no query has a judgment, so no epoch is chosen by validation" in caplog.text
    epochs = [line["mean_loss"] for line in logged(run) if "mean_loss" in line]
    assert epochs[-1] < 0.5 * epochs[0]  # type: ignore[operator]
    with pytest.raises(UserError, match=r"has no judgments; .*, or set data.unjudged"):
        fit(config(tmp_path, loss, data=ListsData(folder)), tmp_path / "other")
    with pytest.raises(UserError, match="has anything to learn from"):
        judged = config(tmp_path, BCE(), data=ListsData(folder, unjudged=True))
        fit(replace(judged, model=MLP(hidden=[8], columns=["x"])), tmp_path / "other")


def test_terms_are_read_from_yaml_and_options(lists: Lists, tmp_path: Path) -> None:
    """Both make what Python makes, with the same id; a column that changes makes another one."""
    meant = Terms([Term(KLDivergence(2.0), "teacher", Ramp(until=0.5)), Term(ListNet(), scaling=None, weight=0.5)])
    divergence = {"class_path": "KLDivergence", "init_args": {"temperature": 2}}
    ramp = {"class_path": "Ramp", "init_args": {"until": 0.5}}
    terms = [{"loss": divergence, "target": "teacher", "weight": ramp}, {"loss": "ListNet", "weight": 0.5}]
    file = tmp_path / "loss.yaml"
    file.write_text(yaml.safe_dump({"loss": {"class_path": "Terms", "init_args": {"terms": terms}}}))
    words = [f"--data.train={tmp_path / 'lists'}", "--model=MLP", "--model.columns=[x]", f"--output={tmp_path / 'run'}"]
    made = [
        configuration(["--data=ListsData", *words, *asked])[0].loss
        for asked in ([f"--config={file}"], ["--loss=Terms", f"--loss.terms={json.dumps(terms)}"])
    ]
    assert described(made[0]) == described(made[1]) == described(meant)
    assert canonical(made[0]) == canonical(meant)


def test_steps_without_a_signal_are_skipped(lists: Lists, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The weights stay as they are: no decay, no momentum. The rates go on."""
    never = Term(MarginMSE(), "teacher", Ramp(1, 0, since=0.5, until=0.5))
    with caplog.at_level(logging.INFO, logger="rerank"):
        run = fit(config(tmp_path, Terms([never]), epochs=4), tmp_path / "run")
    lines = logged(run)
    steps = [line for line in lines if "learning_rate" in line]
    skipped = [bool(line.get("skipped")) for line in steps]
    assert skipped == [False] * (len(steps) // 2) + [True] * (len(steps) // 2)
    assert {line["documents/s"] for line in steps if line.get("skipped")} == {0.0}, "nothing was scored"
    epochs = [line for line in lines if "mean_loss" in line]
    assert [line["skipped_steps"] for line in epochs] == [0, 0, *[len(steps) // 4] * 2]
    assert "steps skipped (nothing to learn from)" in caplog.text
    for place, epoch in enumerate(epochs):  # steps that were skipped have no loss, and are in no mean
        own = [line["loss"] for line in np.array_split(steps, 4)[place] if "loss" in line]
        assert epoch["mean_loss"] == pytest.approx(np.mean(own) if own else 0.0)
    values = [line["validation"] for line in epochs]
    assert values[1] == values[2] == values[3]
    rates = [line["learning_rate"] for line in steps]
    assert rates == sorted(rates, reverse=True) and rates[-1] < rates[len(rates) // 2]


def test_usable_counts_only_the_samplers_reach(lists: Lists) -> None:
    deep = Targets(lists, PairwiseHinge()).usable()
    shown = Targets(lists, PairwiseHinge()).usable(Full(2))
    tops = lists.top(2)
    assert shown.tolist() == Targets(tops, PairwiseHinge()).usable().tolist()
    assert set(shown) < set(deep)


def test_samplers_by_grades_need_grades(lists: Lists, tmp_path: Path) -> None:
    check_sampler(lists, Pairs())
    alone = Lists.from_dataframe(lists.to_dataframe().drop(columns="grade"))
    check_sampler(alone, Full(3))
    with pytest.raises(UserError, match="Pairs chooses by grades, which 12 of 12 training queries do not"):
        check_sampler(alone, Pairs())


def test_fingerprint_counts_target_columns(lists: Lists) -> None:
    splits = ListsData(str(lists.store.folder), validation_fraction=0.3).splits(0)
    model, data = MLP(columns=["x"]), ListsData(str(lists.store.folder))
    plain = resolve(TrainConfig(data, model, ListNet()), splits)["data"]
    read = resolve(TrainConfig(data, model, Terms([Term(ListNet(), target="teacher")])), splits)["data"]
    assert set(read["train"]) - set(plain["train"]) == {"column teacher"} and read["validation"] == plain["validation"]
