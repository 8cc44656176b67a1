from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from pytrec_eval import RelevanceEvaluator

from rerank.collections import Qrels, open_collection
from rerank.commands.cli import main
from rerank.errors import UserError
from rerank.lists import Lists, build_lists
from rerank.retrieval import Scored, read_run, write_run
from rerank.retrieval.fuse import Pool
from rerank.retrieval.runs import Run
from tests.builders import random_run, write_collection
from tests.evaluation.scored import evaluate

LENGTHS = [20, 0, 7, 15, 1, 12]


def written_runs(folder: Path, names: str = "abc", lengths: list[int] = LENGTHS) -> tuple[str, dict[str, Path]]:
    collection = write_collection(folder / "c")
    paths = {name: folder / f"{name}.trec" for name in names}
    for seed, path in enumerate(paths.values()):
        write_run(path, random_run(collection, lengths[seed:] + lengths[:seed], seed))
    return collection, paths


def test_build_lists_makes_a_column_for_each_run(tmp_path: Path) -> None:
    collection, paths = written_runs(tmp_path)
    runs = {name: read_run(path) for name, path in paths.items()}
    lists = build_lists(open_collection(collection), Pool(runs), tmp_path / "lists", depth=10, add_relevant=True)
    assert lists.store.order == "rrf"
    assert lists.store.column_names == ["a", "b", "c", "rrf"]
    for name, run in runs.items():
        assert lists.run(name) == {query: list(run.get(query, []))[:10] for query in lists.query_ids}
    added = lists.with_added()
    assert np.isnan(added.matrix(["a", "b", "c", "rrf"])).all(axis=1).sum() == added.size - lists.size > 0
    assert added.run() == lists.run(), "what was added has no place in a ranking"
    assert documents(read_run(tmp_path / "lists/run.trec")) == documents(lists.run())


def documents(run: Run) -> dict[str, list[str]]:
    """The ids of each query that has candidates."""
    return {query: [scored.id for scored in ranked] for query, ranked in run.items() if ranked}


def trec_eval(path: Path, qrels: Qrels) -> dict[str, dict[str, float]]:
    """Measure a run file with trec_eval."""
    run: dict[str, dict[str, float]] = {}
    for line in path.read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        run.setdefault(query, {})[document] = float(score)
    return RelevanceEvaluator(qrels, {"ndcg_cut.10", "map", "recall.100"}).evaluate(run)


def check_columns(lists: Lists, files: dict[str, Path], folder: Path) -> None:
    """The run of each column, and its file, score as trec_eval scores the file that the column was read from."""
    assert lists.qrels is not None
    (folder / "written").mkdir(exist_ok=True)
    qrels = {query: {id: int(grade) for id, grade in judged.items()} for query, judged in lists.qrels.items()}
    for name, path in files.items():
        expected = trec_eval(path, qrels)
        table = evaluate(lists.run(name), qrels, "nDCG@10 AP R@100")
        write_run(folder / "written" / f"{name}.trec", lists.run(name), name)
        written = trec_eval(folder / "written" / f"{name}.trec", qrels)
        for query, values in expected.items():
            column = table.queries.index(query)
            assert table.values[:, column] == pytest.approx(
                [values["ndcg_cut_10"], values["map"], values["recall_100"]], abs=1e-6
            ), (name, query)
            assert written[query] == values


