"""A folder laid out as TREC disks 4 and 5: the markup of their four sources, plain and compressed, words made up."""

from __future__ import annotations

import gzip
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

FILES = 2295
"""As many as the disks have without the Congressional Record; ir_datasets counts them."""

FT = """<DOC>
<DOCNO>{id}</DOCNO>
<PROFILE>_AN-BEOA7AAIFT</PROFILE>
<DATE>910514
</DATE>
<HEADLINE>
FT  14 MAY 91 / {title}
</HEADLINE>
<BYLINE>
   By A REPORTER
</BYLINE>
<TEXT>
{text}
</TEXT>
<PUB>The Financial Times
</PUB>
<PAGE>
London Page 20
</PAGE>
</DOC>
"""

FBIS = """<DOC>
<DOCNO> {id} </DOCNO>
<HT>    "cr00000011094001" </HT>

<HEADER>
<H2>   March Reports </H2>
<DATE1>  1 March 1994 </DATE1>
Document Type:Foreign Media Note--FB PN 94-028
<H3> <TI>      {title} </TI></H3>
</HEADER>

<TEXT>
{text}
</TEXT>

</DOC>
"""

LATIMES = """<DOC>
<DOCNO> {id} </DOCNO>
<DOCID> 1 </DOCID>
<DATE>
<P>
January 1, 1989, Sunday, Home Edition
</P>
</DATE>
<HEADLINE>
<P>
{title}
</P>
</HEADLINE>
<TEXT>
<P>
{text}
</P>
</TEXT>
<TYPE>
<P>
Column
</P>
</TYPE>
</DOC>
"""

FR94 = """<DOC>
<DOCNO> {id} </DOCNO>
<PARENT> {id} </PARENT>
<TEXT>

<!-- PJG FTAG 4700 -->

<!-- PJG ITAG l=90 g=1 f=1 -->
Federal Register
<!-- PJG /ITAG -->

&blank;/&blank;Vol. 59, No. 2&blank;/&blank;Notices

<DOCTITLE>{title}</DOCTITLE>
{text}
</TEXT>
</DOC>
"""


def make_text(id: str) -> tuple[str, str]:
    """Title and text of a document: words that its id decides, some texts longer than a chunk."""
    rng = random.Random(id)
    words = ["government", "trade", "market", "crime", "telescope", "health", "river", "tunnel", "export", "drug"]
    words += ["ship", "energy", "law", "women", "science", "police", "computer", "school", "forest", "water", f"w{id}"]
    return " ".join(rng.choices(words, k=5)), " ".join(rng.choices(words, k=rng.choice([15, 60, 150])))


def write_disks(folder: Path, ids: Iterable[str]) -> None:
    """Write the documents into ``FILES`` files, those left over with a document that nobody asks for.

    A third of each source's files are plain, a third ``.gz``, a third as ``compress`` makes them (``.z``, ``.0z``).
    """
    by_file: dict[str, list[str]] = defaultdict(list)
    for id in ids:
        by_file[_file(id)].append(id)
    for i in range(FILES - len(by_file)):
        by_file[f"FT/FT9{i % 7}9/FT9{i % 7}9_{i}"] = [f"FT9{i % 7}9-{90000 + i}"]
    for i, (name, inside) in enumerate(sorted(by_file.items())):
        data = "".join(_markup(id) for id in inside).encode()
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        match i % 3:
            case 0:
                path.write_bytes(data)
            case 1:
                path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(data, mtime=0))
            case 2:
                suffix = "z" if name.startswith("FR94") else ".z"  # FR940104.0z
                path.with_name(path.name + suffix).write_bytes(compress(data))


def _file(id: str) -> str:
    """The file that holds a document, named as on the disks: the id decides it."""
    start, *_, number = id.split("-")
    if id.startswith("FBIS"):
        return f"FBIS/FB396{int(number) // 200:03d}"
    if id.startswith("FR94"):
        return f"FR94/{start[4:6]}/{start}.{int(number) % 3}"
    if id.startswith("FT"):
        return f"FT/{start}/{start}_{int(number) // 400}"
    return f"LATIMES/{start}"


def _markup(id: str) -> str:
    form = FBIS if id.startswith("FBIS") else FR94 if id.startswith("FR94") else FT if id.startswith("FT") else LATIMES
    title, text = make_text(id)
    return form.format(id=id, title=title, text=text)


def compress(data: bytes) -> bytes:
    """A file as Unix's ``compress`` writes it, without finding anything to shorten.

    Codes of 9 bits are single bytes; 256 clears the table before it grows to codes of 10. A block is 240 codes, which
    end at a byte.
    """
    return b"\x1f\x9d\x90" + b"".join(_blocks(data))


def _blocks(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), 239):
        codes = [*data[start : start + 239], 256]
        bits = sum(code << 9 * i for i, code in enumerate(codes))
        yield bits.to_bytes(-(-9 * len(codes) // 8), "little")
