"""Every reader of files, the small valid files that it is tried on, and what it says of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml
from datasets import Dataset

from rerank.collections import open_collection, read_qrels, read_queries
from rerank.experiments.conduct import checked, configured
from rerank.features.letor import LetorData
from rerank.features.parse import store_features
from rerank.lists import Lists
from rerank.lists.add import read_column
from rerank.lists.folds import read_folds
from rerank.models.load import load_model
from rerank.models.scorer import Scorer
from rerank.retrieval.runs import read_run
from rerank.storage.files import read_json
from rerank.training.configuration import check
from tests.builders import PACK, make_lists_with_added, train, write_collection, write_features, write_packed

HITS = [
    {"query_id": "q1", "query": "wing flow", "doc_id": "d1", "text": "a wing", "score": 2.5, "bm25": 7, "grade": 1},
    {"query_id": "q1", "query": "wing flow", "doc_id": "d2", "text": "", "score": 1.5, "bm25": None, "grade": 0},
    {"query_id": "q2", "query": "heat", "doc_id": "d1", "text": "a wing", "score": 3.0, "bm25": 7, "grade": None},
]
PAIRS = [("q1", "d1", 9.5), ("q1", "d2", 7.25), ("q1", "d-ü", -1.0), ("q2", "d1", 3e-5), ("q2", "d3", 0.0)]
"""Query, document and score of small runs."""
FOUND = [
    {"_id": "d1", "_score": 2.5, "_source": {"text": "a wing", "year": 1957}, "matched_queries": {"a": 1.0}},
    {"_id": "d2", "_score": 1.5, "_source": {"text": "heat", "year": 1958}},
]
ANSWER = {"timed_out": False, "_shards": {"total": 1, "failed": 0}, "hits": {"total": {"value": 2}, "hits": FOUND}}
TOPICS = "<top>\n<num> Number: 301\n<title> wing &amp; flow\n<desc> Description:\nwings\n</top>\n"


class Reader(NamedTuple):
    """What reads a file.

    Attributes:
        file: the file, below the folder that `write_files` fills; others that it needs are beside it.
        read: reads it, and returns all that it says, as something that compares.
    """

    file: str
    read: Callable[[Path], Any]


def run(path: Path) -> Any:
    found = read_run(path)
    return {query: found[query] for query in found}


def scores(path: Path) -> Any:
    lists = Lists.from_dataset([{"query_id": query, "doc_id": document} for query, document, _ in PAIRS])
    values, names = read_column(lists, "x", path)
    return names, repr(values.tolist())


def records(path: Path) -> Any:
    return (
        Lists.from_dataset(path, queries={"1": "wing", "2": "heat"} if "search" in path.name else None)
        .to_dataframe()
        .to_csv()
    )


def collection(name: str) -> Callable[[Path], Any]:
    """Documents, queries and judgments of a collection, whichever of its files is damaged."""

    def read(path: Path) -> Any:
        folder = next(parent for parent in path.parents if parent.name in name)
        opened = open_collection(name.replace("DIR", str(folder.parent)))
        return list(opened.documents()), list(opened.queries()), opened.qrels()

    return read


def features(path: Path) -> Any:
    folder = path.parent / "parsed"
    shutil.rmtree(folder, ignore_errors=True)
    made = store_features(path.with_name(path.name.removesuffix(".query")), folder, "key")
    frame = made.to_dataframe()
    shutil.rmtree(folder)
    return repr(frame.to_csv())


def lists(path: Path) -> Any:
    folder = path.parent.parent if path.parent.name == "columns" else path.parent
    opened = Lists.open(folder)
    return opened.to_dataframe().to_csv(), opened.qrels


def grid(path: Path) -> Any:
    return [str(group) for group in checked(configured(path)).groups]


def model(path: Path) -> Any:
    loaded = load_model(path.parent)
    assert isinstance(loaded, Scorer)
    return {name: value.tolist() for name, value in loaded.state_dict().items()}


LISTS = ("qrels.trec",)
READERS: Mapping[str, Reader] = {
    "run, TREC": Reader("a.trec", run),
    **{f"run, TREC, {suffix[1:]}": Reader(f"a.trec{suffix}", run) for suffix in PACK},
    "run, MS MARCO": Reader("marco.tsv", run),
    "run, JSONL": Reader("a.jsonl", run),
    "run, Parquet": Reader("a.parquet", run),
    "run, rank_llm": Reader("lists.json", run),
    "run, rank_llm, gz": Reader("lists.json.gz", run),
    "scores, TREC": Reader("a.trec", scores),
    "scores, CSV": Reader("scores.csv", scores),
    "scores, TSV, gz": Reader("scores.tsv.gz", scores),
    "scores, JSONL": Reader("scores.jsonl", scores),
    "scores, Parquet": Reader("scores.parquet", scores),
    "judgments, TREC": Reader("qrels.trec", lambda path: read_qrels(str(path))),
    "judgments, gz": Reader("qrels.trec.gz", lambda path: read_qrels(str(path))),
    "judgments, BEIR": Reader("qrels.tsv", lambda path: read_qrels(str(path))),
    "queries, TSV": Reader("queries.tsv", lambda path: list(read_queries(str(path)))),
    "queries, JSONL, bz2": Reader("queries.jsonl.bz2", lambda path: list(read_queries(str(path)))),
    "queries, TREC's topics": Reader("topics.txt", lambda path: list(read_queries(str(path)))),
    "LETOR": Reader("letor/train.txt", features),
    "LETOR, gz": Reader("letor.gz/train.txt.gz", features),
    "svmlight": Reader("svmlight/rank.train", features),
    "svmlight's sizes": Reader("svmlight/rank.train.query", features),
    "LETOR's fold": Reader("Fold/vali.txt", lambda path: repr(LetorData(str(path.parent)).splits(1))),
    "records, JSONL": Reader("hits.jsonl", records),
    "records, JSONL, gz": Reader("hits.jsonl.gz", records),
    "records, lists a line": Reader("nested.jsonl", records),
    "records, Parquet": Reader("hits.parquet", records),
    "records, _search": Reader("search.json", records),
    "records, _msearch": Reader("msearch.json", records),
    "records, rank_llm": Reader("lists.json", records),
    "records, datasets, data": Reader("saved/data-00000-of-00001.arrow", lambda path: records(path.parent)),
    "records, datasets, state": Reader("saved/state.json", lambda path: records(path.parent)),
    "records, datasets, info": Reader("saved/dataset_info.json", lambda path: records(path.parent)),
    "beir, documents": Reader("beir/corpus.jsonl", collection("beir:DIR/beir/test")),
    "beir, queries": Reader("beir/queries.jsonl", collection("beir:DIR/beir/test")),
    "beir, judgments": Reader("beir/qrels/test.tsv", collection("beir:DIR/beir/test")),
    "files, documents": Reader("files/docs.tsv", collection("files:DIR/files")),
    "files, queries": Reader("files/queries.tsv", collection("files:DIR/files")),
    **{f"lists, {file}": Reader(f"lists/{file}", lists) for file in LISTS},
    "folds of queries": Reader("folds.json", lambda path: read_folds(str(path))),
    "configuration, training": Reader("train.yaml", lambda path: check(["--config", str(path)])),
    "configuration, experiment": Reader("grid.yaml", grid),
    "model, contract": Reader("run/best/rerank.json", model),
    "cell, measures": Reader("run/measures.json", read_json),
}
"""By what they read; the file that is damaged, and the others that it needs, are those of `write_files`."""


def write_files(folder: Path) -> None:
    """All valid files."""
    _write_runs(folder)
    _write_hits(folder)
    _write_collections(folder)
    _write_features(folder)
    _write_configurations(folder)
    _write_training(folder)
    (folder / "folds.json").write_text(json.dumps([["1", "2"], ["3"]]))
    made = make_lists_with_added(folder / "making")
    made.store.add_column("teacher", made.store.column("bm25") * 2)
    (folder / "making" / "lists").rename(folder / "lists")


def _write_runs(folder: Path) -> None:
    trec = "".join(f"{q} Q0 {d} {rank} {score} tag\n" for rank, (q, d, score) in enumerate(PAIRS, 1))
    lines = "".join(json.dumps({"query_id": q, "doc_id": d, "score": score}) + "\n" for q, d, score in PAIRS)
    table = pa.table(dict(zip(("query_id", "doc_id", "score"), map(list, zip(*PAIRS, strict=True)), strict=True)))
    (folder / "a.trec").write_text(trec)
    for suffix in PACK:
        write_packed(folder / f"a.trec{suffix}", trec)
    write_packed(folder / "a.jsonl.zst", lines)
    (folder / "marco.tsv").write_text("".join(f"{q}\t{d}\t{rank}\n" for rank, (q, d, _) in enumerate(PAIRS, 1)))
    (folder / "a.jsonl").write_text(lines)
    pq.write_table(table, folder / "a.parquet")
    pq.write_table(table.append_column("clicks", pa.array([1, None, 3, 4, 5])), folder / "scores.parquet")
    (folder / "scores.csv").write_text("qid,docno,score\n" + "".join(f'{q},"{d}",{s}\n' for q, d, s in PAIRS))
    tabs = "qid\tdocno\ta\tb\n" + "".join(f"{q}\t{d}\t{s}\t\n" for q, d, s in PAIRS)
    write_packed(folder / "scores.tsv.gz", tabs)
    (folder / "scores.jsonl").write_text(lines)
    entries = [{"qid": 7, "docid": "d1", "content": "a wing", "rank": 1, "score": 9.5}]
    entries.append({"qid": 7, "docid": "d2", "content": "heat", "rank": 2, "score": 9.25})
    ranked = json.dumps([{"query": "wing", "hits": entries}, {"query": "heat", "hits": [entries[0] | {"qid": 8}]}])
    (folder / "lists.json").write_text(ranked)
    write_packed(folder / "lists.json.gz", ranked)
    judged = "".join(f"{q} 0 {d} {grade}\n" for grade, (q, d, _) in enumerate(PAIRS))
    (folder / "qrels.trec").write_text(judged)
    write_packed(folder / "qrels.trec.gz", judged)
    beir = "query-id\tcorpus-id\tscore\n" + "".join(f"{q}\t{d}\t1\n" for q, d, _ in PAIRS)
    (folder / "qrels.tsv").write_text(beir)
    (folder / "queries.tsv").write_text("1\twing flow\n2\theat of ü\n")
    lines = json.dumps({"_id": "1", "text": "wing"}) + "\n" + json.dumps({"_id": 2, "text": "heat"}) + "\n"
    write_packed(folder / "queries.jsonl.bz2", lines)
    (folder / "topics.txt").write_text(TOPICS + TOPICS.replace("301", "302"))


def _write_hits(folder: Path) -> None:
    lines = "".join(json.dumps(hit) + "\n" for hit in HITS)
    (folder / "hits.jsonl").write_text(lines)
    write_packed(folder / "hits.jsonl.gz", lines)
    pq.write_table(pa.Table.from_pylist(HITS), folder / "hits.parquet")
    nested = {"query": {"qid": "q2", "text": "heat"}, "candidates": HITS[:2]}
    (folder / "nested.jsonl").write_text(json.dumps(nested) + "\n")
    (folder / "search.json").write_text(json.dumps(ANSWER) + "\n" + json.dumps(ANSWER) + "\n")
    (folder / "msearch.json").write_text(json.dumps({"took": 1, "responses": [ANSWER, ANSWER]}, indent=1))
    Dataset.from_list(HITS).save_to_disk(str(folder / "saved"))


def _write_collections(folder: Path) -> None:
    write_collection(folder / "beir", queries=3, documents=8)
    for name, text in {
        "files/docs.tsv": "d1\ta wing\nd2\theat of ü\n",
        "files/queries.tsv": "1\twing\n2\theat\n",
        "files/qrels.txt": "1 0 d1 1\n",
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def _write_features(folder: Path) -> None:
    write_features(folder / "letor" / "train.txt", [3, 1, 2])
    (folder / "letor.gz").mkdir()
    write_packed(folder / "letor.gz" / "train.txt.gz", (folder / "letor" / "train.txt").read_text())
    (folder / "svmlight").mkdir()
    (folder / "svmlight" / "rank.train").write_text("2 1:0.5 3:-1e-3\n0 2:1\n1 1:7 2:0.25 4:1e5\n")
    (folder / "svmlight" / "rank.train.query").write_text("2\n1\n")
    for seed, name in enumerate(("train", "vali", "test"), 1):
        write_features(folder / "Fold" / f"{name}.txt", [8, 6, 7, 5], seed=seed)


def _write_configurations(folder: Path) -> None:
    relaxation = {"class_path": "SmoothI", "init_args": {"alpha": 2.0}}
    loss = {"class_path": "DirectMetric", "init_args": {"measure": "nDCG@10", "relaxation": relaxation}}
    base: dict[str, Any] = {
        "data": {"class_path": "LetorData", "init_args": {"path": "nowhere", "fold": 1}},
        "model": {"class_path": "MLP", "init_args": {"preset": "linear"}},
        "loss": loss,
        "optimization": {"head_lr": 0.001, "warmup": 0.1},
        "epochs": 2,
        "seed": 7,
        "measures": "nDCG@10 AP",
        "tracker": [],
    }
    (folder / "train.yaml").write_text(yaml.safe_dump(base, sort_keys=False))
    methods = {
        "SmoothI": {"set": {"loss": loss}, "search": {"loss.relaxation.alpha": [0.1, 1.0]}},
        "ListNet": {"set": {"loss": "ListNet"}, "search": {"optimization.head_lr": [1e-4, 1e-2]}},
    }
    cells = {key: value for key, value in base.items() if key != "seed"}
    told = {"output": "nowhere", "base": cells, "methods": methods, "folds": [1, 2], "seeds": [1, 2]}
    (folder / "grid.yaml").write_text(yaml.safe_dump(told | {"baseline": "ListNet"}, sort_keys=False))


def _write_training(folder: Path) -> None:
    torch.manual_seed(0)
    words = [f"--output={folder / 'run'}", "--model=MLP", "--model.hidden=[3]", "--loss=ListNet", "--data=LetorData"]
    train([*words, f"--data.path={folder / 'Fold'}", "--epochs=2", "--tracker=[]", "--measures=AP"])
