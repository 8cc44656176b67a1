"""Configurations that extend others."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.settings.parser import merged, read_config
from tests.conftest import ROOT

BY_HAND = sorted(path for path in (ROOT / "configs").rglob("*.yaml") if path.parent.name != "accelerate")

BASE: dict[str, Any] = {
    "data": {"class_path": "FoldsData", "init_args": {"lists": "here", "folds": 5}},
    "loss": {"class_path": "DirectMetric", "init_args": {"measure": "nDCG", "relaxation": "SmoothI"}},
    "optimization": {"head_lr": 0.1, "warmup": 0},
    "epochs": 3,
}


@pytest.mark.parametrize(
    ("key", "way"),
    [
        ("data.fold", ["data", "init_args", "fold"]),
        ("data.init_args.fold", ["data", "init_args", "fold"]),
        ("optimization.head_lr", ["optimization", "head_lr"]),
        ("loss.relaxation.alpha", ["loss", "init_args", "relaxation", "init_args", "alpha"]),
        ("sampler.depth", ["sampler", "depth"]),
        ("epochs", ["epochs"]),
    ],
)
def test_merged_sets_dotted_key(key: str, way: list[str]) -> None:
    settings = merged(BASE, {key: 7})
    found: Any = settings
    for part in way:
        found = found[part]
    assert found == 7
    assert all(settings[name] == BASE[name] for name in BASE if name != way[0])


def test_merged_updates_mappings_and_replaces_classes() -> None:
    before = copy.deepcopy(BASE)
    both = merged(BASE, {"optimization": {"head_lr": 1}, "data": {"folds": 3}, "loss": {"class_path": "ListNet"}})
    assert before == BASE
    assert both["optimization"] == {"head_lr": 1, "warmup": 0}
    assert both["data"] == {"class_path": "FoldsData", "init_args": {"lists": "here", "folds": 3}}
    assert both["loss"] == {"class_path": "ListNet"}
    assert merged(BASE, {"loss": None})["loss"] is None
    assert merged(BASE, {}) == BASE


def write(path: Path, content: dict[str, Any], **more: Any) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(yaml.safe_dump(more | content, sort_keys=False, default_style='"'))
    return path


def test_read_config_keeps_arguments_above_their_class(tmp_path: Path) -> None:
    nested = merged({}, {"loss": {"relaxation.alpha": 3}, "loss.relaxation": "SmoothI"})
    assert nested == {"loss": {"relaxation": {"class_path": "SmoothI", "init_args": {"alpha": 3}}}}
    assert merged({"loss": {"init_args": {"alpha": 3}}}, {"loss": "ApproxNDCG"})["loss"]["init_args"] == {"alpha": 3}
    file = {"loss.alpha": 3, "loss": "ApproxNDCG", "model.hidden": [4], "model": {"class_path": "MLP"}}
    found = read_config(write(tmp_path / "x.yaml", file))
    assert found["loss"] == {"class_path": "ApproxNDCG", "init_args": {"alpha": 3}}
    assert found["model"] == {"class_path": "MLP", "init_args": {"hidden": [4]}} and list(found) == ["loss", "model"]


def test_read_config_fails_when_a_key_is_repeated(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("a: &a {b: 1}\nc: {<<: *a, d: 2}\nmethods:\n  A: {set: {}}\n  A: {set: {}}\n")
    with pytest.raises(UserError, match=r"x.yaml:5: not YAML: A is there twice"):
        read_config(tmp_path / "x.yaml")


NETWORK = {
    "data": {"class_path": "LetorData", "init_args": {"path": "here"}},
    "model": {"class_path": "MLP", "init_args": {"preset": "1024", "dropout": 0.5}},
    "loss": "ListNet",
}


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    try:
        main(["train", *words, "--print_config"])
    except SystemExit as left:
        assert left.code == 0
    return yaml.safe_load(capsys.readouterr().out)


def test_train_prints_the_resolved_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "base" / "network.yaml", NETWORK, output="x")
    path = write(tmp_path / "mine.yaml", {"model.preset": "linear", "epochs": 7}, extends="base/network.yaml")
    config = printed(capsys, "--config", str(path), "--epochs=9")
    assert config["model"]["init_args"]["preset"] == "linear"
    assert config["model"]["init_args"]["dropout"] == 0.5
    assert (config["epochs"], config["loss"]["class_path"]) == (9, "rerank.ListNet")
    assert "extends" not in config
    again = write(tmp_path / "config.yaml", config)
    assert printed(capsys, f"--config={again}") == config


def test_train_merges_several_files_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "one.yaml", NETWORK, output="1e-3", epochs=1)
    two = write(tmp_path / "two.yaml", {"model": {"preset": "linear"}, "epochs": 2, "batch_size": 3})
    three = write(tmp_path / "three.yaml", {"loss": {"class_path": "SmoothINDCG"}, "epochs": 3})
    words = [f"--config={path}" for path in (one, two, three)]
    config = printed(capsys, *words)
    assert (config["epochs"], config["batch_size"], config["output"]) == (3, 3, "1e-3")
    assert config["model"]["init_args"] | {"preset": "linear", "dropout": 0.5} == config["model"]["init_args"]
    assert config["loss"]["class_path"] == "rerank.SmoothINDCG"
    four = write(tmp_path / "four.yaml", {"model": {"class_path": "MLP", "init_args": {"hidden": [8]}}})
    config = printed(capsys, *words, f"--config={four}", "--epochs=5")
    assert (config["model"]["init_args"]["hidden"], config["model"]["init_args"]["preset"]) == ([8], None)
    assert (config["epochs"], config["batch_size"]) == (5, 3)


def test_experiment_merges_several_files_in_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = write(tmp_path / "one.yaml", {"output": "x", "base": NETWORK, "methods": {"m": {"set": {"loss.k": 1}}}})
    two = write(tmp_path / "two.yaml", {"base": {"data.path": "there"}, "methods": {"n": {"set": {"epochs": 2}}}})
    words = [f"--config={one}", "--output=y", f"--config={two}", "--base.epochs=3", "--print_config"]
    words += ["--folds", "1", "2", "--seeds", "3"]
    assert main(["experiment", *words]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert (shown["output"], shown["base"]["epochs"]) == ("y", 3)
    assert (shown["folds"], shown["seeds"]) == ([1, 2], [3])
    assert shown["base"]["data"]["init_args"]["path"] == "there"
    assert shown["base"]["model"] == NETWORK["model"], "a preset of 1024 is a text still"
    assert {name: method["set"] for name, method in shown["methods"].items()} == {
        "m": {"loss.k": 1},
        "n": {"epochs": 2},
    }


REFUSED = {
    "nothing": ("", r"x\.yaml: a configuration is a mapping"),
    "syntax": ("a: 1\nb: [\n", r"x\.yaml:3: not YAML: .*"),
    "tag": ("a: !!python/object:os.system {}\n", r"x\.yaml:1: not YAML: .*"),
    "value": ("a: !!int x\n", r"x\.yaml: not YAML: .*"),
    "missing": ("a: 1\nextends: no.yaml\n", r"x\.yaml: extends: no such file .*no\.yaml; paths are relative .*"),
    "several": ("extends: [a.yaml]\n", r"x\.yaml: extends: expected the path of one file, not \['a.yaml'\]"),
    "scalar": ("extends: base.yaml\nepochs: {x: 1}\n", r"x\.yaml: epochs: is 3, which holds no keys"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_read_config_fails_in_one_line(name: str, tmp_path: Path, capsys: Any) -> None:
    text, message = REFUSED[name]
    write(tmp_path / "x" / "base.yaml", {"epochs": 3, "folds": [1]})
    path = tmp_path / "x" / "x.yaml"
    path.write_text(text)
    with pytest.raises(UserError, match=message) as refusal:
        read_config(path)
    assert "\n" not in str(refusal.value)
    for command in ("train", "experiment"):
        assert main([command, "--config", str(path)]) == 2
        assert str(refusal.value) in capsys.readouterr().err


def test_read_config_fails_when_files_extend_each_other(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        write(tmp_path / f"{name}.yaml", {}, extends=f"./{other}.yaml")
    with pytest.raises(UserError, match=r"c\.yaml: extends: .*a\.yaml extends this file in turn"):
        read_config(tmp_path / "a.yaml")


def test_base_leaves_out_what_the_experiment_sets(tmp_path: Path) -> None:
    write(tmp_path / "training.yaml", {"epochs": 7, "output": "runs/x", "seed": 3, "test": False})
    found = read_config(write(tmp_path / "x.yaml", {"base": {"extends": "training.yaml", "seed": 4}}))
    assert found["base"] == {"epochs": 7, "seed": 4}, "its own seed is refused later"


@pytest.mark.parametrize("path", BY_HAND, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_configs_are_used_or_say_how_to_run_them(path: Path) -> None:
    text = path.read_text()
    if path.parent.name == "base":
        users = [other for other in BY_HAND if f"{path.name}\n" in other.read_text() and "extends" in other.read_text()]
        assert users, "nobody needs it"
        assert "output" not in read_config(path), "not to be run"
    else:
        assert f"--config configs/{path.relative_to(ROOT / 'configs')}" in text


def test_commands_name_each_other_when_given_the_wrong_file(tmp_path: Path, capsys: Any) -> None:
    training = write(tmp_path / "training.yaml", NETWORK)
    experiment = write(tmp_path / "experiment.yaml", {"output": "x", "base": NETWORK, "methods": {"m": {}}})
    for command, path, other in (("train", experiment, "experiment"), ("experiment", training, "train")):
        assert main([command, f"--config={path}"]) == 2
        assert f"run it with rerank {other} --config {path}" in capsys.readouterr().err


def test_read_config_expands_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    write(tmp_path / "base.yaml", {"data": {"path": "~/x"}, "collection": "beir:~/y", "name": "a~/b"})
    found = read_config(write(tmp_path / "c" / "over.yaml", {"folds": ["~/z"]}, extends="~/base.yaml"))
    assert found == {
        "data": {"path": f"{tmp_path}/x"},
        "collection": f"beir:{tmp_path}/y",
        "name": "a~/b",
        "folds": [f"{tmp_path}/z"],
    }
