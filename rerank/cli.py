"""The ``rerank`` command: a function per command, its options read off its signature."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rerank import __version__
from rerank.console import call, exit_code
from rerank.errors import UserError, nearest
from rerank.ranges import check_ranges

if TYPE_CHECKING:
    from rerank.lists import Lists

log = logging.getLogger("rerank")


def demo(output: str = "demo", ask: str | None = None, full: bool = False) -> None:
    """Search the Python standard library: retrieve, train, rerank, compare with BM25, answer a question.

    Args:
        output: folder for lists, model, runs, log and plot; what is there already is not done again.
        ask: a question to answer, such as "how do I flatten a list of lists".
        full: test all questions, a third at a time, with three trainings in place of one.
    """
    from rerank.demo import run_demo

    run_demo(Path(output), ask, full)


def retrieve(
    collection: str,
    output: str,
    depth: int = 150,
    run: list[str] | None = None,
    order: str | None = None,
    bm25: bool = False,
    index: str | None = None,
    queries: str | None = None,
    query_fields: list[str] | None = None,
    qrels: str | None = None,
    fields: list[str] | None = None,
    columns: list[str] | None = None,
    k1: float = 0.9,
    b: float = 0.4,
    rm3: bool = False,
    language: str = "en",
    tune_on: str | None = None,
    tune_measure: str = "nDCG@10",
    add_relevant: bool = False,
    threads: int | None = None,
    overwrite: bool = False,
) -> None:
    """Store candidates as ranked lists: those that BM25 finds, or those of other systems' runs, or all of them.

    Memory does not grow with BM25's candidates; a search that was stopped resumes when the command is given again. Of
    several runs the lists have the union, and a column for each.

    Args:
        collection: an ir_datasets id, beir:DIR/SPLIT, files:DIR, trec:DIR, smart:DIR, lucene:NAME or demo; or lists
            that are there already: hits:FILE, datasets:DIR/SPLIT, rank_llm:FILE.
        output: lists folder to make.
        depth: candidates per query.
        run: run files to take the candidates from, in place of BM25: FILE or NAME=FILE (TREC, MS MARCO, JSONL,
            Parquet); each becomes a column of that name. They are read into memory.
        order: the column that orders the lists; null takes rrf, the fused reciprocal ranks, where there are several
            runs, and score, or the first number, of hits.
        bm25: search BM25, too, where runs are given.
        index: a Lucene index (folder, or name of a prebuilt one) to search, in place of one built here.
        queries: queries (JSONL, TSV, TREC topics or a collection); null takes the collection's own.
        query_fields: what makes a query's text: title, desc, narr of TREC topics, keys of JSONL; null takes the title.
        qrels: judgments (TREC file, BEIR TSV or collection); null takes the collection's own.
        fields: text fields of a document; null takes all.
        columns: what rows of hits call their fields, NAME=FIELD: query=question text=passage.
        k1: BM25's term frequency saturation.
        b: BM25's length normalisation.
        rm3: expand queries by RM3.
        language: whose analyser takes texts and queries apart: de, fr, ar, zh and others that Lucene has.
        tune_on: a collection whose judged queries decide k1 and b (training queries, never those of the test).
        tune_measure: what the tuning maximises.
        add_relevant: let relevant documents that the first stage missed join the lists (seen by training only).
        threads: threads for indexing and searching; null takes all cores.
        overwrite: replace an existing folder.
    """
    from rerank.collections import open_collection, read_qrels, read_queries
    from rerank.collections.hits import HitsCollection
    from rerank.evaluation.measure_names import parse_measures
    from rerank.lists.build import ORDER, build_lists
    from rerank.lists.columns import named_files
    from rerank.lists.hits import lists_of_hits
    from rerank.lists.store import is_lists_folder
    from rerank.locks import held
    from rerank.retrieval.bm25 import BM25, build_index, find_index
    from rerank.retrieval.fuse import Pool
    from rerank.retrieval.known import ScoreKnown, score_known
    from rerank.retrieval.runs import Run, read_run
    from rerank.retrieval.search import search_stored
    from rerank.retrieval.tune import tune

    if Path(output).exists() and not overwrite:
        raise UserError(f"output: {output} exists already; name another folder, or say --overwrite")
    if Path(output).exists() and not is_lists_folder(Path(output)):
        raise UserError(f"output: {output} holds no ranked lists; name another folder")
    check_ranges(depth=depth, threads=threads, k1=k1, b=b)
    parse_measures(tune_measure)
    given = named_files(run or [])
    if ORDER in given and bm25:
        raise UserError(f"bm25: {given[ORDER]} is a column bm25 already; write --run NAME={given[ORDER]}")
    searched_with = _changed(retrieve, locals(), SEARCHING)
    if given and not bm25 and searched_with:
        raise UserError(f"{searched_with[0]}: runs are given; to search, say --bm25")
    if tune_on and (fixed := [key for key in searched_with if key in ("k1", "b")]):
        raise UserError(f"{fixed[0]}: --tune-on decides k1 and b; say one or the other")
    if "tune_measure" in searched_with and not tune_on:
        raise UserError("tune_measure: is what --tune-on COLLECTION maximises; name one")
    with held(output, "rerank retrieve"), ExitStack() as opened:
        source = open_collection(collection, fields, columns)
        if isinstance(source, HitsCollection):
            if queries:
                source.ask(list(read_queries(queries, query_fields)))
            elif query_fields:
                raise UserError("query_fields: hits have one query text; --columns query=FIELD says which it is")
            if not given and not bm25:
                if searched_with:
                    raise UserError(f"{searched_with[0]}: {collection} is ranked already; to search it, say --bm25")
                if add_relevant:
                    raise UserError(f"add_relevant: {collection} has no documents beyond the hits")
                judgments = read_qrels(qrels) if qrels else None
                order = order or source.order
                made = lists_of_hits(source, output, depth=depth, qrels=judgments, order=order, replace=overwrite)
                _say_made(output, made)
                return
        asked = list(read_queries(queries or source, query_fields))
        judgments = read_qrels(qrels) if qrels else source.qrels()
        searched = Path(output).parent / f".{Path(output).name}.search"
        searching = bm25 or not given
        Pool(
            {name: {} for name in [ORDER] * searching + list(given)}, order
        )  # a wrong order is refused before the work
        runs: dict[str, Run] = {name: read_run(path) for name, path in given.items()}
        retriever: dict[str, Any] = {"run": given} if given else {}
        score_added: ScoreKnown | None = None
        if searching:
            where = find_index(index) if index else build_index(source, None, threads, language)
            model = BM25(k1=k1, b=b, rm3=rm3, language=language)
            if tune_on is not None:
                training = open_collection(tune_on, fields)
                grades = training.qrels()
                if grades is None:
                    raise UserError(f"tune_on: {tune_on} has no judgments")
                tuned = tune(where, training.queries(), grades, tune_measure, depth, rm3=rm3, language=language)
                model = tuned.best
                log.info("tuned on %s: k1 %g, b %g, %s %.4f", tune_on, model.k1, model.b, tune_measure, tuned.value)
            runs = {ORDER: search_stored(model, where, asked, searched, depth, threads), **runs}
            retriever |= {"bm25": vars(model), "tuned_on": tune_on}
            if add_relevant:
                score_added = opened.enter_context(score_known(model, where, complete=index is None))
        lists = build_lists(
            source,
            Pool(runs, order),
            output,
            queries=asked,
            depth=depth,
            qrels=judgments,
            retriever=retriever,
            add_relevant=add_relevant,
            score_added=score_added,
            replace=overwrite,
        )
        shutil.rmtree(searched, ignore_errors=True)
        _say_made(output, lists)


SEARCHING = ("tune_on", "index", "rm3", "k1", "b", "language", "tune_measure", "threads")
"""Options of ``rerank retrieve`` that only BM25's search takes."""


