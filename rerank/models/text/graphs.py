"""A cross-encoder's network as a file for ONNX Runtime or OpenVINO, in float32 or with weights of int8.

Files lie where sentence-transformers looks for them: ``CrossEncoder(folder, backend="onnx")``.
"""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from rerank.errors import UserError, needed, one_line
from rerank.models.base import Inputs
from rerank.models.scorer import ON_A_CPU
from rerank.models.text.network import load_classifier, read_config
from rerank.models.text.pairs import FlatInputs
from rerank.progress import tqdm
from rerank.storage.arrow import Array

FILES = {
    "onnx": "onnx/model.onnx",
    "onnx-int8": "onnx/model_qint8_avx512_vnni.onnx",
    "openvino": "openvino/openvino_model.xml",
    "openvino-int8": "openvino/openvino_model_qint8.xml",
}
"""The file of each format in a model's folder. OpenVINO's weights lie beside it, as ``.bin``."""

MADE_FROM = {"onnx-int8": "onnx", "openvino": "onnx", "openvino-int8": "openvino"}
"""The format that another one is made from."""


def with_origins(kinds: Iterable[str]) -> list[str]:
    """Formats with those that they are made from, in the order in which they are made.

    >>> with_origins(["openvino"])
    ['onnx', 'openvino']
    """
    wanted = set(kinds)
    for kind in reversed(FILES):
        if kind in wanted and kind in MADE_FROM:
            wanted.add(MADE_FROM[kind])
    return [kind for kind in FILES if kind in wanted]


def write_graph(kind: str, folder: Path, batch: Mapping[str, Tensor]) -> Path:
    """Write a model's network in a format, from what it is made of."""
    path, origin = folder / FILES[kind], str(folder / FILES[MADE_FROM.get(kind, kind)])
    path.parent.mkdir(exist_ok=True)
    with _quietly(folder, kind):
        match kind:
            case "onnx":
                _write_onnx(folder, batch, path)
            case "onnx-int8":
                _compress_onnx(origin, path)
            case "openvino":
                openvino = needed("formats:", "openvino", "openvino")
                openvino.save_model(openvino.convert_model(origin), str(path), compress_to_fp16=False)
            case "openvino-int8":
                openvino, nncf = needed("formats:", "openvino", "openvino"), needed("formats:", "nncf", "openvino")
                made = nncf.compress_weights(openvino.Core().read_model(origin))
                openvino.save_model(made, str(path), compress_to_fp16=False)
    return path


def _write_onnx(folder: Path, batch: Mapping[str, Tensor], path: Path) -> None:
    needed("formats:", "onnxscript", "export")
    network, _ = load_classifier(folder, read_config(folder, None))
    program = torch.onnx.export(
        network.eval(),
        kwargs=dict(batch),
        input_names=list(batch),
        output_names=["logits"],
        dynamic_shapes={name: {0: "pairs", 1: "tokens"} for name in batch},
        dynamo=True,
        verbose=False,
    )
    assert program is not None
    program.save(path)


def _compress_onnx(whole: str, path: Path) -> None:
    """Products in int8: weights by column, activations as they come, by the range of a batch."""
    onnx = needed("formats:", "onnx", "export")
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(whole)
    del model.graph.value_info[:]  # shapes of transposed weights that PyTorch's exporter folded, as they were before
    quantize_dynamic(model, path, per_channel=True, weight_type=QuantType.QInt8)


def scores_of(
    run: Callable[[dict[str, Array]], Array], inputs: Inputs, rows: Array, progress: str | None = None
) -> Array:
    """Scores ``[n]`` float32 of candidates by an exported file, of the very tokens that the model itself reads."""
    found = np.empty(len(rows), dtype=np.float32)
    padded = inputs.inner if isinstance(inputs, FlatInputs) else inputs
    with tqdm(total=len(rows), desc=progress, unit=" documents", disable=None if progress else True) as bar:
        for chunk in padded.chunks(rows, rows, ON_A_CPU):
            batch = padded.collate(rows[chunk], rows)
            found[chunk] = run({name: value.numpy() for name, value in batch.items()})
            bar.update(len(chunk))
    return found


def opened(graph: Path) -> Callable[[dict[str, Array]], Array]:
    """What scores a padded batch by an exported file, in float32 or int8, on as many threads as PyTorch has."""
    threads = torch.get_num_threads()
    if graph.suffix == ".onnx":
        onnxruntime = needed("formats:", "onnxruntime", "export")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        return lambda batch: session.run(["logits"], batch)[0][:, 0]
    # Where the processor has bf16, OpenVINO would take that for float32.
    settings = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": threads}
    compiled = needed("formats:", "openvino", "openvino").compile_model(str(graph), "CPU", settings)
    return lambda batch: compiled(batch)["logits"][:, 0]


@contextmanager
def _quietly(folder: Path, kind: str) -> Iterator[None]:
    """Exporters warn of what nobody can change, draw bars, and say on many lines what they cannot do."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"), redirect_stdout(io.StringIO()):
            yield
    except (UserError, OSError, MemoryError):
        raise
    except Exception as error:
        raise UserError(f"{folder}: cannot be written as {kind} ({one_line(error)[:200]})") from error
    finally:
        logging.disable(before)
