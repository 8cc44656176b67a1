"""A method is given up by the rule that was written beforehand, and by validation alone."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import yaml

from rerank.commands.experiment import experiment
from rerank.errors import UserError
from rerank.experiments.cells import Plan
from rerank.experiments.config import ExperimentConfig, Futility, Method
from rerank.experiments.keep import read_kept, write_kept
from rerank.experiments.run import Experiment
from rerank.storage.hashes import read_sealed
from tests.builders import make_lists, make_model
from tests.experiments.test_keep import write_config


def test_what_is_behind_after_the_first_seed_is_not_trained_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make_model(tmp_path / "model")
    make_lists(tmp_path)
    rates = {"slow": 1e-7, "fast": 1e-3}
    changes = {
        "methods": {
            name: {"set": {"loss": "ListNet", "optimization.encoder_lr": rate}} for name, rate in rates.items()
        },
        "folds": [1],
        "seeds": [1, 2],
        "first_stage": "hide",
        "futility": {"after": 1, "difference": 1e-9},
        "keep": None,
    }
    with caplog.at_level(logging.INFO, "rerank"):
        assert experiment([write_config(tmp_path, **changes)]) == 0
    said = [message.split()[0] for message in caplog.messages if message.startswith("[")]
    assert said == ["[1/4]", "[2/4]", "[3/3]"], "what is given up is counted no more"
    cells = tmp_path / "out" / "cells"
    found = {name: read_sealed(next(cells.glob(f"{name}/*/seed-1/*/measures.json"))) for name in rates}
    values = {name: content["validation"]["nDCG"] for name, content in found.items()}
    assert values["slow"] != values["fast"]
    behind, ahead = sorted(values, key=lambda name: values[name])
    assert not (cells / behind / "fold-1" / "seed-2").exists() and (cells / ahead / "fold-1" / "seed-2").exists()
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert (
        f"Stopped for futility after 1 seed, being 1e-09 or more below the best on validation ({values[ahead]:.4f})"
        in (results["caption"])
    )
    assert results["table"][behind]["cells"] == 1 and results["table"][behind]["wanted"] == 2


class Interrupted(Experiment):
    """Ends where the rule is applied."""

    def _give_up(self) -> None:
        raise KeyboardInterrupt


def test_what_is_kept_of_later_seeds_survives_an_interruption_among_the_first(tmp_path: Path) -> None:
    make_model(tmp_path / "model")
    make_lists(tmp_path)
    kept = tmp_path / "kept.parquet"
    changes = {
        "methods": {"hinge": {"set": {"loss": "PairwiseHinge"}}},
        "folds": [1],
        "seeds": [1, 2],
        "first_stage": "hide",
        "futility": {"after": 1, "difference": 0.5},
        "keep": str(kept),
    }
    assert experiment([write_config(tmp_path, **changes)]) == 0
    files = read_kept(kept)
    write_kept(kept, [file for file in files if file.seed == 2])
    settings = yaml.safe_load((tmp_path / "experiment.yaml").read_text()) | {"output": str(tmp_path / "again")}
    settings |= {"methods": {"hinge": Method({"loss": "PairwiseHinge"})}, "futility": Futility(1, 0.5)}
    with pytest.raises(KeyboardInterrupt):
        Interrupted(Plan(ExperimentConfig(**settings))).run()
    later = {file.path for file in files if file.seed == 2}
    assert later and later <= {file.path for file in read_kept(kept)}


@pytest.mark.parametrize("rule", [{"after": 2, "difference": 0.1}, {"after": 1, "difference": 0.0}])
def test_a_rule_that_cannot_apply_is_refused(tmp_path: Path, rule: dict[str, float]) -> None:
    with pytest.raises(UserError, match="futility: after must be from 1 to 1 seeds, difference above 0"):
        experiment([write_config(tmp_path, seeds=[1, 2], futility=rule), "--dry-run"])
