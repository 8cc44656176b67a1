"""What the service says of itself at ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import yaml

from rerank import __version__
from rerank.serving.limits import Limits

PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
"""Where scores are asked for: the same everywhere, as clients have one of these built in."""


def description(names: Sequence[str], limits: Limits, key: bool) -> dict[str, Any]:
    """The paths, bodies and answers, in OpenAPI 3.1."""
    found: dict[str, Any] = yaml.safe_load(files("rerank.serving").joinpath("openapi.yaml").read_text("utf-8"))
    found["info"]["version"] = __version__
    body = found["paths"][PATHS[0]]["post"]["requestBody"]["content"]["application/json"]["schema"]["anyOf"][0]
    body["properties"]["model"]["enum"] = list(names)  # which all paths and both bodies share
    body["properties"]["documents"]["maxItems"] = limits.documents
    if key:
        scheme = {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}
        found |= {"components": scheme, "security": [{"key": []}]}
    return found
