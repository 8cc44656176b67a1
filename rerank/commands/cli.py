"""The ``rerank`` command: a function per command, its options read off its signature."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal

from rerank import __version__, tasks
from rerank.commands.exits import exit_code
from rerank.commands.pages import PAGES
from rerank.errors import UserError, nearest
from rerank.serving.limits import Limits
from rerank.settings.help import EMPTY, option
from rerank.settings.named import find_own_classes
from rerank.settings.parser import call
from rerank.settings.ranges import Count, NotNegative, Port, Seed, check_unused
from rerank.storage.files import check_apart
from rerank.tasks.search import Search

log = logging.getLogger("rerank")


def demo(output: str = "demo", ask: str | None = None, full: bool = False) -> None:
    """Search the Python standard library, from BM25 to a first table.

    Retrieves, trains, reranks, compares with BM25 and answers a question.

    Args:
        output: folder for lists, models, runs, logs and a plot; what is there already is not done again.
        ask: a question to answer, such as "how do I flatten a list of lists".
        full: test all questions, a third at a time, with three trainings instead of one.
    """
    from rerank.demo import run_demo

    run_demo(Path(output), ask, full)


def retrieve(output: str, search: Search, bm25: bool = False, **options: Any) -> None:
    """Store candidates as ranked lists, from BM25 or from your runs.

    Memory does not grow with BM25's candidates. From several runs, the lists have the union of the candidates and a
    column of scores for each.

    Args:
        output: lists folder to make.
        search: how BM25 searches.
        bm25: search with BM25 even if runs or hits are given; so does any option of its search.
        options: what :func:`rerank.retrieve` takes.
    """
    searches = bm25 or search != Search()
    stored = tasks.retrieve(output=output, search=search if searches else None, **options)
    documents = stored.store.documents.num_rows
    log.info("%s: %d queries, %d candidates, %d distinct documents", output, len(stored), stored.size, documents)


def lists(
    folder: str,
    measures: str | None = None,
    html: str | None = None,
    trained_on: list[str] | None = None,
) -> None:
    """Show what is in a lists folder, and the best it could reach.

    Depth, what each system finds and adds, and what a perfect reranking of the candidates would measure.

    Args:
        folder: lists folder made by ``rerank retrieve``.
        measures: measures in the notation of ir-measures, the main one first; null takes nDCG@10, AP and recall.
        html: file for a page with the systems' overlap, recall by depth, and rankings side by side.
        trained_on: lists folders that models are trained on: shows what these lists share with them.
    """
    from rerank.lists.view import Lists

    opened = Lists.open(folder)
    from rerank.evaluation.overview import overview, text

    if html:
        from rerank.report.lists import shows_runs, write_overview
        from rerank.report.page import check_suffix

        check_suffix(html)
        check_apart(html, lists=folder)
    others = list(map(Lists.open, trained_on or []))
    about = overview(opened, measures, keep_runs=bool(html) and shows_runs(opened), trained_on=others)
    if html:
        write_overview(about, html)
    print(text(about, bold=sys.stdout.isatty()), end="")


def add(
    lists: str,
    run: list[str] | None = None,
    model: str | None = None,
    embed: str | None = None,
    name: str | None = None,
    out_of_fold: str | None = None,
    method: str | None = None,
    seed: int | None = None,
    drop: list[str] | None = None,
    in_sample: bool = False,
    no_mix: bool = False,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    token_budget: int | None = None,
) -> None:
    """Add columns of scores to a lists folder, or remove some.

    Scores come from files, a trained model, an embedding model, or the folds of an experiment.

    If the command was killed, the same command finishes the work.

    Args:
        lists: lists folder.
        run: files of scores (TREC, CSV, JSONL or Parquet), as NAME=FILE or FILE.
        model: folder of a trained model, such as runs/x/best, which scores all candidates.
        embed: embedding model (folder, or name on the hub), whose cosine of query and document all candidates get.
        name: name of the model's column; null takes the name of the run folder, of the method, or "cosine-" and
            that of the embedding model.
        out_of_fold: folder of an experiment over folds: each query is scored by the model that was neither trained nor
            validated on it.
        method: which of the experiment's methods; not needed if there is only one.
        seed: which of the experiment's seeds; not needed if there is only one.
        drop: columns to remove, before others are added.
        in_sample: let the model score queries that it was trained on. A model trained on such a column learns to trust
            what this one memorised.
        no_mix: scores of the model alone, where it was saved with a mix.
        precision: arithmetic of the model's encoder; auto takes bf16 where the hardware is fast at it.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; null takes the model's own.
    """
    from rerank.lists.add import add_runs
    from rerank.lists.columns import named_files
    from rerank.lists.store import Store

    if not (run or model or embed or out_of_fold or drop):
        raise UserError(
            "add: nothing to add or remove; give --run NAME=FILE, --model FOLDER, --embed MODEL, "
            "--out-of-fold EXPERIMENT or --drop NAME"
        )
    if not (model or embed or out_of_fold):
        _refuse_unused("has no effect on a file's column; write --run NAME=FILE", add, name=name)
        _refuse_unused(
            "has no effect without --model, --embed or --out-of-fold; leave it out", add, precision=precision
        )
    if not (model or out_of_fold):
        why = "has no effect without --model or --out-of-fold; leave it out"
        _refuse_unused(why, add, in_sample=in_sample, token_budget=token_budget)
    if not model:
        _refuse_unused("has no effect without --model; leave it out", add, no_mix=no_mix)
    several = [key for key, value in (("model", model), ("embed", embed), ("out_of_fold", out_of_fold)) if value]
    if len(several) > 1:
        raise UserError(f"{option(several[0])}: cannot be combined with {option(several[1])}; use one at a time")
    if out_of_fold:
        _refuse_unused("cannot be combined with --out-of-fold; leave it out", add, in_sample=in_sample)
    if not out_of_fold:
        _refuse_unused("has no effect without --out-of-fold; leave it out", add, method=method, seed=seed)
    files = named_files(run or [])
    for column in drop or []:
        Store.open(lists).drop_column(column)
    if files:
        add_runs(lists, files)
    if model is not None:
        from rerank.scoring.column import add_model

        mix = not no_mix
        add_model(lists, model, name, precision=precision, budget=token_budget, in_sample=in_sample, mix=mix)
    if embed is not None:
        from rerank.scoring.cosines import add_cosines

        add_cosines(lists, embed, name, precision=precision)
    if out_of_fold is not None:
        from rerank.experiments.out_of_fold import add_out_of_fold

        add_out_of_fold(lists, out_of_fold, name, method=method, seed=seed, precision=precision, budget=token_budget)


def _refuse_unused(why: str, function: Callable[..., Any], **options: Any) -> None:
    """As :func:`check_unused`, by the names that options have on the command line."""
    try:
        check_unused(why, function, **options)
    except UserError as error:
        key, _, rest = str(error).partition(":")
        raise UserError(f"{option(key)}:{rest}") from error


def export(lists: str, output: str, column: str | None = None, model: str | None = None, **asked: Any) -> None:
    """Write lists for other tools, or a model as ONNX or OpenVINO.

    Args:
        lists: lists folder; with --model the one that the exported files are measured on.
        output: file to write (.jsonl, .parquet or .trec), or a folder for Hugging Face datasets; with --model the
            folder that gets the model.
        column: the column whose scores a .trec file gets; null takes the one that orders the lists.
        model: folder of a trained cross-encoder to write: rerank export --model runs/x/best --lists lists/test
            --formats onnx onnx-int8 --output exported.
        asked: with --model, what :func:`rerank.export_model` takes.
    """
    if model is not None:
        if column is not None:
            raise UserError("--column: has no effect with --model, which exports a model; leave it out")
        tasks.export_model(model, lists, output, **asked)
        return
    _refuse_unused("is for exporting a model; add --model FOLDER", tasks.export_model, **asked)
    from rerank.lists.export import export as write
    from rerank.lists.view import Lists

    check_apart(output, lists=lists)
    write(Lists.open(lists), output, column)


def rerank(
    model: str,
    lists: str | None = None,
    output: str | None = None,
    stdin: bool = False,
    depth: Count | None = None,
    no_mix: bool = False,
    first_stage_weight: str = "0",
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    token_budget: Count | None = None,
) -> None:
    """Score ranked lists with a trained model and write the run.

    If the command was killed, the same command finishes the work. Several processes (``torchrun``), on one machine or
    many, share the lists.

    Args:
        model: folder of a trained model, such as runs/x/best.
        lists: lists folder made by ``rerank retrieve``, or a file of feature vectors (LETOR, svmlight).
        output: run file to write (TREC).
        stdin: read queries with their documents from standard input, a JSON object per line, and answer each with a
            line: {"query": "…", "documents": ["…"]} with {"ranking": [{"index": 0, "score": 1.5}]}.
        depth: candidates reranked per query; null takes all of the list. Deeper ones are left out.
        no_mix: rank by the model alone, where it was saved with a mix.
        first_stage_weight: share of the first stage's scores (z-normalised per query) in the final score, 0 to 1, or
            "tuned" for the share that the model's training found best on its validation lists. A model that was saved
            with a mix needs none.
        precision: arithmetic of the encoder; auto takes bf16 where the hardware is fast at it.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; null takes the model's own.
    """
    if stdin:
        from rerank.models.load import load_model
        from rerank.tasks.answer import answer_lines

        why = "--stdin reads from the standard input, and answers on the standard output"
        _refuse_unused(why, rerank, lists=lists, output=output)
        _refuse_unused("--stdin scores all documents of a line; its top_k limits the answer", rerank, depth=depth)
        _refuse_unused("--stdin has no first stage to mix in", rerank, first_stage_weight=first_stage_weight)
        with open(1, "w", encoding="utf-8", closefd=False) as out:  # whatever the terminal's encoding is
            failed = answer_lines(load_model(model, mix=not no_mix), sys.stdin.buffer, out, token_budget, precision)
        if failed:
            raise UserError("some lines could not be answered; each says why")
        return
    for name, value in (("lists", lists), ("output", output)):
        if value is None:
            raise UserError(f"--{name}: needed, unless --stdin is given")
    from rerank.scoring.run import write_reranked
    from rerank.tasks.rerank_lists import ranked_with

    check_apart(str(output), lists=lists, model=model)
    ranked, weight = ranked_with(model, str(lists), depth, first_stage_weight, token_budget, not no_mix)
    write_reranked(model, ranked, str(output), weight, mix=not no_mix, precision=precision, budget=token_budget)


def serve(
    rankers: list[str],
    limits: Limits,
    host: str = "127.0.0.1",
    port: Port = 8000,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    token_budget: int | None = None,
) -> None:
    """Answer requests over HTTP, in the shapes of Cohere, Jina and TEI.

    Ctrl-C and SIGTERM let the requests that were accepted finish. Where RERANK_API_KEY is set, requests need the key.

    Args:
        rankers: folders of trained models or rankers, as NAME=FOLDER or FOLDER; the first answers who names none.
        limits: what the service takes on.
        host: where it listens; 0.0.0.0 is everywhere.
        port: on which port; 0 takes a free one and says which.
        precision: arithmetic of the encoders; auto takes bf16 where the hardware is fast at it.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; null takes the ranker's own.
    """
    from rerank.serving.server import serve as run_server

    run_server(rankers, host, port, limits, precision, token_budget)


def auto(
    train: str,
    output: str,
    validation: str | None = None,
    test: str | None = None,
    model: list[str] | None = None,
    hours: NotNegative | None = None,
    depth: Count = 150,
    monitor: str = "nDCG@10",
    seed: Seed = 42,
) -> None:
    """Climb from the first stage to a ranker that earns its place.

    If the command was killed, the same command goes on where it was.

    Args:
        train: lists folder to train on, or a file of feature vectors (LETOR, svmlight).
        output: folder for the ladder: ladder.txt, ladder.json, ladder.html, and the ranker.
        validation: lists to choose on; null keeps a share of the training queries back.
        test: lists that every rung is measured on, once, at the end.
        model: text models, by folder or name, or LightGBM, XGBoost, MLP, SelfAttention for feature vectors. One that
            embeds texts also gives a column of cosines. Null takes MiniLM, or LightGBM.
        hours: how long it may take, which decides how many seeds and passes there are; null takes all.
        depth: candidates of a validation or test query that take part.
        monitor: the measure that decides.
        seed: decides which queries are kept back for validation.
    """
    from rerank.ladder.climb import auto as climb

    print(climb(train, validation, test, model, hours, output=output, depth=depth, monitor=monitor, seed=seed))


def compare(**asked: Any) -> None:
    """Compare rankers, columns and servers: quality and cost by depth.

    Args:
        asked: what :func:`rerank.compare` takes.
    """
    print(tasks.compare(**asked))


def calibrate(**asked: Any) -> None:
    """Turn scores into probabilities of relevance, with thresholds.

    Args:
        asked: what :func:`rerank.calibrate` takes.
    """
    print(tasks.calibrate(**asked))


def train(argv: Sequence[str]) -> None:
    """Train a reranker, or resume where an interrupted run stopped."""
    from rerank.commands.train_help import help_for
    from rerank.training.configuration import configuration

    if (text := help_for(argv)) is not None:
        print(text)
        return
    config, output = configuration(argv)
    from rerank.training.fit import fit

    fit(config, output)


def experiment(argv: Sequence[str]) -> None:
    """Compare methods over folds and seeds, from a YAML file to tables."""
    from rerank.commands.experiment import experiment as run_experiment

    if run_experiment(argv):
        sys.exit(1)


def pool(argv: Sequence[str]) -> None:
    """Pool experiments on several collections, with a forest plot."""
    from rerank.commands.pool import command

    command(argv)


def verify(path: str) -> None:
    """Check that a folder of runs, models or lists is undamaged.

    Args:
        path: the folder; every file in it that has a hash is read.
    """
    from rerank.commands.verify import verify as verified

    print(*(f"{line}, whole" for line in verified(path)), sep="\n")


def losses(name: str | None = None) -> None:
    """List the losses, or explain one: formula, parameters, paper.

    Args:
        name: the loss to explain.
    """
    from rerank.commands import catalogue

    print(catalogue.losses(name))


def measures() -> None:
    """List the measures that can be trained on."""
    from rerank.commands import catalogue

    print(catalogue.measures())


def models() -> None:
    """List the models."""
    from rerank.commands import catalogue

    print(catalogue.models())


def collections() -> None:
    """List the collections that can be read."""
    from rerank.commands import catalogue

    print(catalogue.collections())


def evaluate(
    json: str | None = None,
    table: list[str] | None = None,
    per_query: str | None = None,
    html: str | None = None,
    lists: str | None = None,
    training: list[str] | None = None,
    **asked: Any,
) -> None:
    """Score runs against judgments; with a baseline, test differences.

    Args:
        json: file for all results at full precision.
        table: files for the table (.md, .tex, .csv or .txt).
        per_query: file for the values per query (.tsv, .csv or .jsonl).
        html: file for a report: tables, differences per query, rankings side by side, precision and recall.
        lists: lists folder with texts for the report to show.
        training: run folders with training curves for the report to show.
        asked: what :func:`rerank.evaluate` takes.
    """
    from rerank.evaluation import export, render

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
    outputs = [*(table or []), *(path for path in (json, per_query, html) if path)]
    for number, path in enumerate(outputs):
        if path in outputs[:number]:
            raise UserError(f"{path}: given for two outputs; name another file for one of them")
        for run in [*asked["runs"], asked["baseline"] or ""]:
            check_apart(path, qrels=asked["qrels"], runs=run.partition("=")[2] or run, lists=lists)
    comparison = tasks.evaluate(**asked)
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
    command.__name__: command
    for command in (
        *(demo, retrieve, lists, add, export, compare, auto, train, tasks.average, calibrate, rerank, serve),
        *(evaluate, experiment, pool, verify, losses, measures, models, collections),
    )
}

GROUPS = {
    "start": ("demo", "auto"),
    "candidates": ("retrieve", "lists", "add", "export"),
    "rankers": ("train", "average", "calibrate", "rerank", "serve"),
    "comparisons": ("evaluate", "compare", "experiment", "pool", "verify"),
    "what there is": ("losses", "measures", "models", "collections"),
}
"""The commands, as their list shows them."""


def usage() -> str:
    """The commands, a line each."""
    lines = ["usage: rerank COMMAND [OPTIONS]", ""]
    lines += ["Train rerankers on whole ranked lists, and know whether they beat what you have."]
    for head, names in GROUPS.items():
        lines += ["", head]
        lines += [f"  {name:<12}{(COMMANDS[name].__doc__ or '').splitlines()[0]}" for name in names]
    return "\n".join([*lines, "", "rerank COMMAND --help explains a command; rerank --version prints the version."])


def run(argv: Sequence[str]) -> None:
    """Run one command."""
    find_own_classes()
    if not argv or argv[0] in ("-h", "--help"):
        print(usage())
    elif argv[0] == "--version":
        print(__version__)
    elif argv[0] not in COMMANDS:
        raise UserError(f"{argv[0]}: no such command{nearest(argv[0], COMMANDS)}; see rerank --help")
    elif argv[0] in ("train", "experiment", "pool"):
        COMMANDS[argv[0]](argv[1:])
    else:
        name, *words = argv
        page = PAGES.get(name, EMPTY)
        if page.plain and not words and signature(COMMANDS[name]).parameters[page.plain].default is Parameter.empty:
            raise UserError(f"FOLDER: needed; see rerank {name} --help")
        if page.plain and words and not words[0].startswith("-"):
            words[0] = f"--{page.plain}={words[0]}"
        call(COMMANDS[name], words, page)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the ``rerank`` command."""
    return exit_code(run, sys.argv[1:] if argv is None else argv)


if __name__ == "__main__":
    sys.exit(main())