def test_run_of_a_column_ranks_like_trec_eval(tmp_path: Path) -> None:
    """Ties in a file are kept, whatever the other systems say of the tied documents."""
    collection, paths = written_runs(tmp_path, "ab", [20] * 12)
    ids = {f"q{q}": random.Random(q).sample([f"d{i}" for i in range(20)], 20) for q in range(12)}
    lines = [f"{q} Q0 {d} {rank} {0.5 - rank // 5} t\n" for q, some in ids.items() for rank, d in enumerate(some, 1)]
    paths["tied"] = tmp_path / "tied.trec"
    paths["tied"].write_text("".join(lines))
    for words in (["tied", "a", "b"], ["b", "tied"], ["tied"]):
        files = {name: paths[name] for name in words}
        folder = tmp_path / "-".join(words)
        made = ["retrieve", "--collection", collection, "--output", str(folder)]
        assert main([*made, "--run", *map(str, files.values())]) == 0
        lists = Lists.open(folder)
        check_columns(lists, files, tmp_path)
    assert documents(lists.run()) == ids, "the order of the lists is that of the file's ranks"
    assert main(["add", "--lists", str(folder), "--run", f"again={paths['tied']}"]) == 0
    lists = Lists.open(folder)
    assert lists.column("again").tolist() == lists.column("tied").tolist(), "add and retrieve keep the same scores"
    check_columns(lists, {"again": paths["tied"]}, tmp_path)


def test_retrieve_orders_lists_by_one_run(tmp_path: Path) -> None:
    collection, paths = written_runs(tmp_path)
    words = [*("--run", *map(str, paths.values()), "--order", "b"), "--output", str(tmp_path / "lists")]
    assert main(["retrieve", "--collection", collection, *words]) == 0
    lists, run = Lists.open(tmp_path / "lists"), read_run(paths["b"])
    assert lists.store.order == "b"
    assert lists.run() == {query: list(run.get(query, [])) for query in lists.query_ids}
    assert read_run(tmp_path / "lists" / "run.trec") == run


def test_retrieve_adds_bm25_to_runs(tmp_path: Path, home: Path) -> None:
    collection, paths = written_runs(tmp_path, "a")
    command = ["retrieve", "--collection", collection, "--depth", "5", "--output"]
    assert main([*command, str(tmp_path / "bm25")]) == 0
    assert main([*command, str(tmp_path / "both"), "--bm25", "--run", str(paths["a"])]) == 0
    alone, both = Lists.open(tmp_path / "bm25"), Lists.open(tmp_path / "both")
    assert both.store.column_names == ["a", "bm25", "rrf"]
    assert [len(ranked) for ranked in both.run("bm25").values()] == alone.lengths.tolist()
    assert both.run("bm25") == alone.run()


def test_build_lists_leaves_out_unknown_queries(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    collection = open_collection(write_collection(tmp_path / "c"))
    known = {f"q{i}": [Scored("d1", 1.0)] for i in range(2)}
    unknown = {f"other{i}": [Scored("d1", 1.0)] for i in range(18)}
    lists = build_lists(collection, unknown | known, tmp_path / "lists")
    assert "lacks 18 of the 20 queries of run bm25, such as 'other0'; left out" in caplog.text
    assert {query for query, ranked in lists.run().items() if ranked} == known.keys()
    assert read_run(tmp_path / "lists" / "run.trec") == known
    with pytest.raises(UserError, match="has only 2 of the 21 queries of run bm25, and not 'more'"):
        build_lists(collection, unknown | known | {"more": []}, tmp_path / "other")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--run", "x=A", "x=B"], "b.trec: there is a column 'x' already, of "),
        (["--run", "A", "B", "--order", "c"], "order: no column 'c'"),
        (["--run", "A", "--order", "rrf"], "order: no column 'rrf'"),
        (["--run", "rrf=A", "B"], "a run is called 'rrf'"),
        (["--run", "bm25=A", "--bm25"], "run: BM25's column is called bm25, too"),
        (["--run", "no such.trec"], "no such.trec: no such file"),
        (["--run", "x="], "x=: no such file"),
        (["--run", "../x=A"], "column '../x': a name has letters"),
    ],
)
def test_retrieve_refuses_bad_runs_before_any_work(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    collection, paths = written_runs(tmp_path, "ab")
    spelled = [word.replace("A", str(paths["a"])).replace("B", str(paths["b"])) for word in words]
    assert main(["retrieve", "--collection", collection, "--output", str(tmp_path / "lists"), *spelled]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "lists").exists()