def _changed(command: Callable[..., None], given: Mapping[str, Any], options: Sequence[str]) -> list[str]:
    """Those of some options that are not at their defaults."""
    defaults = signature(command).parameters
    return [name for name in options if given[name] != defaults[name].default]


def _say_made(output: str, made: Lists) -> None:
    log.info(
        "%s: %d queries, %d candidates, %d distinct documents",
        output,
        len(made),
        made.size,
        made.store.documents.num_rows,
    )


def lists(folder: str, measures: str | None = None, html: str | None = None, upgrade: bool = False) -> None:
    """Show what a lists folder is worth: depth, what each system finds and adds, what the best reranking could reach.

    Args:
        folder: lists folder made by ``rerank retrieve``.
        measures: measures as ir-measures writes them, the main one first; null takes nDCG@10, AP and recall.
        html: file for the same as a page, with the systems' overlap, recall by depth, and rankings side by side.
        upgrade: convert a folder of version 1 first, in its place.
    """
    from rerank.lists.upgrade import upgrade as convert
    from rerank.lists.view import Lists

    if upgrade:
        convert(folder)
    opened = Lists.open(folder)
    from rerank.evaluation.overview import overview, text

    if html:
        from rerank.files import check_apart
        from rerank.report.lists import shows_runs, write_overview
        from rerank.report.page import check_suffix

        check_suffix(html)
        check_apart(html, lists=folder)
        about = overview(opened, measures, keep_runs=shows_runs(opened))
        write_overview(about, html)
    else:
        about = overview(opened, measures)
    print(text(about, bold=sys.stdout.isatty()), end="")


