"""Two sets of feature lists as one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rerank.files import digest
from rerank.lists.store import Lists


def joined(one: Lists, other: Lists) -> Lists:
    """The lists of one, then those of the other; their features are copied into one table."""
    rows, queries = one.document_table.num_rows, one.query_table.num_rows
    hashes = {name: digest(value, other.manifest["hashes"][name]) for name, value in one.manifest["hashes"].items()}
    return Lists(
        folder=one.folder,
        manifest=one.manifest | {"hashes": hashes},
        query_ids=one.query_ids + other.query_ids,
        query_rows=np.concatenate([one.query_rows, other.query_rows + queries]),
        offsets=np.concatenate([one.offsets, one.offsets[-1] + other.offsets[1:]]),
        documents=np.concatenate([one.documents, other.documents + rows]),
        labels=np.concatenate([one.labels, other.labels]),
        first_stage=np.concatenate([one.first_stage, other.first_stage]),
        query_table=pa.concat_tables([one.query_table, other.query_table]),
        document_table=pa.concat_tables([one.document_table, other.document_table]).combine_chunks(),
        qrels=None,
    )
