"""Damaged files: each reader refuses them in one line of its own, or reads on; what a hash covers is never misread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rerank.errors import UserError
from rerank.retrieval import read_run
from tests.fuzz.mutations import mutated_file
from tests.fuzz.readers import READERS, write_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """All valid files."""
    folder = tmp_path_factory.mktemp("fuzz") / "files"
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RERANK_HOME", str(folder.parent / "home"))
        write_files(folder)
        logging.disable(logging.WARNING)
        yield folder
        logging.disable(logging.NOTSET)


def says(action: Any, *arguments: Any) -> str:
    """The one line that is said."""
    with pytest.raises(UserError) as refused:
        action(*arguments)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("examples", [8, pytest.param(300, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", READERS)
def test_damage_is_one_line_or_goes_unnoticed(folder: Path, name: str, examples: int) -> None:
    reader = READERS[name]
    path = folder / reader.file
    whole = path.read_bytes()
    reader.read(path)

    @settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
    @given(st.randoms(use_true_random=False))
    def check(random: Random) -> None:
        path.write_bytes(mutated_file(path, whole, random))
        try:
            reader.read(path)
        except UserError as error:
            assert str(error) and "\n" not in str(error)

    try:
        check()
    finally:
        path.write_bytes(whole)


def refusals(path: Path, read: Callable[[Path], Any], step: int, damage: Callable[[bytes], bytes]) -> list[str]:
    """What is said of a file whose bytes are damaged four by four, here and there."""
    whole, said = path.read_bytes(), []
    try:
        for place in range(4, len(whole) - 8, step):
            path.write_bytes(whole[:place] + damage(whole[place : place + 4]) + whole[place + 4 :])
            try:
                read(path)
            except UserError as error:
                said.append(str(error))
    finally:
        path.write_bytes(whole)
    assert not any("\n" in line for line in said)
    return said


def test_a_library_that_says_several_lines_is_put_in_one(folder: Path) -> None:
    """Arrow ends what it says of a damaged page with a new line."""
    said = refusals(folder / "a.parquet", read_run, 3, lambda data: bytes([data[0] ^ 0xFF]) + data[1:])
    assert len(said) > 20 and all("a.parquet" in line for line in said)


def test_hits_in_arrow_whose_offsets_are_damaged(folder: Path) -> None:
    """Arrow believes offsets unless it is asked to look."""
    reader = READERS["records, datasets, data"]
    said = refusals(folder / reader.file, reader.read, 37, lambda data: b"\xff" * 4)
    assert any("save the data set again" in line for line in said)


@pytest.mark.parametrize(
    ("change", "key"),
    [
        *((change, "") for change in ("methods: x", "methods: {a: x}", "methods: {a: {set: x}}")),
        ("published: 7", ""),
        ("base:", "base"),
        ("methods: {a: {set: }}", "methods.a.set"),
        ("methods: {a: {search: }}", "methods.a.search"),
        ("measures:", "measures: expected text"),
        ("level:", "level: expected a number"),
        ("num_cpus:", "num_cpus: expected a whole number"),
    ],
)
def test_a_value_of_another_kind_or_none(folder: Path, tmp_path: Path, change: str, key: str) -> None:
    told = yaml.safe_load((folder / "grid.yaml").read_text()) | yaml.safe_load(change)
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(told))
    assert key in says(READERS["configuration, experiment"].read, tmp_path / "grid.yaml")