def add(
    lists: str,
    run: list[str] | None = None,
    model: str | None = None,
    name: str | None = None,
    out_of_fold: str | None = None,
    method: str | None = None,
    seed: int | None = None,
    drop: list[str] | None = None,
    in_sample: bool = False,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    token_budget: int | None = None,
) -> None:
    """Add columns to a lists folder: scores from files, a trained model's, an experiment's out of fold; or remove some.

    The same command finishes what was killed.

    Args:
        lists: lists folder.
        run: files of scores (TREC, CSV, JSONL or Parquet), as NAME=FILE or FILE.
        model: folder of a trained model, such as runs/x/best, that scores all candidates.
        name: what the models' column is called; null takes the run folder's name, or the method's.
        out_of_fold: folder of an experiment over folds: each query is scored by the model that was neither trained nor
            validated on it.
        method: of which of the experiment's methods; null takes the only one.
        seed: of which of its seeds; null takes the only one.
        drop: columns to remove, before others are added.
        in_sample: let the model score queries that it was trained on. What is trained on such a column learns to trust
            its memory.
        precision: arithmetic of the model's encoder; auto takes bf16 where the hardware is fast at it.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; null takes the model's own.
    """
    from rerank.lists.add import add_runs
    from rerank.lists.columns import named_files
    from rerank.lists.store import Store

    if not (run or model or out_of_fold or drop):
        raise UserError("add: say what: --run NAME=FILE, --model FOLDER, --out-of-fold EXPERIMENT or --drop NAME")
    if name is not None and not (model or out_of_fold):
        raise UserError("name: is for a model's column; a file's is called --run NAME=FILE")
    if out_of_fold and (model or in_sample):
        raise UserError(f"{'model' if model else 'in_sample'}: is no part of --out-of-fold; say one at a time")
    if not out_of_fold and (method is not None or seed is not None):
        raise UserError(f"{'seed' if method is None else 'method'}: is for --out-of-fold EXPERIMENT")
    files = named_files(run or [])
    for column in drop or []:
        Store.open(lists).drop_column(column)
    if files:
        add_runs(lists, files)
    if model is not None:
        from rerank.training.model_column import add_model

        add_model(lists, model, name, precision=precision, budget=token_budget, in_sample=in_sample)
    if out_of_fold is not None:
        from rerank.experiments.out_of_fold import add_out_of_fold

        add_out_of_fold(lists, out_of_fold, name, method=method, seed=seed, precision=precision, budget=token_budget)


def export(lists: str, output: str, column: str | None = None) -> None:
    """Write lists for other tools: a row per candidate with texts, grade and columns, or a run of one column.

    Args:
        lists: lists folder.
        output: file to write, .jsonl, .parquet or .trec, or a folder (Hugging Face datasets).
        column: whose scores a .trec file has; null takes the column that orders the lists.
    """
    from rerank.files import check_apart
    from rerank.lists.export import export as write
    from rerank.lists.view import Lists

    check_apart(output, lists=lists)
    write(Lists.open(lists), output, column)


