"""Rerankers as PyTerrier transformers (extra ``pyterrier``); no Java is needed for them.

    bm25 % 50 >> RerankTransformer("runs/x/best")

reranks the 50 best of any retriever whose results carry the documents' text (``pt.text.get_text`` adds it).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyterrier as pt

from rerank.errors import UserError
from rerank.models.load import Interpolated, inner_model, load_model
from rerank.models.text.cross_encoder import CrossEncoder


class RerankTransformer(pt.Transformer):
    """A PyTerrier transformer that scores the documents of each query and sorts them.

    Reads the columns ``qid``, ``query``, ``docno`` and the text; sets ``score`` (raw, float32) and ``rank`` (from 0),
    and keeps all others. Queries keep their order, documents are sorted best first, and ties keep the incoming order.

    An interpolated ranker, and a model with columns of its own (``CrossEncoder(residual_columns="bm25")``), reads
    result columns with these names. If it reads only one and the results lack it, the incoming ``score`` is used. Its
    z-scores are those of the incoming results, so rerank as many as the model was trained with (100), and cut
    afterwards.

    Args:
        model: a trained cross-encoder, a ranker, or the folder of one, such as ``runs/x/best``.
        text_field: the column with the documents' text.

    Raises:
        UserError: no such model, or one that reads no texts.
    """

    def __init__(self, model: str | Path | CrossEncoder | Interpolated, *, text_field: str = "text") -> None:
        super().__init__()
        self.model: Any = model if isinstance(model, CrossEncoder | Interpolated) else load_model(model)
        inner = inner_model(self.model)
        if not (inner is None or isinstance(inner, CrossEncoder)):
            raise UserError(f"{model}: a {type(inner).__name__} reads no texts")
        self.columns = self.model.given
        self.reads_text = inner is not None or bool(getattr(self.model, "cosines", None))
        self.text_field = text_field

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Rerank a frame of results.

        Raises:
            pt.validate.InputValidationError: a column is missing.
        """
        columns = {name: name for name in self.columns}
        if len(columns) == 1 and not set(columns) <= set(inp.columns):
            columns = dict.fromkeys(columns, "score")
        texts = ["query", self.text_field] if self.reads_text else []
        pt.validate.result_frame(inp, extra_columns=[*texts, *columns.values()], context=self)
        came = np.lexsort((inp["rank"] if "rank" in inp else np.arange(len(inp)), pd.factorize(inp["qid"])[0]))
        results = inp.iloc[came]
        parts = [np.zeros(0, dtype=np.float32)]
        for _, found in results.groupby("qid", sort=False):
            query = str(found["query"].iloc[0]) if texts else ""
            documents = found[self.text_field].fillna("").astype(str).tolist() if texts else [""] * len(found)
            given = {name: found[column].to_numpy() for name, column in columns.items()}
            parts.append(self.model.scores_of(query, documents, given))
        scores = np.concatenate(parts)
        best = np.lexsort((-scores, pd.factorize(results["qid"])[0]))  # stable: ties stay as they came
        results = results.assign(score=scores).iloc[best].reset_index(drop=True)
        return results.assign(rank=results.groupby("qid", sort=False).cumcount() + pt.model.FIRST_RANK)

    def __repr__(self) -> str:
        shown = self.model.name if isinstance(self.model, CrossEncoder) else self.model
        return f"RerankTransformer({shown!r})"
