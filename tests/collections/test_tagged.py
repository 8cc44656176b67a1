from __future__ import annotations

import gzip
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from rerank.collections import Document, Query, open_collection, read_queries
from rerank.errors import UserError

NEWS = """<DOC>
<DOCNO> FT-1 </DOCNO>
<HEADLINE>
<P>Profits &amp; losses</P>
</HEADLINE>
<!-- a comment -->
<TEXT>
First line   here.

2 < 3 <F P=105>holds</F>
</TEXT>
</DOC>
<doc><docno>FT-2</docno></doc>
"""
TOPICS = """<top>

<num> Number: 301
<title> International   Organized
Crime

<desc> Description:
Not the title.
</top>
<top><num>2</num><title>
<i>AT&amp;T</i> shares
</title></top>
"""


@pytest.fixture
def trec(tmp_path: Path) -> Path:
    (tmp_path / "b").mkdir()
    (tmp_path / "a.trec").write_text(NEWS)
    (tmp_path / "b" / "c.gz").write_bytes(gzip.compress(b"<DOC>\r\n<DOCNO>1</DOCNO>\r\ntext\r\n</DOC>\r\n"))
    (tmp_path / "topics.robust.txt").write_text(TOPICS)
    (tmp_path / "qrels.robust.txt").write_text("301 0 FT-1 1\n2 0 FT-2 -2\n")
    return tmp_path


def test_documents_queries_and_judgments(trec: Path) -> None:
    collection = open_collection(f"trec:{trec}")
    assert list(collection.documents()) == [
        Document("FT-1", "Profits & losses\nFirst line   here.\n2 < 3  holds"),
        Document("FT-2", ""),
        Document("1", "text"),
    ]
    assert list(collection.queries()) == [Query("301", "International Organized Crime"), Query("2", "AT&T shares")]
    assert collection.qrels() == {"301": {"FT-1": 1}, "2": {"FT-2": -2}}


def test_a_sign_that_opens_no_tag_belongs_to_the_title(trec: Path) -> None:
    (trec / "topics.robust.txt").write_text("<top><num>7<title>lift < drag, 2<3 <desc>x</top>")
    assert list(open_collection(f"trec:{trec}").queries()) == [Query("7", "lift < drag, 2<3")]


def test_fields_are_tags_in_the_order_chosen(trec: Path) -> None:
    documents = open_collection(f"trec:{trec}", ["Text", "headline"]).documents()
    assert next(documents).text == "First line   here.\n2 < 3  holds\nProfits & losses"
    with pytest.raises(UserError, match=r"no document has a field 'headlines' \(did you mean 'headline'\?\)"):
        list(open_collection(f"trec:{trec}", ["HEADLINES"]).documents())


def test_the_fingerprint_follows_fields_and_no_topics(trec: Path) -> None:
    plain, text = (open_collection(f"trec:{trec}", fields).fingerprint() for fields in (None, ["text"]))
    (trec / "topics.robust.txt").write_text(TOPICS.replace("301", "302"))
    assert open_collection(f"trec:{trec}").fingerprint() == plain != text


def test_files_without_documents_are_passed_over_aloud(trec: Path, caplog: pytest.LogCaptureFixture) -> None:
    (trec / "README").write_text("About the data.")
    with caplog.at_level(logging.WARNING, "rerank"):
        assert len(list(open_collection(f"trec:{trec}").documents())) == 3
    assert "README: skipped" in caplog.text


def documents(folder: Path) -> Iterable[Document]:
    return open_collection(f"trec:{folder}").documents()