def rerank(
    model: str,
    lists: str,
    output: str,
    depth: int | None = None,
    first_stage_weight: str = "0",
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    token_budget: int | None = None,
) -> None:
    """Score ranked lists with a trained model and write the run.

    The same command finishes what was killed; processes (``torchrun``), on several machines too, share the lists.

    Args:
        model: folder of a trained model, such as runs/x/best.
        lists: lists folder made by ``rerank retrieve``, or a file of feature vectors (LETOR, svmlight).
        output: run file to write (TREC).
        depth: candidates reranked per query; null takes all of the list. Deeper ones are left out.
        first_stage_weight: share of the first stage's scores (z-normalised per query) in the final score, 0 to 1, or
            "tuned" for the share that the model's training found best on its validation lists.
        precision: arithmetic of the encoder; auto takes bf16 where the hardware is fast at it.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; null takes the model's own.
    """
    from rerank.features.letor import open_lists
    from rerank.files import check_apart
    from rerank.models.contract import read_contract
    from rerank.training.rerank_lists import write_reranked

    check_ranges(depth=depth, token_budget=token_budget)
    check_apart(output, lists=lists)
    contract = read_contract(Path(model))
    weight = _weight(first_stage_weight, contract, model)
    ranked = open_lists(lists, contract.get("layout"))
    if weight and ranked.store.order is None:
        raise UserError(f"first_stage_weight: nothing ranked {lists}, so there is nothing to mix in")
    ranked = ranked if depth is None else ranked.top(depth)
    write_reranked(model, ranked, output, weight, precision=precision, budget=token_budget)


def _weight(text: str, contract: dict[str, Any], model: str) -> float:
    if text == "tuned":
        if "first_stage_weight" not in contract:
            raise UserError(f"first_stage_weight: {model} was trained without validation lists; give a number")
        return float(contract["first_stage_weight"])
    try:
        weight = float(text)
    except ValueError:
        weight = -1.0
    if not 0 <= weight <= 1:
        raise UserError(f"first_stage_weight: {text!r} is neither a number from 0 to 1 nor 'tuned'")
    return weight


def train(argv: Sequence[str]) -> None:
    """Train a reranker as a YAML configuration says; resume where an interrupted run stopped."""
    from rerank.training.command import configuration, help_for

    if (text := help_for(argv)) is not None:
        print(text)
        return
    config, output = configuration(argv)
    from rerank.training.fit import fit

    fit(config, output)


def experiment(argv: Sequence[str]) -> None:
    """Compare methods over folds and seeds as a YAML configuration says, up to the tables of a paper."""
    from rerank.experiments.command import experiment as run_experiment

    if run_experiment(argv):
        sys.exit(1)


def pool(argv: Sequence[str]) -> None:
    """Pool experiments on several collections: a random-effects difference per pair of methods, a forest plot."""
    from rerank.experiments.pool_command import command

    command(argv)


def verify(path: str) -> None:
    """Check that a run, checkpoint, model, experiment or lists folder is whole; name the file that is not.

    Args:
        path: the folder; every file of it that has a hash is read.
    """
    from rerank.verify import verify as verified

    print(*(f"{line}, whole" for line in verified(path)), sep="\n")


def losses(name: str | None = None, pictures: str | None = None) -> None:
    """List the losses, a line each; of one loss its formula, parameters, defaults and paper.

    Args:
        name: a loss.
        pictures: folder to draw the papers' pictures into, by this library's own code.
    """
    if pictures is not None:
        from rerank.pictures import draw

        print(*draw(Path(pictures)), sep="\n")
        return
    from rerank.losses.listing import listing

    print(listing(name))


def measures() -> None:
    """List the measures that can be trained on, a line each."""
    from rerank import catalogue

    print(catalogue.measures())


def models() -> None:
    """List the models, a line each."""
    from rerank import catalogue

    print(catalogue.models())


def collections() -> None:
    """List the collections that `rerank retrieve` reads, a line each."""
    from rerank import catalogue

    print(catalogue.collections())


