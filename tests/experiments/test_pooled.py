"""Experiments on several collections as one, from their kept cells alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lxml import html
from matplotlib.image import imread
from matplotlib.text import Text

from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.evaluation.crossed import crossed_difference, paired
from rerank.evaluation.pooling import random_effects
from rerank.evaluation.significance import correct, equivalence
from rerank.experiments.figures.forest import forest
from rerank.experiments.keep import KeptFile, write_kept
from rerank.experiments.pool import as_json, named_paths, pool_experiments, read_results
from rerank.experiments.pool_table import caption, collections_table, pooled_table

MEASURES = ["nDCG@10", "AP"]
METHODS = {"first stage": 0.0, "hinge": 0.03, "ListNet": 0.04, "SmoothI": 0.06}
SEEDS = [1, 2, 3]


def made_up(seed: int, queries: int, effect: float = 1.0, folds: list[str] | None = None) -> list[KeptFile]:
    """Kept cells of four rows: methods that help more or less, on every query, with each seed."""
    rng = np.random.default_rng(seed)
    hard = {fold: rng.uniform(0.1, 0.6, (len(MEASURES), queries)) for fold in folds or [None]}
    files = []
    for method, gain in METHODS.items():
        helps = rng.normal(effect * gain, 0.1, queries)
        for fold, base in hard.items():
            for number in SEEDS if method != "first stage" else SEEDS[:1]:
                place = f"cells/{method.replace(' ', '_')}/{fold or 'all'}/seed-{number}"
                noise = rng.normal(0, 0.06, (len(MEASURES), queries)) + rng.normal(0, 0.005)
                values = np.clip(base + helps + noise, 0, 1) if number else base
                content = {
                    "id": place,
                    "measures": MEASURES,
                    "empty": "0",
                    "queries": [f"{fold}-{i}" for i in range(queries)],
                    "missing": [],
                    "values": values.tolist(),
                    "without_relevant": np.zeros_like(values, dtype=bool).tolist(),
                }
                if method != "first stage":
                    validation = {"hinge": 0.5, "ListNet": 0.4, "SmoothI": 0.6}[method] + number / 100
                    files.append(
                        KeptFile(method, fold, number, f"{place}/point-1/measures.json", {"id": "1"}, validation)
                    )
                files.append(KeptFile(method, fold, number, f"{place}/point-1/test-1.json", content))
    return files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pool")
    write_kept(folder / "scifact.jsonl.xz", made_up(1, 300))
    write_kept(folder / "cranfield" / "cells.jsonl.xz", made_up(2, 75, 0.5, ["1", "2", "3"]))
    write_kept(folder / "nfcorpus.jsonl.xz", made_up(3, 323, 0.2))
    return folder


def paths(folder: Path) -> list[str]:
    return [str(folder / "scifact.jsonl.xz"), str(folder / "cranfield"), f"NF={folder / 'nfcorpus.jsonl.xz'}"]


def test_a_pair_is_pooled_from_its_differences(folder: Path) -> None:
    """Every step again: values from the files, crossed differences, random effects, Holm over pairs and measures."""
    pool = pool_experiments(paths(folder), baseline="hinge")
    assert len(pool.pairs) == 3 * 2 and pool.measures == MEASURES
    values = {"scifact": made_up(1, 300), "cranfield": made_up(2, 75, 0.5, ["1", "2", "3"]), "NF": made_up(3, 323, 0.2)}
    for one in pool.pairs:
        assert one.against == "hinge" and one.total is not None
        means, errors = [], []
        for name, files in values.items():
            sides = []
            for method in (one.row, "hinge"):
                kept = [file for file in files if file.method == method and file.measured]
                seeds = sorted({file.seed for file in kept})
                rows = [
                    [v for f in kept if f.seed == seed for v in f.content["values"][MEASURES.index(one.measure)]]
                    for seed in seeds
                ]
                sides.append(np.array(rows))
            folds = np.repeat([1, 2, 3], 75) if name == "cranfield" else None
            found = crossed_difference(*paired(*sides, folds))
            part = one.parts[name].found
            assert part is not None
            assert (part.mean, part.interval) == (pytest.approx(found.mean), pytest.approx(found.interval))
            means.append(found.mean)
            errors.append(found.error)
        assert one.total == random_effects(means, errors)
        assert one.other == random_effects(means, errors, "Paule-Mandel")
    p = [one.total.p for one in pool.pairs if one.total]
    assert [one.corrected for one in pool.pairs] == pytest.approx(correct(p, "holm").tolist())


def test_the_best_of_a_group_is_chosen_on_validation(folder: Path) -> None:
    """ListNet is better than hinge on test, but validation prefers hinge."""
    groups = {"direct": ["SmoothI"], "others": ["hinge", "ListNet"]}
    pool = pool_experiments(paths(folder), "AP", baseline="hinge", groups=groups)
    assert pool.chosen["NF"] == {"direct": "SmoothI", "others": "hinge"}
    first, second = pool.pairs[0], next(one for one in pool.pairs if one.row == "SmoothI")
    assert (first.row, first.against) == ("best of direct", "best of others")
    assert first.total == second.total and len(pool.pairs) == 4
    assert {part.methods for part in first.parts.values()} == {("SmoothI", "hinge")}


def test_a_method_that_lacks_a_seed_is_left_out(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = [file for file in made_up(1, 50) if (file.method, file.seed) != ("ListNet", 3)]
    again = [replace(file, seed=2, path=file.path.replace("seed-1", "seed-2")) for file in files[:1]]
    assert again[0].method == "first stage"
    files += again
    write_kept(folder / "partial.jsonl.xz", files)
    found = read_results("partial", folder / "partial.jsonl.xz")
    assert {*found.values} == {*METHODS} - {"ListNet"}
    assert "ListNet has 2 of 3 cells" in caplog.text
    assert found.values["hinge"]["AP"].shape == (3, 50) and found.values["first stage"]["AP"].shape == (1, 50)


def test_rows_that_are_equal_everywhere_have_nothing_to_pool(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = made_up(1, 50)
    twins = [
        replace(file, method="twin", path=file.path.replace("/hinge/", "/twin/"))
        for file in files
        if file.method == "hinge"
    ]
    write_kept(folder / "twins.jsonl.xz", [*files, *twins])
    pool = pool_experiments([str(folder / "twins.jsonl.xz")], baseline="hinge")
    assert "twins: twin and hinge differ by 0 in AP without an error to weigh it by" in caplog.text
    header, rows = pooled_table(pool)
    assert {len(row) for row in rows} == {len(header)}
    shown = {(row[0].text, row[2].text): [cell.text for cell in row[4:]] for row in rows}
    assert shown["twin", "AP"] == ["-"] * 6 and "-" not in shown["SmoothI", "AP"][:2]


def test_one_experiment_pooled_says_what_it_says_itself(folder: Path) -> None:
    """Few seeds have few degrees of freedom, alone as in company."""
    pool = pool_experiments([str(folder / "nfcorpus.jsonl.xz")], "AP", baseline="hinge", correction="none")
    values = read_results("NF", folder / "nfcorpus.jsonl.xz").values
    for one in pool.pairs:
        found = crossed_difference(*paired(values[one.row]["AP"], values["hinge"]["AP"]))
        assert one.total is not None
        assert (one.total.mean, one.total.interval) == (found.mean, found.interval)
        assert one.total.p == one.corrected == found.p
    assert "One collection: its own interval and p." in caption(pool)


def one_seed(files: list[KeptFile]) -> list[KeptFile]:
    return [file for file in files if file.seed == 1]


def test_one_seed_borrows_what_trainings_vary_by(folder: Path) -> None:
    """Without folds nothing in it tells; else its weight would be that of an error without seeds."""
    write_kept(folder / "single.jsonl.xz", one_seed(made_up(4, 200)))
    pool = pool_experiments([*paths(folder)[::2], str(folder / "single.jsonl.xz")], "AP", baseline="hinge")
    (one,) = (one for one in pool.pairs if one.row == "SmoothI")
    parts = {name: part.found for name, part in one.parts.items() if part.found is not None}
    assert one.lacking == ("single",)
    assert one.borrowed**2 == pytest.approx((parts["scifact"].training + parts["NF"].training) / 2)
    errors = [part.error for part in parts.values()]
    errors[-1] = float(np.hypot(errors[-1], one.borrowed))
    assert one.total == random_effects([part.mean for part in parts.values()], errors)
    (said,) = (line for line in caption(pool) if line.startswith("One seed: single; "))
    assert f"{one.borrowed:.3f}" in said
    assert json.loads(as_json(pool))["pairs"][0]["one_seed"] == ["single"]


def test_one_seed_with_folds_tells_it_by_them(folder: Path) -> None:
    write_kept(folder / "folded.jsonl.xz", one_seed(made_up(5, 60, folds=["1", "2", "3"])))
    pool = pool_experiments([*paths(folder), str(folder / "folded.jsonl.xz")], "AP", baseline="hinge")
    for one in pool.pairs:
        found = one.parts["folded"].found
        assert found is not None and (found.seeds, found.folds, found.freedom) == (1, 3, 2)
        assert not one.lacking and np.isnan(one.borrowed)


def test_one_seed_everywhere_is_said(folder: Path) -> None:
    names = []
    for number in (6, 7):
        names.append(str(folder / f"one-{number}.jsonl.xz"))
        write_kept(names[-1], one_seed(made_up(number, 50 + number)))
    pool = pool_experiments(names, "AP", baseline="hinge")
    assert any(
        "One seed: one-6, one-7; a difference of these trained models, not of the methods." in s for s in caption(pool)
    )


def test_equivalent_within_a_margin_or_undecided(folder: Path) -> None:
    wide, narrow = (pool_experiments(paths(folder), "AP", baseline="hinge", margin=margin) for margin in (0.5, 1e-6))
    for pool, one in [(wide, one) for one in wide.pairs] + [(narrow, one) for one in narrow.pairs]:
        assert one.total is not None and pool.margin is not None
    p = [equivalence(one.total.mean, one.total.error, one.total.freedom, 0.5) for one in wide.pairs if one.total]
    assert [one.equivalent for one in wide.pairs] == pytest.approx(correct(p, "holm").tolist())
    header, rows = pooled_table(wide)
    assert header[-1] == "verdict"
    assert all(row[-1].text.startswith("equivalent within 0.5 (p ") for row in rows)
    for one, row in zip(narrow.pairs, pooled_table(narrow)[1], strict=True):
        assert one.total is not None
        different = "better" if one.total.mean > 0 else "worse"
        assert row[-1].text == (different if one.corrected < 0.05 else "undecided")
    said = json.loads(as_json(wide))
    assert said["margin"] == 0.5 and said["pairs"][0]["verdict"].startswith("equivalent")


def test_collections_are_corrected_for_each_other(folder: Path) -> None:
    pool = pool_experiments(paths(folder), "AP", baseline="hinge")
    for one in pool.pairs:
        p = [part.p for part in one.parts.values()]
        assert [part.corrected for part in one.parts.values()] == pytest.approx(correct(p, "holm").tolist())


def test_queries_without_relevant_documents_are_told(folder: Path) -> None:
    files = made_up(8, 40)
    for file in files:
        if file.measured:
            file.content["without_relevant"] = [[i < 5 for i in range(40)] for _ in MEASURES]
    write_kept(folder / "lacking.jsonl.xz", files)
    said = caption(pool_experiments([*paths(folder), str(folder / "lacking.jsonl.xz")], "AP", baseline="hinge"))
    assert "Queries without relevant documents: lacking 5 of 40 with differences of 0." in said


def test_the_forest_of_a_measure_and_the_table_of_collections_say_what_was_pooled(folder: Path) -> None:
    pool = pool_experiments(paths(folder), baseline="hinge")
    for measure in MEASURES:
        drawn = {text.get_text().partition(" [")[0] for text in forest(pool, measure).findobj(Text)}
        for one in pool.pairs:
            assert one.total is not None
            assert (f"{one.total.mean:+.3f}".replace("-", "−") in drawn) == (one.measure == measure)
    header, rows = collections_table(pool)
    found = [dict(zip(header, [cell.text for cell in row], strict=True)) for row in rows]
    parts = [(one, name, part.found) for one in pool.pairs for name, part in one.parts.items()]
    for shown, (one, name, part) in zip(found, parts, strict=True):
        assert part is not None
        assert (shown["row"], shown["measure"], shown["collection"]) == (one.row, one.measure, name)
        assert shown["queries"] == {"scifact": "300", "cranfield": "225", "NF": "323"}[name]
        assert float(shown["difference"]) == pytest.approx(part.mean, abs=1e-4)


def test_the_command_writes_a_page_that_starts_with_the_forest(
    folder: Path, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "pool.yaml"
    config.write_text("baseline: hinge\nmeasures: nDCG@10 AP\ngroups: {direct: [SmoothI], others: [hinge, ListNet]}\n")
    words = ["pool", f"--config={config}", "--experiments", *paths(folder), f"--output={tmp_path / 'out'}"]
    assert main([*words, f"--html={tmp_path / 'page.html'}"]) == 0
    said = json.loads((tmp_path / "out" / "pool.json").read_text())
    assert len(said["pairs"]) == 8 and set(said["pairs"][0]["collections"]) == {"scifact", "cranfield", "NF"}
    assert "best of direct" in capsys.readouterr().out
    tree = html.fromstring((tmp_path / "page.html").read_text())
    assert tree.find(".//main")[0].find("img") is not None or tree.xpath("//main/section[1]//img")
    assert "img-src data:" in tree.xpath("//meta[@http-equiv]/@content")[0]
    assert imread(tmp_path / "out" / "forest-nDCG@10.png").shape[1] > 800
    before = (tmp_path / "out" / "forest-AP.svg").read_bytes()
    monkeypatch.chdir(folder)  # without a page there is nothing to write here, where the experiments are
    assert main(words) == 0
    assert (tmp_path / "out" / "forest-AP.svg").read_bytes() == before


def test_what_cannot_be_pooled_is_said(folder: Path) -> None:
    with pytest.raises(UserError, match=r"no experiment has a method 'hinges'.*hinge"):
        pool_experiments(paths(folder), baseline="hinges")
    with pytest.raises(UserError, match=r"P@5 is not in every experiment; in all are nDCG@10, AP"):
        pool_experiments(paths(folder), "P@5")
    with pytest.raises(UserError, match="no such file"):
        named_paths(["nowhere"])
    with pytest.raises(UserError, match="name at least one folder"):
        named_paths([])
    for twice in ([str(folder / "scifact.jsonl.xz")] * 2, [f"{name}={folder / 'scifact.jsonl.xz'}" for name in "ab"]):
        with pytest.raises(UserError, match="given twice"):
            named_paths(twice)
    with pytest.raises(UserError, match="margin 0: must be a number above 0"):
        pool_experiments(paths(folder), margin=0.0)
    with pytest.raises(UserError, match="unknown correction 'holms'"):
        pool_experiments(paths(folder), correction="holms")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="hinge alone has nothing to be compared with"):
        pool_experiments(paths(folder), baseline="hinge", methods=["hinge"])
    write_kept(folder / "query.jsonl.xz", made_up(9, 1))
    alone = pool_experiments([str(folder / "query.jsonl.xz")], "AP", baseline="hinge")
    assert all(one.total is None for one in alone.pairs), "one query is no sample"


def test_the_same_queries_are_not_two_collections(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_kept(folder / "again.jsonl.xz", made_up(11, 300))
    pool_experiments([str(folder / "scifact.jsonl.xz"), str(folder / "again.jsonl.xz")], "AP", baseline="hinge")
    assert "scifact and again have the same queries" in caplog.text
    with pytest.raises(UserError, match="alone has nothing"):
        pool_experiments(paths(folder), groups={"direct": ["SmoothI"]})
