"""Searches, the way back from them, comparisons, and what the page says of forgotten events and of
attributes.
"""

from __future__ import annotations

import json

import pytest

import foldlog
from foldlog.eventstore import CondensationAction, Message
from tests.browser.server import serving
from tests.browser.states import READY, SIZES, V, sample
from tests.page_samples import hostile_history, usual_history

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


def test_a_block_says_what_became_of_its_event(page, report):
    page.open(report(usual_history()))
    states = {}
    for event in page.ask(f"{V}.transcript.blocks.map((one) => one.id)"):
        page.ask(f"{V}.transcript.reveal({event})")
        page.ask(f"{V}.draw()")
        state, words = page.ask(
            f"(() => {{ const node = document.querySelector('[data-event=\"{event}\"]');"
            " return [node.dataset.state, node.querySelector('.state').textContent]; })()"
        )
        states.setdefault(state, set()).add(words)
    assert states["summarized"] == {"in S44"}
    assert states["forgotten"] == {"forgotten"}
    assert states["taken back"] == {"taken back"}
    assert states["sent"] == {""}
    page.run(f"{V}.choose(-46)")
    assert page.text(".knew h2") == "Summary S44"


def test_what_is_forgotten_without_a_summary_names_none(page, report):
    some = [Message(source="user", content=str(number)) for number in range(6)]
    some.append(CondensationAction(forgotten_event_ids=(1, 2), summary="two", summary_offset=1))
    some.append(CondensationAction(forgotten_event_ids=(3, -8)))
    page.open(report(some))
    page.wait(READY)
    words = page.ask("Array.from(document.querySelectorAll('.state'), (one) => one.textContent)")
    assert words == ["", "forgotten", "forgotten", "forgotten", "", "", "forgotten", ""]


def test_an_event_that_comes_later_says_so(page, report):
    page.open(report([Message(source="user", content=str(number)) for number in range(5)]) + "#v=2")
    page.wait(READY)
    words = page.ask("Array.from(document.querySelectorAll('.state'), (one) => one.textContent)")
    assert words == ["", "", "not yet", "not yet", "not yet"]


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
        page.wait(READY)
        page.settle()  # the newest event is scrolled into view first
        page.ask("scrollTo(0, 0)")
        page.search("pytest")
        page.wait(f"{V}.searched && document.querySelector('.hit-of mark')")
        page.settle()
        hits = page.ask(f"{V}.hits.length")
        assert found(page, ".hit-of") >= min(hits, 2)
        assert found(page, ".hit-of mark") >= min(hits, 2)
        page.press("Escape")
        page.settle()
        assert page.ask("document.querySelector('.canvas').clientHeight") > 100
        assert page.problems == []


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
        page.wait(f"{V}?.history && {READY}")
        assert page.text("h1") == "Tides & <b>gauges</b>"
        told = page.ask("document.querySelector('.knew dl[aria-label=Attributes]').innerText")
        assert told.split("\n")[:4] == ["title", "Tides & <b>gauges</b>", "project", "tides"]
        page.ask(f"{V}.choose(1)")
        page.wait(
            "document.querySelector('.stored pre')?.innerText.includes('\"project\": \"tides\"')"
        )
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
        for words in ("where a summary took its place", "the dashed line of the limit"):
            assert words in told


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
