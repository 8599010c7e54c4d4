"""Searches, the way back from them, comparisons, and what the page says of forgotten events and of attributes."""

from __future__ import annotations

import json

import pytest

import foldlog
from foldlog.eventstore import Action, CondensationAction, Event, Message, Observation, Origin
from tests.browser.server import serving
from tests.browser.states import LINES, SIZES, THEMES, V, home, sample
from tests.page_samples import hostile_history, usual_history

GAPS = f"{V}.list.entries.filter((one) => one.pieces).map((one) => [one.kind, one.events + one.summaries, one.summary])"
IN_SIGHT = """(selector) => Array.from(document.querySelectorAll(selector)).filter((each) => {
  const box = each.getBoundingClientRect();
  return box.height && box.top >= 0 && box.bottom <= innerHeight && box.left >= 0 && box.right <= innerWidth;
}).length"""


def found(page, selector: str) -> int:
    """The number of elements that are wholly in sight."""
    return page.ask(f"({IN_SIGHT})({json.dumps(selector)})")


@pytest.mark.parametrize("events", [sample, usual_history, hostile_history], ids=["sample", "usual", "hostile"])
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
        assert page.ask(GAPS) == [["forgotten", 12, None], ["summarized", 12, -46], ["taken back", 2, None]]
        texts = page.ask("Array.from(document.querySelectorAll('.line.gap'), (each) => each.innerText)")
        assert [" ".join(text.split())[2:] for text in texts] == [
            "12 events forgotten by 1 condensation 522",
            "12 events summarized in −46 526",
            "2 events taken back by 1 retraction 25",
        ]
        names = ("--gone", "--gone-ground", "--turn")
        style = "getComputedStyle(document.querySelector('{}')).getPropertyValue('{}')"
        for kind in ("forgotten", "summarized", "taken-back"):
            drawn = [
                [page.ask(style.format(f"{one}.k-{kind}", name)) for name in names] for one in (".line", ".swatch")
            ]
            assert drawn[0] == drawn[1], kind
            assert all(drawn[0])
        page.click(".line.gap .way")
        page.wait("document.querySelector('.detail h2').innerText === 'Summary −46'")
        assert page.ask(f"{V}.opened.size") == 0


def test_a_strip_whose_summary_was_forgotten_names_none(page, report):
    some = [Message(source="user", content=str(number)) for number in range(6)]
    some.append(CondensationAction(forgotten_event_ids=(1, 2), summary="two", summary_offset=1))
    some.append(CondensationAction(forgotten_event_ids=(3, -8)))
    page.open(report(some))
    assert page.ask(GAPS) == [["forgotten", 4, None]]
    assert page.ask(f"{LINES}.some((text) => text.includes('3 events and 1 summary forgotten by 2 condensations'))")


def test_the_way_back_shows_the_same_search_and_order(page, serve, stored):
    stored("usual", usual_history())
    stored("other", [Message(source="user", content="a question about the build")])
    url = stored("last", [Message(source="user", content="nothing")])
    home(page, serve(url), 3)
    page.click(".sort", "Conversation")
    page.search("build & repair")
    page.wait("document.querySelector('.hit mark')")
    assert page.ask("location.hash") == "#words=build+%26+repair&sort=title"

    def is_as_before() -> None:
        page.wait("document.querySelector('.hit mark') && document.querySelectorAll('a.row').length === 1")
        assert page.ask(f"[{V}.box.value, {V}.sort, {V}.falling]") == ["build & repair", "title", False]
        assert page.ask(f"{V}.fleet.hidden")
        assert page.ask("document.querySelector('.hit b').innerText.trim()").startswith("Find out why")

    page.click(".hit")
    page.wait(f"{V}?.history && {V}.event === 1")
    page.ask("history.back()")
    is_as_before()
    page.send("Page.reload")
    page.wait("document.getElementById('app')?.dataset.ready !== undefined")
    is_as_before()
    page.ask("location.hash = ''")
    page.wait("document.querySelectorAll('a.row').length === 3")
    assert page.ask(f"[{V}.box.value, {V}.sort, {V}.falling]") == ["", "updated_at", True]
    page.ask("location.hash = '#sort=no-such-column&words=%3Cscript%3E'")
    page.wait(f"{V}.box.value === '<script>'")
    assert page.problems == []


def test_a_search_without_a_hit_is_a_note_and_no_heading(page, serve, stored):
    page.open(serve(stored("usual", usual_history())))
    page.search("nowhere")
    page.wait("document.querySelector('.hits p.soft')?.innerText === 'No event contains these words.'")
    assert page.ask("document.querySelector('.hits h2')") is None
    assert page.ask("getComputedStyle(document.querySelector('.hits p')).fontWeight") == "400"


@pytest.mark.parametrize("field", ["Compare with", "Go to version", "Search all events, or an id"])
def test_no_key_is_a_shortcut_where_something_is_written(page, serve, stored, field):
    box, keys = f"input[aria-label='{field}']", "a/-+?b"
    state = f"[{V}.version, {V}.from, {V}.event, {V}.chart.window.join(), {V}.help.open]"
    address = serve(stored("usual", usual_history()))
    page.open(f"{address}&id=usual#v=9")
    page.wait(f'document.querySelector("{box}")')
    before = page.ask(state)
    page.click(box)
    page.ask(f'document.querySelector("{box}").select()')
    for key in (*keys, "ArrowUp", "ArrowLeft", "PageUp", "Home", "End"):
        page.press(key)
        assert page.ask("document.activeElement.ariaLabel") == field, key
        assert page.ask(state) == before, key
    assert page.ask(f'document.querySelector("{box}").value') == keys


