"""Searches, the way back from them, comparisons, and what the page says of forgotten events and of
attributes.
"""

import json

import pytest

import foldlog
from foldlog.eventstore import CondensationAction
from tests.browser.states import READY, V, rest, sample
from tests.page_samples import hostile_history, usual_history
from tests.said import said

IN_SIGHT = """(selector) => Array.from(document.querySelectorAll(selector)).filter((each) => {
  const box = each.getBoundingClientRect();
  return box.height && box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth;
}).length"""


def count_in_sight(page, selector):
    """Return the number of elements that are wholly in sight."""
    return page.ask(f"({IN_SIGHT})({json.dumps(selector)})")


@pytest.mark.parametrize(
    "events", [sample, usual_history, hostile_history], ids=["sample", "usual", "hostile"]
)
def test_page_draws_the_sizes_of_the_store(page, report, events):
    events = list(events())
    with foldlog.open("memory:") as histories:
        histories.store.ingest("c", iter(events))
        sizes = histories["c"].lifetimes().sizes
        page.open(report(events))
        assert page.ask(f"Array.from({V}.history.total)") == list(sizes)
        masked = page.ask(f"Array.from({V}.history.masked)")
    assert all(0 <= away <= size for away, size in zip(masked, sizes, strict=True))


def test_a_block_says_what_became_of_its_event(usual):
    states = {}
    for event in usual.ask(f"{V}.transcript.blocks.map((one) => one.id)"):
        usual.ask(f"{V}.transcript.reveal({event})")
        usual.ask(f"{V}.draw()")
        state, words = usual.ask(
            f"(() => {{ const node = document.querySelector('[data-event=\"{event}\"]');"
            " return [node.dataset.state, node.querySelector('.state').textContent]; })()"
        )
        states.setdefault(state, set()).add(words)
    assert states["summarized"] == {"in S44"}
    assert states["forgotten"] == {"forgotten"}
    assert states["taken back"] == {"taken back"}
    assert states["sent"] == {""}
    usual.run(f"{V}.choose(-46)")
    assert usual.text(".knew h2") == "Summary S44"


def test_what_is_forgotten_without_a_summary_names_none(page, report):
    some = [said(str(number)) for number in range(6)]
    some.append(CondensationAction(forgotten_event_ids=(1, 2), summary="two", summary_offset=1))
    some.append(CondensationAction(forgotten_event_ids=(3, -8)))
    page.open(report(some))
    page.wait(READY)
    words = page.ask("Array.from(document.querySelectorAll('.state'), (one) => one.textContent)")
    assert words == ["", "forgotten", "forgotten", "forgotten", "", "", "forgotten", ""]


def test_an_event_that_comes_later_says_so(page, report):
    page.open(report([said(str(number)) for number in range(5)]) + "#v=2")
    page.wait(READY)
    words = page.ask("Array.from(document.querySelectorAll('.state'), (one) => one.textContent)")
    assert words == ["", "", "not yet", "not yet", "not yet"]


def test_hits_and_their_words_are_in_sight(sized, serve, stored):
    far = (
        "x = [" + "'a long line of output', " * 12 + "] the gauge is broken, " + "and so on, " * 20
    )
    stored("sample", iter(sample()))
    url = stored("far", [said(far)])
    address = serve(url)
    sized.open(address)
    sized.search("gauge broken")
    sized.wait("document.querySelector('.hit mark')")
    assert count_in_sight(sized, ".hit") >= 1
    assert count_in_sight(sized, ".hit:first-of-type mark") >= 1
    sized.open(f"{address.split('?')[0]}?id=sample")
    sized.wait(READY)
    sized.settle()  # the newest event is scrolled into view first
    sized.ask("scrollTo(0, 0)")
    sized.search("pytest")
    sized.wait(f"{V}.searched && document.querySelector('.hit-of mark')")
    sized.settle()
    hits = sized.ask(f"{V}.hits.length")
    assert count_in_sight(sized, ".hit-of") >= min(hits, 2)
    assert count_in_sight(sized, ".hit-of mark") >= min(hits, 2)
    sized.press("Escape")
    sized.settle()
    assert sized.ask("document.querySelector('.canvas').clientHeight") > 100


def test_title_and_attributes_are_shown(page, serve, stored):
    url = stored("c", [said("a first request", meta={"title": "its source's title"})])
    with foldlog.open(url) as histories:
        histories["c"].set_attributes(
            title="Tides & <b>gauges</b>", project="tides", tags=["one", "two"]
        )
    with foldlog.open(url) as histories:
        page.open(serve(url))
        page.wait(
            "document.querySelector('a.row .name')?.innerText.startsWith('Tides & <b>gauges</b>')"
        )
        rest(page)
        page.click("a.row")
        page.wait(f"{V}?.history && {READY}")
        assert page.text("h1") == "Tides & <b>gauges</b>"
        text = page.ask("document.querySelector('.knew dl[aria-label=Attributes]').innerText")
        assert text.split("\n")[:4] == ["title", "Tides & <b>gauges</b>", "project", "tides"]
        page.ask(f"{V}.choose(1)")
        page.wait(
            "document.querySelector('.stored pre')?.innerText.includes('\"project\": \"tides\"')"
        )
        histories["c"].set_attributes(title="another")
        page.wait(
            "document.querySelector('h1').innerText === 'another' &&"
            " document.title.startsWith('another')"
        )


def test_the_help_explains_the_chart_and_the_summaries(sized, report):
    sized.open(report(usual_history()))
    sized.press("?")
    text = sized.text("dialog")
    assert count_in_sight(sized, "dialog h2") == count_in_sight(sized, "dialog button") == 1
    for words in ("while a summary replaces the event", "the dashed line of the limit"):
        assert words in text


def test_chart_names_summaries_by_their_condensations(usual):
    usual.ask("""(() => {
              const { prototype } = CanvasRenderingContext2D, { fillText } = prototype;
              window.written = [];
              prototype.fillText = function (text, ...more) {
                window.written.push(text);
                fillText.call(this, text, ...more);
              };
            })()""")
    usual.run(f"{V}.choose(-46)")
    written = usual.ask("window.written")
    assert "S44" in written
    assert "-46" not in written
