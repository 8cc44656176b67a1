"""A trained cross-encoder for other runtimes: ``rerank.export_model``, and ``rerank export --model``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rerank.errors import UserError
from rerank.progress import log
from rerank.settings.ranges import Count, check_arguments
from rerank.storage.files import atomic_folder
from rerank.storage.hashes import hash_files
from rerank.tasks.arguments import ListsLike

if TYPE_CHECKING:
    from rerank.evaluation.beside import Beside
    from rerank.lists.view import Lists
    from rerank.models.text.cross_encoder import CrossEncoder
    from rerank.storage.arrow import Array


PAIRS = 64
"""Pairs whose scores are compared, half of them the longest."""

OFF = 1e-4
"""How far a score in float32 may be from the model's own."""

LOSS = 0.005
"""How much nDCG@10 int8 may lose."""


@dataclass(frozen=True)
class Exported:
    """A file that was written.

    Attributes:
        file: its name in the folder.
        size: bytes, its weights included.
        largest: largest difference of a score from the model's own in float32, over 64 pairs of the lists.
        beside: of int8, nDCG@10 beside that of float32; None for float32, and where the lists have no judgments.
    """

    file: str
    size: int
    largest: float
    beside: Beside | None


def export_model(
    model: str | Path,
    lists: ListsLike,
    output: str | Path,
    formats: list[Literal["onnx", "onnx-int8", "openvino", "openvino-int8"]] | None = None,
    depth: Count | None = None,
    force: bool = False,
) -> list[Exported]:
    """Write a trained cross-encoder as ONNX or OpenVINO, beside its own weights, where sentence-transformers finds it.

    Every file is compared with the model: in float32 by the scores of 64 candidates, of which none may differ by more
    than 1e-4; in int8 by nDCG@10 of the reranked lists. What fails is refused, and nothing is written. Of a ranker that
    mixes the files have the model; ``rerank.json`` and the card keep the mix.

    Args:
        model: folder of a trained cross-encoder, such as runs/x/best.
        lists: lists folder with texts, for int8 also with judgments: rerank export --model runs/x/best --lists
            lists/test --formats onnx onnx-int8 --output exported.
        output: folder to make: the model, its card, and onnx/model.onnx, onnx/model_qint8_avx512_vnni.onnx,
            openvino/openvino_model.xml, openvino/openvino_model_qint8.xml.
        formats: onnx, onnx-int8 (weights in int8), openvino, openvino-int8; None takes onnx.
        depth: candidates per query that are reranked for nDCG@10; None takes all of the list.
        force: write int8 even if nDCG@10 falls by more than 0.005, or cannot be measured.

    Returns:
        What was written, a file each.

    Raises:
        UserError: a model that no other library could run, a package that is missing, or a file that fails.
    """
    from rerank.lists.view import Lists
    from rerank.models.contract import MIX, read_contract
    from rerank.models.load import load_model
    from rerank.models.text.graphs import with_origins
    from rerank.storage.locks import held

    check_arguments(export_model, {"formats": formats, "depth": depth})
    kinds = with_origins(formats or ["onnx"])
    scorer = _checked(load_model(model, mix=False), str(model))
    if mix := read_contract(Path(model)).get(MIX):
        log.info("files score by the model alone; weights of %s stay in rerank.json", ", ".join(mix["columns"]))
    opened = lists if isinstance(lists, Lists) else Lists.open(lists)
    opened = opened.cut(depth)
    judged = any(any(grades.values()) for grades in (opened.qrels or {}).values())
    if not (judged or force) and (small := [kind for kind in kinds if kind.endswith("int8")]):
        raise UserError(
            f"formats: {small[0]} is judged by nDCG@10, and {opened.store} has no judgments; give --force to do without"
        )
    with held(output, "rerank export", wait=True), atomic_folder(output) as folder:
        scorer.save(folder)
        written = _write(scorer, folder, kinds, opened, judged, force)
        _describe(folder, scorer, written, Path(output).name)
    return written


def _checked(model: Any, name: str) -> CrossEncoder:
    """The model, if a file can do all that it does."""
    from rerank.models.text.cross_encoder import CrossEncoder
    from rerank.models.text.decoder import Decoder

    if isinstance(model, Decoder):
        raise UserError(f"{name}: a decoder is not exported; merge() and save() make a whole model that others serve")
    if not isinstance(model, CrossEncoder):
        raise UserError(f"{name}: a {type(model).__name__} reads feature vectors; cross-encoders are exported")
    if model.start.columns:
        raise UserError(
            f"{name}: starts from {', '.join(model.start.columns)}, which an exported file does not read; "
            "CrossEncoder(…, start=[]).save(…) makes a model of its text part alone"
        )
    if not model.part.elsewhere:
        what = "a cls head" if model.head == "cls" else f"long {model.long}"
        raise UserError(f"{name}: has {what}, which only rerank computes; train one with head hf and long truncate")
    return model