def test_another_run_is_named_by_the_beginning_of_its_id(page, serve, stored):
    stored("another", usual_history())
    page.open(f"{serve(stored('usual', usual_history()))}&id=usual")
    page.wait("document.querySelector(\"input[aria-label='Compare with']\")")
    page.click("input[aria-label='Compare with']")
    page.wait("document.querySelectorAll('#conversations option').length === 2")
    page.type("ano")
    page.press("Enter")
    page.wait("document.querySelector('.runs table')")
    assert "say the same." in page.text(".runs")
    assert "another" in page.text(".runs thead")
    told = page.text(".runs tbody")
    assert all(words in told for words in ("calls of terminal", "answer to the last request"))


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
    assert page.ask("Array.from(document.querySelectorAll('.line'), (each) => each.className)") == states


@pytest.mark.parametrize("size", SIZES)
def test_hits_are_seen_at_once_with_the_words_in_sight(chromium, stored, size):
    far = "x = [" + "'a long line of output', " * 12 + "] the gauge is broken, " + "and so on, " * 20
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
        heights = page.ask(
            f"""(async () => {{
              const heights = new Set();
              for (let version = 0; version <= {V}.history.version; version += 1) {{
                {V}.go(version); {V}.draw();
                heights.add(document.querySelector('.momentary').getBoundingClientRect().height);
              }}
              return Array.from(heights);
            }})()"""
        )
    assert len(heights) == 1, heights


def test_the_title_and_the_attributes_of_a_conversation_are_shown(page, serve, stored):
    url = stored("c", [Message(source="user", content="a first request", meta={"title": "its source's title"})])
    with foldlog.open(url) as histories:
        histories["c"].set_attributes(title="Tides & <b>gauges</b>", project="tides", tags=["one", "two"])
    with foldlog.open(url) as histories:
        page.open(serve(url))
        page.wait("document.querySelector('a.row .name')?.innerText.startsWith('Tides & <b>gauges</b>')")
        page.click("a.row")
        page.wait(f"{V}?.history && {LINES}.length")
        assert page.text("h1") == "Tides & <b>gauges</b>"
        told = page.ask("document.querySelector('.detail dl[aria-label=Attributes]').innerText")
        assert told.split("\n")[:4] == ["title", "Tides & <b>gauges</b>", "project", "tides"]
        page.ask(f"{V}.choose(1)")
        page.wait("document.querySelector('.body pre')?.innerText.includes('\"project\": \"tides\"')")
        assert page.text(".body h3").startswith("attributes")
        histories["c"].set_attributes(title="another")
        page.wait("document.querySelector('h1').innerText === 'another' && document.title.startsWith('another')")
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
        assert page.ask("Array.from(document.querySelectorAll('dialog .swatch')).every((each) => each.offsetWidth)")


def test_the_chart_writes_the_ids_of_summaries_with_a_minus_sign(page, report):
    page.open(report(usual_history()))
    page.ask(
        """(() => {
              const { prototype } = CanvasRenderingContext2D, { fillText } = prototype;
              window.written = [];
              prototype.fillText = function (text, ...more) {
                window.written.push(text);
                fillText.call(this, text, ...more);
              };
            })()"""
    )
    page.run(f"{V}.choose(-46)")
    written = page.ask("window.written")
    assert "−46" in written
    assert "-46" not in written


def test_another_run_stands_beside_the_open_one(page, serve, stored):
    def tried(command: str, cost: float) -> list[Event]:
        told = {"model": "m", "usage": {"prompt_tokens": 1_200, "completion_tokens": 7}, "cost": cost}
        call = Action(tool="run", arguments={"command": command}, call_id="a", meta=told)
        result = Observation(call_id="a", content="no", origin=Origin(format="swe-agent"))  # which marks no errors
        return [Message(source="user", content="Why does it fail?"), call, result]

    stored("monday", tried("pytest", 0.000025))
    url = stored("tuesday", tried("<b>ls</b>", 2.5))
    address = serve(url)
    page.open(address.replace("/?", "/?id=monday&"))
    page.wait("document.querySelector('.beside input')")
    page.ask("document.querySelector('.beside input').focus()")
    page.wait("document.querySelector('.beside datalist').childElementCount")
    proposed = page.ask("Array.from(document.querySelectorAll('.beside option'), (each) => each.value)")
    assert {"monday", "tuesday"} <= set(proposed)
    page.ask("document.querySelector('.beside input').value = 'tuesday'")
    page.click(".beside button")
    page.wait("document.querySelector('.runs table')")
    told = page.ask("Array.from(document.querySelectorAll('.runs tr'), (row) => row.innerText.split('\\t'))")
    assert told[0][1:] == ["monday", "tuesday"]
    rows = {name: values for name, *values in told[1:]}
    assert (rows["cost"], rows["prompt tokens"]) == (["$0.000025", "$2.50"], ["1,200", "1,200"])
    assert rows["errors"] == ["unknown", "unknown"]
    assert rows["first difference"] == ["1 action run: pytest", "1 action run: <b>ls</b>"]
    page.ask("document.querySelector('.beside input').value = 'wednesday'")
    page.click(".beside button")
    page.wait("document.querySelector('.runs .problem')?.innerText.includes('wednesday')")
    page.open(address)
    page.wait("document.querySelectorAll('.c-cost').length > 2 && !document.body.innerText.includes('…')")
    costs = page.ask("Array.from(document.querySelectorAll('a.row .c-cost'), (cell) => cell.innerText)")
    assert sorted("".join(cost.split()) for cost in costs) == ["cost$0.000025,", "cost$2.50,"]