def topics(folder: Path) -> Iterable[Query]:
    return read_queries(folder / "x")


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (documents, "<DOC>\n<DOCNO>1</DOCNO>\n<DOC>\n", "x:1: <DOC> is not closed before the next"),
        (documents, "\n<DOC>\n<DOCNO>1</DOCNO>\n", "x:2: <DOC> is not closed by the end of the file"),
        (documents, "<DOC><DOCNO>1</DOCNO></DOC>\n</DOC>", "x:2: </DOC> closes nothing"),
        (documents, "\n\n<DOC>\n<ID>1</ID></DOC>", "x:3: this <DOC> has no id; expected <DOCNO>"),
        (documents, "<DOC><DOCNO>1 2</DOCNO></DOC>", "x:1: the id '1 2' holds white space"),
        (documents, "<DOC><DOCNO>1</DOCNO></DOC>\n" * 2, "x:2: document id '1' again, first at .*x:1"),
        (documents, "plain text", "no <DOC> in any of the 1 files"),
        (topics, "<top>\n<num> Number: 1\n</top>", "x:1: this topic has no title"),
        (topics, "<top>\n<title>x</top>", "x:1: this topic has no number"),
        (topics, "<top>\n<num>1<title>a", "x:1: <top> is not closed"),
        (topics, "<top><num>1<title>a</top>\n<top><num>1<title>b</top>", "x:2: query id '1' again"),
        (topics, "", "no queries in this file"),
        (topics, "<topics><topic number='1'><query>a</query></topic></topics>", "no queries in this file"),
        (topics, "<DOC></DOC>", "no queries in this file"),
    ],
)
def test_bad_files_are_named_by_line(
    tmp_path: Path, read: Callable[[Path], Iterable[object]], text: str, message: str
) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(UserError, match=message):
        list(read(tmp_path))


def test_fields_of_topics_are_chosen(trec: Path) -> None:
    (trec / "topics.robust.txt").write_text(TOPICS.replace("<title>\n<i>", "<desc>Calls.<title>\n<i>"))
    found = list(read_queries(f"trec:{trec}", ["desc", "title"]))
    assert found == [Query("301", "Not the title. International Organized Crime"), Query("2", "Calls. AT&T shares")]
    assert [query.text for query in read_queries(trec / "topics.robust.txt", ["DESC"])] == ["Not the title.", "Calls."]
    with pytest.raises(UserError, match=r"topics.robust.txt:1: this topic has no narr; .* its tags: desc, title"):
        list(read_queries(open_collection(f"trec:{trec}"), ["title", "narr"]))


def test_fields_of_other_queries(tmp_path: Path) -> None:
    (tmp_path / "q.jsonl").write_text('{"_id": "1", "text": "a", "more": ["b", 3]}\n')
    (tmp_path / "q.tsv").write_text("1\ta\n")
    assert list(read_queries(tmp_path / "q.jsonl", ["more", "text"])) == [Query("1", "b\n3\na")]
    with pytest.raises(UserError, match=r"q.jsonl:1: no desc among the keys _id, text, more"):
        list(read_queries(tmp_path / "q.jsonl", ["desc"]))
    for source in (tmp_path / "q.tsv", "demo"):
        with pytest.raises(UserError, match="queries have one text and no fields"):
            list(read_queries(source, ["desc"]))


def test_what_cannot_be_read_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no files of documents"):
        open_collection(f"trec:{tmp_path}")
    (tmp_path / "ft911.Z").touch()
    with pytest.raises(UserError, match=r"ft911\.Z: compressed by `compress`"):
        open_collection(f"trec:{tmp_path}")


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<script type=x>var hidden;</SCRIPT >seen <![CDATA[a < b & c]]><style>p {}</style>", "seen a < b & c"),
        ("before <script> after", "before   after"),  # one without an end hides nothing
    ],
)
def test_programs_are_no_text_and_cdata_is(tmp_path: Path, page: str, text: str) -> None:
    (tmp_path / "docs").write_text(f"<DOC><DOCNO>1</DOCNO>{page}</DOC>")
    assert list(open_collection(f"trec:{tmp_path}").documents()) == [Document("1", text)]


@pytest.mark.parametrize("tag", ["DOCNO", "docid", "DOCHDR", "script"])
def test_many_tags_without_an_end_take_no_time(tmp_path: Path, tag: str) -> None:
    (tmp_path / "docs").write_text(f"<DOC><DOCNO>1</DOCNO>{f'<{tag}>' * 100_000}</DOC>")
    documents = open_collection(f"trec:{tmp_path}").documents()
    if tag == "script":
        assert next(documents).id == "1"
    else:
        with pytest.raises(UserError, match=f"docs:1: <{tag.upper()}> is not closed"):
            next(documents)
