"""``rerank retrieve``, ``lists`` and ``add``: store candidates, show them, add columns of scores."""

from __future__ import annotations

import sys
from typing import Any, Literal

from rerank.errors import UserError
from rerank.progress import log
from rerank.settings.arguments import check_unused
from rerank.tasks.inputs import retrieve_inputs
from rerank.tasks.retrieve import Search
from rerank.tasks.retrieve import retrieve as retrieve_lists


def retrieve(output: str, search: Search, bm25: bool = False, check: bool = False, **options: Any) -> None:
    """Store candidates as ranked lists, from BM25, runs or records.

    BM25's candidates are kept on disk. From several runs, the lists have the union of the candidates and a column of
    scores for each.

    Args:
        output: lists folder to make.
        search: how BM25 searches.
        bm25: search with BM25 even if runs are given; any option of its search implies it.
        check: list the inputs, and say which are missing and where they go, instead of retrieving.
        options: the other arguments of :func:`rerank.retrieve`.
    """
    searches = bm25 or search != Search()
    if check:
        found = dict.fromkeys(retrieve_inputs(**options | {"search": search if searches else None}))
        print("\n".join(f"{name}: missing: {advice}" if advice else f"{name}: ok" for name, advice in found))
        sys.exit(any(advice for _, advice in found))
    stored = retrieve_lists(output=output, search=search if searches else None, **options)
    documents = stored.store.documents.num_rows
    log.info("%s: %d queries, %d candidates, %d distinct documents", output, len(stored), stored.size, documents)


def lists(folder: str, measures: str | None = None) -> None:
    """Show what a lists folder holds, and the best possible reranking.

    Args:
        folder: lists folder made by ``rerank retrieve``.
        measures: measures in the notation of ir-measures; defaults to NumRet, Judged@10, nDCG@10, AP and recall.
    """
    from rerank.evaluation.overview import overview
    from rerank.lists.view import Lists

    print(overview(Lists.open(folder), measures))


def add(
    lists: str,
    run: list[str] | None = None,
    model: str | None = None,
    embed: str | None = None,
    name: str | None = None,
    drop: list[str] | None = None,
    in_sample: bool = False,
    no_interpolation: bool = False,
    precision: Literal["auto", "bf16", "fp32"] = "auto",
    token_budget: int | None = None,
    instruction: str | None = None,
) -> None:
    """Add columns of scores to a lists folder, or remove some.

    Scores come from files, a trained model or an embedding model. A repeated command skips finished columns.

    Args:
        lists: lists folder.
        run: files of scores (TREC, CSV, JSONL or Parquet), as NAME=FILE or FILE.
        model: folder of a trained model, such as runs/x/best, which scores all candidates.
        embed: embedding model (folder, or name on the hub) that gives all candidates the cosine of query and document.
        name: name of the model's column; defaults to the name of the run folder, or "cosine-" and that of the
            embedding model.
        drop: columns to remove.
        in_sample: let the model score queries that it was trained on. Such scores are overfitted, and a model trained
            on this column learns to trust them.
        no_interpolation: score with the model alone, if its folder interpolates it with columns.
        precision: floating-point format of the encoder; auto takes bf16 if the hardware is fast at it.
        token_budget: padded tokens (documents, for feature vectors) per forward pass; defaults to the model's own.
        instruction: instruction for queries without one, if the model's prompt has a place for it.
    """
    sources = {"--run": run, "--model": model, "--embed": embed, "--drop": drop}
    chosen = [name for name, value in sources.items() if value]
    if len(chosen) != 1:
        raise UserError("add: give one of --run NAME=FILE, --model FOLDER, --embed MODEL and --drop NAME")
    useless: dict[str, Any] = {} if model or embed else {"name": name, "precision": precision}
    if not model:
        useless |= {"token_budget": token_budget, "in_sample": in_sample}
        useless |= {"no_interpolation": no_interpolation, "instruction": instruction}
    check_unused(f"has no effect with {chosen[0]}; leave it out", add, **useless)
    if run:
        from rerank.lists.add import add_runs
        from rerank.lists.columns import named_files

        add_runs(lists, named_files(run))
    elif drop:
        from rerank.lists.store import Store

        store = Store.open(lists)
        for column in drop:
            store.drop_column(column)
    elif embed:
        from rerank.scoring.outputs import add_cosines

        add_cosines(lists, embed, name, precision=precision)
    elif model:
        from rerank.scoring.outputs import add_model

        add_model(
            lists,
            model,
            name,
            precision=precision,
            budget=token_budget,
            in_sample=in_sample,
            interpolate=not no_interpolation,
            instruction=instruction,
        )
