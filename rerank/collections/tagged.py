"""Files in TREC's tags: documents in ``<DOC>`` with a ``<DOCNO>``, topics in ``<top>``."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from rerank.collections.base import Document, checked_id
from rerank.collections.records import ChosenFields
from rerank.errors import UserError
from rerank.storage.files import read_lines

TAG = re.compile(r"<!--.*?-->|</?([a-zA-Z][^\s<>]*)[^<>]*>", re.DOTALL)
DOCNO = re.compile(r"<DOCNO>(.*?)</DOCNO>", re.DOTALL | re.IGNORECASE)
# Not text: the ids, and the header lines that a web crawl put before the page.
LEFT_OUT = re.compile(r"<(DOCNO|DOCID|DOCHDR)>.*?</\1>", re.DOTALL | re.IGNORECASE)
# Nor are programs and styles in a page. CDATA is text.
PROGRAM = re.compile(r"<(script|style)\b[^<>]*>", re.IGNORECASE)
END = {tag: re.compile(rf"</{tag}\s*>", re.IGNORECASE) for tag in ("script", "style")}
CDATA = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
NUMBER = re.compile(r"<num>\s*(?:Number:)?\s*([^\s<]+)", re.IGNORECASE)
LABEL = re.compile(r"\s*(?:(?:Topic|Description|Narrative):)?\s*", re.IGNORECASE)


def blocks(path: Path, tag: str) -> Iterator[tuple[str, str]]:
    """What stands between ``<tag>`` and ``</tag>``, with the place of each; what is outside is passed over."""
    border = re.compile(f"(</?{tag}>)", re.IGNORECASE)
    where = ""
    lines: list[str] | None = None
    for number, line in read_lines(path):
        for part in border.split(line):
            if not border.fullmatch(part):
                if lines is not None:
                    lines.append(part)
            elif part[1] != "/":
                if lines is not None:
                    raise UserError(f"{where}: <{tag}> is not closed before the next; expected </{tag}>")
                where, lines = f"{path}:{number}", []
            elif lines is None:
                raise UserError(f"{path}:{number}: </{tag}> closes nothing; expected <{tag}> before it")
            else:
                yield where, "\n".join(lines)
                lines = None
    if lines is not None:
        raise UserError(f"{where}: <{tag}> is not closed by the end of the file; expected </{tag}>")


def tag_names(markup: str) -> set[str]:
    """The names of the tags, in lower case."""
    return {match[1].lower() for match in TAG.finditer(markup) if match[1]}


def tagged_text(markup: str, fields: Sequence[str] | None) -> str:
    """The text of a document's markup, or of the tags chosen, without tags and blank lines, entities resolved."""
    if fields is None:
        parts = [LEFT_OUT.sub(" ", markup)]
    else:
        flags = re.DOTALL | re.IGNORECASE
        elements = [rf"<{re.escape(field)}(?:\s[^<>]*)?>(.*?)</{re.escape(field)}>" for field in fields]
        parts = [part for element in elements for part in re.findall(element, markup, flags)]
    kept = CDATA.sub(lambda found: html.escape(found[1]), "\n".join(parts))
    text = html.unescape(TAG.sub(" ", _without_programs(kept)))
    return "\n".join(line for line in map(str.strip, text.splitlines()) if line)


def tagged_documents(path: Path, chosen: ChosenFields) -> Iterator[tuple[str, Document]]:
    """Documents of a TREC-tagged file and their places."""
    for where, markup in blocks(path, "DOC"):
        _check_closed(markup, where)
        match = DOCNO.search(markup)
        if match is None:
            raise UserError(f"{where}: this <DOC> has no id; expected <DOCNO>…</DOCNO>")
        chosen.note(tag_names(markup))
        yield where, Document(checked_id(match[1].strip(), where), tagged_text(markup, chosen.fields))


def _check_closed(markup: str, where: str) -> None:
    """Refuse a document in which what is left out has no end: looking for it from each start anew takes for ever."""
    upper = markup.upper()
    for tag in ("DOCNO", "DOCID", "DOCHDR"):
        if upper.count(f"<{tag}>") > upper.count(f"</{tag}>"):
            raise UserError(f"{where}: <{tag}> is not closed in this <DOC>; expected </{tag}>")


def _without_programs(markup: str) -> str:
    """Markup without scripts and styles; one that is not closed stays, with all that follows."""
    parts, at = [], 0
    for start in PROGRAM.finditer(markup):
        if start.start() >= at:
            end = END[start[1].lower()].search(markup, start.end())
            if end is None:
                break
            parts.append(markup[at : start.start()])
            at = end.end()
    return " ".join([*parts, markup[at:]])


def topics(path: Path, fields: Sequence[str] | None = None) -> Iterator[tuple[str, str, str]]:
    """Topics of a TREC file: the place, number and text of each; by default the title makes the text."""
    for where, markup in blocks(path, "top"):
        number = NUMBER.search(markup)
        if number is None:
            raise UserError(f"{where}: this topic has no number; expected <num>…")
        parts = []
        for field in fields or ("title",):
            name, flags = re.escape(field), re.DOTALL | re.IGNORECASE
            found = re.search(rf"<{name}>(.*?)</{name}>", markup, flags)  # with markup in it, if there is some
            found = found or re.search(rf"<{name}>((?:[^<]|<(?![a-z/!]))*)", markup, flags)
            if found is None:
                there = ", ".join(sorted(tag_names(markup) - {"num"})) or "none"
                raise UserError(f"{where}: this topic has no {field}; expected <{field}>…; its tags: {there}")
            parts.append(TAG.sub(" ", found[1][LABEL.match(found[1]).end() :]))  # type: ignore[union-attr]
        yield where, checked_id(number[1], where), " ".join(html.unescape(" ".join(parts)).split())
