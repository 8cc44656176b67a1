"""Read a page as a browser does."""

from __future__ import annotations

import json
from typing import Any

import html5lib


def parsed(html: str, strict: bool = True) -> Any:
    return html5lib.HTMLParser(namespaceHTMLElements=False, strict=strict).parse(html)


def data_of(tree: Any) -> dict[str, Any]:
    return json.loads(next(script.text for script in tree.iter("script") if script.get("id") == "data"))
