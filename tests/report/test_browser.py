"""The page in a real browser: what it shows, that keys reach all of it, and that no text becomes code."""

from __future__ import annotations

import base64
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


def test_a_script_that_got_in_would_not_run(opened: Page) -> None:
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


def test_pointing_says_the_query_and_clicking_opens_it(opened: Page, folder: Path) -> None:
    opened("bars.scrollIntoView({block: 'center', behavior: 'instant'})")
    box = opened("(({left, right, top, height}) => ({left, right, top, height}))(bars.getBoundingClientRect())")
    x, y = box["right"] - 10, box["top"] + box["height"] / 2
    opened.mouse("mouseMoved", x, y)
    wanted = values(folder, "nDCG@5")
    worst = min(wanted, key=lambda query: wanted[query])
    assert texts(opened, "#readout")[0].startswith(f"Query {worst}:")
    opened.mouse("mousePressed", x, y)
    opened.mouse("mouseReleased", x, y)
    assert opened("query.selectedOptions[0].textContent").split()[1].rstrip(":") == worst
    assert opened("next.disabled") and not opened("previous.disabled")


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


def test_whole_texts_unfold_and_words_of_the_query_are_marked(opened: Page) -> None:
    assert opened("document.querySelectorAll('.document details[open]').length") == 0
    opened("unfold.focus()")
    opened.press("Enter")
    assert opened("document.querySelectorAll('.document details:not([open])').length") == 0
    assert opened("unfold.ariaPressed") == "true"
    asked = set(re.findall(r"\w+", texts(opened, "#asked")[0].lower()))
    marked = {word.lower() for word in texts(opened, ".pair mark")}
    assert marked <= asked


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_no_width_scrolls_sideways(opened: Page, width: int) -> None:
    opened.size(width)
    assert opened("document.documentElement.scrollWidth") <= opened("innerWidth")
    side_by_side = opened("document.querySelector('#list-b').getBoundingClientRect().left") > width / 3
    assert side_by_side == (width > 704)
    assert opened("Math.abs(bars.viewBox.baseVal.width - bars.clientWidth)") < 2, "the plot is drawn for its width"


CONTRAST = """
(() => {
  const part = (x) => (x /= 255) <= 0.03928 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4;
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const colour = (text) => text.match(/[\\d.]+/g).map(Number);
  const worst = {ratio: 21};
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest("svg, script, style, noscript, :disabled, option") || !element.checkVisibility()) continue;
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    let behind = element;
    while (behind && (colour(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) behind = behind.parentElement;
    const [a, b] = [light(colour(getComputedStyle(element).color)),
      light(behind ? colour(getComputedStyle(behind).backgroundColor) : [255, 255, 255])].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < worst.ratio) Object.assign(worst, {ratio, text: element.textContent, tag: element.className});
  }
  worst.page = light(colour(getComputedStyle(document.body).backgroundColor));
  return worst;
})()
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast_in_both_schemes(opened: Page, scheme: str) -> None:
    opened.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    worst = opened(CONTRAST)
    assert worst["ratio"] >= 4.5, worst  # WCAG 2, level AA
    assert (worst["page"] > 0.5) == (scheme == "light")


def test_print_leaves_out_what_paper_cannot_do(opened: Page) -> None:
    opened.send(
        "Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}]
    )
    for selector in ("nav", "#next", "#unfold"):
        assert opened(f"getComputedStyle(document.querySelector('{selector}')).display") == "none"
    assert opened("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    pdf = base64.b64decode(opened.send("Page.printToPDF")["data"])
    assert pdf.startswith(b"%PDF")
