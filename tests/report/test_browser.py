"""The page in a real browser: what it shows, that keys reach all of it, and that no text becomes code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rerank.collections import read_qrels
from rerank.evaluation.measures import evaluate
from rerank.retrieval.runs import read_run
from tests.report.browser import Page
from tests.report.conftest import NAME

pytestmark = pytest.mark.slow


@pytest.fixture
def opened(page: Page, report: Path) -> Page:
    page.size(1280)
    page.send("Emulation.setEmulatedMedia", media="", features=[])
    page.open(report)
    return page


def texts(page: Page, selector: str) -> list[str]:
    return page(f"[...document.querySelectorAll({selector!r})].map(element => element.textContent)")


def test_nothing_is_loaded_and_no_text_becomes_code(opened: Page, report: Path) -> None:
    assert opened.requests() == [report.resolve().as_uri()]
    for _ in range(8):  # every query's texts come by
        assert opened("typeof window.hacked") == "undefined"
        assert opened("document.querySelectorAll('img, b, main script:not(#data)').length") == 0
        opened("document.querySelector('#next').click()")
    assert "</script><script>window.hacked = 1</script>" in " ".join(
        text
        for i in range(8)
        for text in [
            opened(f"(query.selectedIndex = {i}, query.dispatchEvent(new Event('change')), asked.textContent)")
        ]
    )
    assert texts(opened, "#name-b") == [NAME]
    assert opened.complaints() == []


def test_page_blocks_foreign_scripts(opened: Page) -> None:
    opened("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hacked = 1'}))")
    assert opened("typeof window.hacked") == "undefined"
    assert opened.complaints(), "the page's policy says what it refused"


def test_heads_of_columns_sort_by_keyboard(opened: Page) -> None:
    selector = "#content section:nth-of-type(2) tbody tr td:nth-child(3)"
    before = texts(opened, selector)
    opened("document.querySelector('#content section:nth-of-type(2) thead th:nth-child(3) button').focus()")
    for order, reverse in (("descending", True), ("ascending", False)):
        opened.press("Enter")
        heads = opened(
            "[...document.querySelectorAll('#content section:nth-of-type(2) thead th')].map(th => th.ariaSort)"
        )
        assert heads == [None, None, order] + [None] * (len(heads) - 3)
        assert texts(opened, selector) == sorted(before, key=float, reverse=reverse)


def test_tab_reaches_the_skip_link_first_and_shows_it(opened: Page) -> None:
    opened.press("Tab")
    assert opened("document.activeElement.className") == "skip"
    assert opened("document.activeElement.getBoundingClientRect().left >= 0")
    assert opened("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    reached = set()
    for _ in range(60):
        opened.press("Tab")
        reached.add(opened("document.activeElement.id || document.activeElement.tagName"))
    assert {"BUTTON", "A", "run-a", "run-b", "measure", "bars", "query", "next", "unfold", "SUMMARY"} <= reached


def values(folder: Path, measure: str) -> dict[str, float]:
    """What b has more than a, by query."""
    qrels = read_qrels(folder / "lists" / "qrels.trec")
    a, b = (evaluate(read_run(folder / name), qrels, measure) for name in ("a.trec", "b.trec"))
    return dict(zip(a.queries, (b.values - a.values)[0].tolist(), strict=True))


def test_bars_show_every_query_from_gain_to_loss(opened: Page, folder: Path) -> None:
    for i, measure in enumerate(["nDCG@5", "AP"]):
        opened(f"(measure.value = {i}, measure.dispatchEvent(new Event('change')))")
        wanted = values(folder, measure)
        opened("bars.focus()")
        read = []
        for _ in wanted:
            opened.press("ArrowRight")
            query, difference = re.match(r"Query (\S+): .*?\((\S+)\)", texts(opened, "#readout")[0]).groups()  # type: ignore[union-attr]
            read.append((query, float(difference.replace("−", "-"))))
        assert {query: value for query, value in read} == pytest.approx(wanted, abs=2e-4)
        assert [value for _, value in read] == sorted((value for _, value in read), reverse=True)
        wins = sum(value > 1e-9 for value in wanted.values())
        assert f"is better in {wins} queries" in texts(opened, "#counts")[0]
        bars = opened("document.querySelector('#bars .gain').getAttribute('d').split('M').length - 1")
        assert bars == wins


def ranking(page: Page, side: str) -> list[dict[str, Any]]:
    return page(
        f"[...document.querySelectorAll('#list-{side} > li')].map(li => ({{id: li.querySelector('.id').textContent,"
        "badge: li.querySelector('.badge').textContent, moved: li.querySelector('.up, .down, .still').textContent,"
        "rank: li.querySelector('.rank').textContent}))"
    )


def test_rankings_side_by_side_are_those_of_the_runs(opened: Page, folder: Path) -> None:
    qrels = read_qrels(folder / "lists" / "qrels.trec")
    runs = {side: read_run(folder / f"{side}.trec") for side in "ab"}
    for _ in range(3):
        query = opened("query.selectedOptions[0].textContent").split()[1].rstrip(":")
        orders = {side: [document.id for document in run[query]] for side, run in runs.items()}
        for side, other in ("ab", "ba"):
            shown = ranking(opened, side)
            assert [found["id"] for found in shown] == orders[side][:10]
            assert [found["rank"] for found in shown] == [str(rank) for rank in range(1, 11)]
            for found in shown:
                grade = qrels[query].get(found["id"])
                wanted = "unjudged" if grade is None else "not relevant" if grade <= 0 else "relevant"
                assert found["badge"].startswith(wanted)
                if found["id"] not in orders[other]:
                    assert found["moved"] == ("gone" if side == "a" else "new")
                    continue
                here, there = (orders[one].index(found["id"]) + 1 for one in (side, other))
                better = here - there if side == "a" else there - here
                assert found["moved"][0] == ("▲" if better > 0 else "▼" if better < 0 else "=")
                assert found["moved"].endswith(str(there)) or here == there
        below = texts(opened, "#below li")
        tops = {*orders["a"][:10], *orders["b"][:10]}
        assert sorted(line.split()[0] for line in below) == sorted(
            id for id, grade in qrels[query].items() if grade > 0 and id not in tops
        )
        opened("document.querySelector('#next').click()")
