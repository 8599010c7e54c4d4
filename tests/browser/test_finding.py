"""Searches, the way back from them, comparisons, and what the page says of forgotten events and of
attributes.
"""

from __future__ import annotations

import json

import pytest

import foldlog
from foldlog.eventstore import CondensationAction, Message
from tests.browser.server import serving
from tests.browser.states import LINES, SIZES, THEMES, V, sample
from tests.page_samples import hostile_history, usual_history

GAPS = (
    f"{V}.list.entries.filter((one) => one.pieces).map((one) => [one.kind, one.events +"
    " one.summaries, one.summary])"
)
IN_SIGHT = """(selector) => Array.from(document.querySelectorAll(selector)).filter((each) => {
  const box = each.getBoundingClientRect();
  return box.height && box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth;
}).length"""


def found(page, selector: str) -> int:
    """The number of elements that are wholly in sight."""
    return page.ask(f"({IN_SIGHT})({json.dumps(selector)})")


@pytest.mark.parametrize(
    "events", [sample, usual_history, hostile_history], ids=["sample", "usual", "hostile"]
)
def test_the_page_draws_the_sizes_that_the_store_counts(page, report, events):
    events = list(events())
    with foldlog.open("memory:") as histories:
        histories.store.ingest("c", iter(events))
        sizes = histories["c"].lifetimes().sizes
        page.open(report(events))
        assert page.ask(f"Array.from({V}.history.total)") == list(sizes)
        masked = page.ask(f"Array.from({V}.history.masked)")
    assert all(0 <= away <= size for away, size in zip(masked, sizes, strict=True))


@pytest.mark.parametrize("theme", THEMES)
def test_a_strip_of_departed_events_says_what_became_of_them(chromium, report, theme):
    with chromium.new_page(theme=theme) as page:
        page.open(report(usual_history()))
        assert page.ask(GAPS) == [
            ["forgotten", 12, None],
            ["summarized", 12, -46],
            ["taken back", 2, None],
        ]
        texts = page.ask(
            "Array.from(document.querySelectorAll('.line.gap'), (each) => each.innerText)"
        )
        assert [" ".join(text.split())[2:] for text in texts] == [
            "12 events forgotten by 1 condensation 522",
            "12 events summarized in S44 526",
            "2 events taken back by 1 retraction 25",
        ]
        names = ("--gone", "--gone-ground", "--turn")
        style = "getComputedStyle(document.querySelector('{}')).getPropertyValue('{}')"
        for kind in ("forgotten", "summarized", "taken-back"):
            drawn = [
                [page.ask(style.format(f"{one}.k-{kind}", name)) for name in names]
                for one in (".line", ".swatch")
            ]
            assert drawn[0] == drawn[1], kind
            assert all(drawn[0])
        page.click(".line.gap .way")
        page.wait("document.querySelector('.detail h2').innerText === 'Summary S44'")
        assert page.ask(f"{V}.opened.size") == 0


def test_a_strip_whose_summary_was_forgotten_names_none(page, report):
    some = [Message(source="user", content=str(number)) for number in range(6)]
    some.append(CondensationAction(forgotten_event_ids=(1, 2), summary="two", summary_offset=1))
    some.append(CondensationAction(forgotten_event_ids=(3, -8)))
    page.open(report(some))
    assert page.ask(GAPS) == [["forgotten", 4, None]]
    assert page.ask(
        f"{LINES}.some((text) => text.includes('3 events and 1 summary forgotten by 2"
        " condensations'))"
    )


def test_a_comparison_goes_from_the_earlier_to_the_later_version(page, report):
    page.open(report(sample()) + "#v=281&from=240")
    told = page.text(".comparing")
    entries = page.ask(f"{V}.list.entries.map((one) => [one.mark, one.id])")
    states = page.ask("Array.from(document.querySelectorAll('.line'), (each) => each.className)")
    assert "240 → 281" in told
    page.open(report(sample()) + "#v=240&from=281")
    assert "Version 240" in page.text(".momentary h2")
    assert page.text(".comparing") == told
    assert page.ask(f"{V}.list.entries.map((one) => [one.mark, one.id])") == entries
    assert (
        page.ask("Array.from(document.querySelectorAll('.line'), (each) => each.className)")
        == states
    )


