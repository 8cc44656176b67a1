from __future__ import annotations

import pytest

from rerank.collections.lucene import tagged_text

NEWS = """<DOCNO> FT-1 </DOCNO>
<HEADLINE>
<P>Profits &amp; losses</P>
</HEADLINE>
<!-- a comment -->
<TEXT>
First line   here.

2 < 3 <F P=105>holds</F>
</TEXT>
"""


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (NEWS, "Profits & losses\nFirst line   here.\n2 < 3  holds"),
        ("<DOCNO>FT-2</DOCNO>", ""),
        ("<script type=x>var a;</SCRIPT >seen <![CDATA[a < b & c]]><style>p {}</style>", "seen a < b & c"),
        ("before <script> after", "before   after"),
    ],
)
def test_tagged_text_strips_markup(markup: str, text: str) -> None:
    assert tagged_text(markup) == text