def _write(
    scorer: CrossEncoder, folder: Path, kinds: list[str], lists: Lists, judged: bool, force: bool
) -> list[Exported]:
    import numpy as np

    from rerank.evaluation.beside import beside_run
    from rerank.models.scorer import score_candidates, score_lists
    from rerank.models.text.graphs import opened, scores_of, write_graph

    inputs, rows = scorer.inputs(lists), lists.row_numbers
    pairs = rows[_chosen(inputs.lengths(rows))]
    ours = score_candidates(scorer, inputs, pairs, np.zeros(1, np.int64), precision="fp32")
    batch = scorer.part.probe(scorer._loaded)
    written, whole = [], None
    for kind in kinds:
        graph, beside = write_graph(kind, folder, batch), None
        name, run = str(graph.relative_to(folder)), opened(graph)
        largest = float(np.abs(scores_of(run, inputs, pairs) - ours).max())
        small = kind.endswith("int8")
        if not small and not largest <= OFF:
            raise UserError(
                f"{name}: a score is {largest:.1e} off the model's own, more than {OFF:g}; it is not written"
            )
        if small and judged:
            if whole is None:
                whole = score_lists(scorer, inputs, lists, precision="fp32", progress="float32")
            runs = lists.run(scores_of(run, inputs, rows, progress=kind)), lists.run(whole)
            assert lists.qrels is not None
            beside = beside_run(*runs, lists.qrels, "nDCG@10")
        size = sum(path.stat().st_size for path in graph.parent.glob(f"{graph.stem}.*"))
        written.append(Exported(name, size, largest, beside))
        log.info("%s", _sentence(written[-1]))
        if beside is not None and beside.difference < -LOSS and not force:
            raise UserError(
                f"{name}: loses {-beside.difference:.4f} nDCG@10, more than {LOSS:g}; leave {kind} out of "
                "--formats, or give --force"
            )
    return written


def _chosen(lengths: Array) -> Array:
    """Places of the longest pairs, and of as many others."""
    import numpy as np

    order = np.argsort(-lengths, kind="stable")
    others = np.random.default_rng(0).permutation(order[PAIRS // 2 :])
    return np.concatenate([order[: PAIRS // 2], others[: PAIRS // 2]])


def _sentence(found: Exported) -> str:
    """What is to say of a file.

    >>> print(_sentence(Exported("onnx/model.onnx", 90_900_000, 3.1e-6, None)))
    onnx/model.onnx: 90.9 MB, scores differ by at most 3.1e-06
    """
    said = f"{found.file}: {found.size / 1e6:.1f} MB, scores differ by at most {found.largest:.1e}"
    if (beside := found.beside) is not None:
        said += f", {beside.measure} {beside.ours:.4f}, float32 {beside.first:.4f}"
        said += f", difference {beside.shown} (95 % interval, {beside.queries} queries)"
    return said


def _describe(folder: Path, scorer: CrossEncoder, written: list[Exported], name: str) -> None:
    """Let contract and card say what was written, and how it is loaded."""
    from rerank.models.card import without_part
    from rerank.models.contract import CARD, FILES, add_to_contract, read_contract

    source, made = read_contract(scorer.folder), read_contract(folder)
    graphs = sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))
    kept = {key: value for key, value in source.items() if key not in (*made, "sha256")}
    add_to_contract(folder, kept | {FILES: made[FILES] | hash_files(folder, graphs)})
    card = scorer.folder / CARD
    before = without_part(card.read_text(encoding="utf-8"), HEADING) if card.is_file() else f"# {name}\n"
    (folder / CARD).write_text(f"{before}\n{_section(written)}", encoding="utf-8")


HEADING = "Exported files"


def _section(written: list[Exported]) -> str:
    rows, code = [], []
    for found in written:
        backend, name = found.file.split("/")
        cells = [f"{found.beside.ours:.4f}", found.beside.shown] if found.beside else ["", ""]
        rows.append(f"| `{found.file}` | {found.size / 1e6:.1f} | {found.largest:.1e} | {' | '.join(cells)} |")
        code.append(f'CrossEncoder(path, backend="{backend}", model_kwargs={{"file_name": "{name}"}})\n')
    measured = next((found.beside for found in written if found.beside), None)
    about = f" Its own nDCG@10 over the {measured.queries} queries is {measured.first:.4f}." if measured else ""
    return (
        f"## {HEADING}\n\n| file | MB | largest difference of a score | nDCG@10 | difference, 95 % interval |\n"
        f"|---|---:|---:|---:|---:|\n" + "\n".join(rows) + "\n\n"
        f"Differences are from this model in float32, those of scores over {PAIRS} pairs, half of them the longest."
        f"{about}\n\n```python\nfrom sentence_transformers import CrossEncoder\n\n{''.join(code)}```\n"
    )