@pytest.mark.parametrize("size", SIZES)
def test_hits_are_seen_at_once_with_the_words_in_sight(chromium, stored, size):
    far = (
        "x = [" + "'a long line of output', " * 12 + "] the gauge is broken, " + "and so on, " * 20
    )
    stored("sample", iter(sample()))
    url = stored("far", [Message(source="user", content=far)])
    with serving(url) as address, chromium.new_page(*SIZES[size]) as page:
        page.open(address)
        page.search("gauge broken")
        page.wait("document.querySelector('.hit mark')")
        assert found(page, ".hit") >= 1
        assert found(page, ".hit:first-of-type mark") >= 1
        page.open(f"{address.split('?')[0]}?id=sample")
        page.wait(f"{LINES}.length")
        page.ask("scrollTo(0, 0)")
        page.search("pytest")
        page.wait(f"{V}.searched && document.querySelector('.line.found mark')")
        page.settle()
        hits = page.ask(f"{V}.hits.length")
        assert found(page, ".line.found") >= min(hits, 3)
        assert found(page, ".line.found mark") >= min(hits, 3)
        assert page.ask("getComputedStyle(document.querySelector('.line.found')).height") == (
            "46px" if size == "wide" else "58px"
        )
        page.press("Escape")
        page.settle()
        assert page.ask("document.querySelector('.canvas').clientHeight") > 100
        assert page.problems == []


@pytest.mark.parametrize("width", [1280, 1440])
def test_the_panel_of_a_version_keeps_its_height(chromium, report, width):
    with chromium.new_page(width) as page:
        page.open(report(sample()))
        heights = page.ask(f"""(async () => {{
              const heights = new Set();
              for (let version = 0; version <= {V}.history.version; version += 1) {{
                {V}.go(version); {V}.draw();
                heights.add(document.querySelector('.momentary').getBoundingClientRect().height);
              }}
              return Array.from(heights);
            }})()""")
    assert len(heights) == 1, heights


def test_the_title_and_the_attributes_of_a_conversation_are_shown(page, serve, stored):
    url = stored(
        "c",
        [Message(source="user", content="a first request", meta={"title": "its source's title"})],
    )
    with foldlog.open(url) as histories:
        histories["c"].set_attributes(
            title="Tides & <b>gauges</b>", project="tides", tags=["one", "two"]
        )
    with foldlog.open(url) as histories:
        page.open(serve(url))
        page.wait(
            "document.querySelector('a.row .name')?.innerText.startsWith('Tides & <b>gauges</b>')"
        )
        page.click("a.row")
        page.wait(f"{V}?.history && {LINES}.length")
        assert page.text("h1") == "Tides & <b>gauges</b>"
        told = page.ask("document.querySelector('.detail dl[aria-label=Attributes]').innerText")
        assert told.split("\n")[:4] == ["title", "Tides & <b>gauges</b>", "project", "tides"]
        page.ask(f"{V}.choose(1)")
        page.wait(
            "document.querySelector('.body pre')?.innerText.includes('\"project\": \"tides\"')"
        )
        assert page.text(".body h3").startswith("attributes")
        histories["c"].set_attributes(title="another")
        page.wait(
            "document.querySelector('h1').innerText === 'another' &&"
            " document.title.startsWith('another')"
        )
        assert page.problems == []


@pytest.mark.parametrize("size", SIZES)
def test_the_help_explains_the_chart_and_the_summaries(chromium, report, size):
    with chromium.new_page(*SIZES[size]) as page:
        page.open(report(usual_history()))
        page.press("?")
        told = page.text("dialog")
        assert found(page, "dialog h2") == found(page, "dialog button") == 1
        for words in (
            "a summary, from its condensation on",
            "a condensation, or in red a retraction",
            "the limit of tokens",
        ):
            assert words in told
        assert page.ask(
            "Array.from(document.querySelectorAll('dialog .swatch')).every((each) =>"
            " each.offsetWidth)"
        )


def test_the_chart_writes_the_ids_of_summaries_as_those_of_their_condensations(page, report):
    page.open(report(usual_history()))
    page.ask("""(() => {
              const { prototype } = CanvasRenderingContext2D, { fillText } = prototype;
              window.written = [];
              prototype.fillText = function (text, ...more) {
                window.written.push(text);
                fillText.call(this, text, ...more);
              };
            })()""")
    page.run(f"{V}.choose(-46)")
    written = page.ask("window.written")
    assert "S44" in written
    assert "-46" not in written
