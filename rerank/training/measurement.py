"""A measurement kept: the test measures of every query, in a sealed file that is named by what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rerank.errors import UserError
from rerank.evaluation.measures import PerQuery, parse_measures
from rerank.hashes import read_sealed, write_sealed
from rerank.identity import id_of
from rerank.training.ids import file_of


def write_measurement(
    folder: Path, identity: Mapping[str, Any], table: PerQuery, mixed: Mapping[str, float] | None = None
) -> None:
    """Write the values of every query.

    Args:
        folder: a run folder, or the folder of a row that was not trained.
        identity: what `measurement_identity` returned.
        table: the values.
        mixed: means with the first stage mixed in, where that was measured as well.
    """
    name = id_of(identity)
    content: dict[str, Any] = {
        "id": name,
        "measures": [str(measure) for measure in table.measures],
        "empty": table.empty,
        "queries": list(table.queries),
        "missing": list(table.missing),
        "values": [[None if np.isnan(value) else value for value in row] for row in table.values.tolist()],
        "without_relevant": table.without_relevant.tolist(),
    }
    write_sealed(folder / file_of(name), content | ({"with_first_stage": dict(mixed)} if mixed else {}))


def read_measurement(folder: Path, identity: Mapping[str, Any]) -> tuple[PerQuery, dict[str, float]] | None:
    """What `write_measurement` wrote; None where this was not measured yet.

    Raises:
        UserError: the file is damaged.
    """
    name = id_of(identity)
    path = folder / file_of(name)
    if not path.is_file():
        return None
    content = read_sealed(path)
    if content["id"] != name:
        raise UserError(f"{path}: holds another measurement ({content['id']}); remove the file to measure again")
    table = PerQuery(
        measures=tuple(parse_measures(" ".join(content["measures"]))),
        queries=tuple(content["queries"]),
        values=np.array(content["values"], dtype=np.float64),
        missing=tuple(content["missing"]),
        without_relevant=np.array(content["without_relevant"], dtype=bool),
        empty=content["empty"],
    )
    return table, content.get("with_first_stage", {})