def evaluate(
    qrels: str,
    runs: list[str],
    measures: str = "nDCG@10 AP RR P@10",
    baseline: str | None = None,
    tests: list[Literal["t-test", "wilcoxon", "randomisation"]] | None = None,
    correction: Literal["none", "bonferroni", "holm"] = "holm",
    empty: Literal["0", "1", "drop"] = "0",
    json: str | None = None,
    table: list[str] | None = None,
    per_query: str | None = None,
    html: str | None = None,
    lists: str | None = None,
    training: list[str] | None = None,
) -> None:
    """Score runs against judgments; with a baseline, test the differences.

    Args:
        qrels: judgments: a TREC file, a BEIR TSV, or a collection.
        runs: run files (TREC, MS MARCO, JSONL or Parquet; compressed or not), or NAME=FILE.
        measures: measures as ir-measures writes them, separated by spaces.
        baseline: the run to test the others against, by its file or its name.
        tests: significance tests on the values per query; null makes all.
        correction: for the many p-values that a test gives over the whole table.
        empty: what a query without relevant documents scores: 0 as trec_eval, 1, or drop to leave it out.
        json: file for everything at full precision.
        table: files for the table as shown; .md, .tex, .csv or .txt.
        per_query: file for the values per query; .tsv, .csv or .jsonl.
        html: file for a report: tables, differences per query, rankings side by side, precision and recall.
        lists: lists folder with the texts that the report shows.
        training: run folders whose training curves the report shows.
    """
    from rerank.evaluation import compare, export, render
    from rerank.files import check_apart

    if html:
        from rerank.report.evaluation import write_evaluation
        from rerank.report.page import check_suffix

        check_suffix(html)
    elif lists or training:
        raise UserError(f"{'lists' if lists else 'training'}: only a report shows it; name one with --html FILE")

    for path in table or []:
        export.check_suffix(path, export.TABLE_SUFFIXES)
    if per_query:
        export.check_suffix(per_query, export.PER_QUERY_SUFFIXES)
    for path in [*(table or []), *(path for path in (json, per_query, html) if path)]:
        for run in runs:
            check_apart(path, qrels=qrels, runs=run.partition("=")[2] or run, lists=lists)
    comparison = compare.compare_runs(
        qrels, runs, measures, baseline, tests or compare.TESTS, correction, empty, progress=sys.stderr.isatty()
    )
    for path in table or []:
        export.write_table(comparison, path)
    if json:
        export.write_json(comparison, json)
    if per_query:
        export.write_per_query(comparison, per_query)
    if html:
        write_evaluation(comparison, html, lists, training or [])
    print(render.text(comparison, bold=sys.stdout.isatty()), end="")


COMMANDS: dict[str, Callable[..., Any]] = {
    "demo": demo,
    "retrieve": retrieve,
    "lists": lists,
    "add": add,
    "export": export,
    "train": train,
    "rerank": rerank,
    "evaluate": evaluate,
    "experiment": experiment,
    "pool": pool,
    "verify": verify,
    "losses": losses,
    "measures": measures,
    "models": models,
    "collections": collections,
}


PLAIN = {"losses": "name", "lists": "folder", "verify": "path"}
"""Commands with an option whose name may be left out: ``rerank lists DIR``."""


def usage() -> str:
    """The commands, a line each."""
    lines = [f"  {name:<11} {(function.__doc__ or '').splitlines()[0]}" for name, function in COMMANDS.items()]
    return "\n".join(
        [
            "usage: rerank COMMAND [OPTIONS]",
            "",
            "Train rerankers on the metric that you report.",
            "",
            *lines,
            "",
            "`rerank COMMAND --help` says what a command takes; `rerank --version` which version this is.",
        ]
    )


def run(argv: Sequence[str]) -> None:
    """Run one command."""
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
    elif argv[0] == "--version":
        print(__version__)
    elif argv[0] not in COMMANDS:
        raise UserError(f"{argv[0]}: no such command{nearest(argv[0], COMMANDS)}; see rerank --help")
    elif argv[0] in ("train", "experiment", "pool"):
        COMMANDS[argv[0]](argv[1:])
    elif argv[0] in PLAIN and len(argv) > 1 and not argv[1].startswith("-"):
        call(argv[0], COMMANDS[argv[0]], [f"--{PLAIN[argv[0]]}={argv[1]}", *argv[2:]])
    else:
        call(argv[0], COMMANDS[argv[0]], argv[1:])


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the ``rerank`` command."""
    return exit_code(lambda: run(sys.argv[1:] if argv is None else argv))


if __name__ == "__main__":
    sys.exit(main())
