from __future__ import annotations

from pathlib import Path

import pytest

from rerank import Texts
from rerank.collections import Query, open_collection, read_queries
from rerank.collections.tagged import tagged_text
from rerank.errors import UserError

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
TOPICS = """<top>

<num> Number: 301
<title> International   Organized
Crime

<desc> Description:
Not the title.
</top>
<top><num>2</num><desc>Calls.<title>
<i>AT&amp;T</i> shares
</title></top>
<top><num>7<title>lift < drag, 2<3 <desc>x</top>
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


@pytest.fixture
def topics(tmp_path: Path) -> Path:
    (tmp_path / "docs.tsv").write_text("a\ttext\n")
    (tmp_path / "topics.robust.txt").write_text(TOPICS)
    return tmp_path


def test_topics_are_queries_of_their_titles_or_the_chosen_fields(topics: Path) -> None:
    path = topics / "topics.robust.txt"
    titles = [Query("301", "International Organized Crime"), Query("2", "AT&T shares"), Query("7", "lift < drag, 2<3")]
    assert list(read_queries(path)) == list(open_collection(f"files:{topics}").queries()) == titles
    both = [query.text for query in read_queries(f"files:{topics}", ["desc", "title"])]
    assert both[:2] == ["Not the title. International Organized Crime", "Calls. AT&T shares"]
    with pytest.raises(UserError, match=r"topics.robust.txt:1: this topic has no narr; .* its tags: desc, title"):
        list(read_queries(path, ["title", "narr"]))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<top>\n<num> Number: 1\n</top>", "x:1: this topic has no title"),
        ("<top>\n<title>x</top>", "x:1: this topic has no number"),
        ("<top>\n<num>1<title>a", "x: expected <top> and </top> in turns"),
        ("<top>\n<num>1<top></top></top>", "x: expected <top> and </top> in turns"),
        ("<top><num>1<title>a</top>\n</top>", "x: expected <top> and </top> in turns"),
        ("<top><num>1<title>a</top>\n<top><num>1<title>b</top>", "x:2: query id '1' again"),
        ("", "no queries in this file"),
        ("<topics><topic number='1'><query>a</query></topic></topics>", "no queries in this file"),
    ],
)
def test_topics_refuse_bad_files_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(UserError, match=message):
        list(read_queries(tmp_path / "x"))


def test_query_fields_are_for_topics_and_json(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"_id": "1", "text": "a", "more": ["b", 3]}\n')
    (tmp_path / "q.tsv").write_text("1\ta\n")
    assert list(read_queries(tmp_path / "q.jsonl", ["more", "text"])) == [Query("1", "b\n3\na")]
    with pytest.raises(UserError, match=r"q.jsonl:1: no desc among the keys _id, text, more"):
        list(read_queries(tmp_path / "q.jsonl", ["desc"]))
    with pytest.raises(UserError, match=r"q.tsv:1: no desc among the keys _id, text"):
        list(read_queries(tmp_path / "q.tsv", ["desc"]))
    with pytest.raises(UserError, match="queries have one text and no fields"):
        list(read_queries(Texts({"d": "a"}, {"q": "b"}), ["desc"]))
