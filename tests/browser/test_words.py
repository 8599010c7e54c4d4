"""What the page says in words and numbers: units, dates, ids, searches, and what an address or a
server lacks.
"""

import json
import re
import shlex
from datetime import UTC, datetime, timedelta

import pytest

from foldlog.eventstore import Action, CondensationAction, Origin, open_store
from tests.browser.states import BLOCKS, V, find, sample
from tests.golden.rows import rows
from tests.page_samples import usual_history
from tests.said import replied, said
from tests.web_client import asking_store

WRITTEN = """(() => {
  const { prototype } = CanvasRenderingContext2D, { clearRect, fillText, fillRect } = prototype;
  const drawn = new Map();  // of each canvas what was drawn since it was cleared: the page may draw it again
  const of = (canvas) => drawn.get(canvas) ?? drawn.set(canvas, { written: [], filled: [] }).get(canvas);
  prototype.clearRect = function (...box) { drawn.delete(this.canvas); clearRect.apply(this, box); };
  prototype.fillText = function (...said) { of(this.canvas).written.push(said); fillText.apply(this, said); };
  prototype.fillRect = function (...box) { of(this.canvas).filled.push(box); fillRect.apply(this, box); };
  for (const name of ["written", "filled"]) {
    Object.defineProperty(window, name, { get: () => Array.from(drawn.values()).flatMap((each) => each[name]) });
  }
})()"""
CUT = """(selector) => Array.from(document.querySelectorAll(selector)).filter((each) =>
  each.getClientRects().length && getComputedStyle(each).overflow !== 'visible'
  && (each.scrollWidth > each.clientWidth + 1 || each.scrollHeight > each.clientHeight + 1)
).map((each) => each.className + ': ' + each.innerText)"""


def cut(page, selector):
    """Return the texts of the elements that do not fit into them."""
    return page.ask(f"({CUT})({json.dumps(selector)})")


def messages(number):
    return [said("some words") for _ in range(number)]


def test_commas_in_ids_and_versions(page, report):
    some = messages(1_300)
    some.append(
        CondensationAction(
            forgotten_events_start_id=10,
            forgotten_events_end_id=1_250,
            summary="most of them",
            summary_offset=1,
        )
    )
    page.open(report(some))
    page.ask(WRITTEN)
    page.run(f"{V}.changed('size')")
    texts = page.ask("window.written.map(([text]) => text)") + page.ask("[document.body.innerText]")
    text = " ".join(texts)
    assert "1,250" in text
    others = re.sub(r"\d{4}-\d\d-\d\d|--at \d+", "", text)
    assert not re.search(r"\b\d{4,}\b", others), text
    page.ask(f"{V}.goToEvent(1_220)")
    page.run(f"{V}.go(1_302)")
    assert "in S1,300" in page.text(".block-of.chosen .state")
    for words in ("1,220", "1220", "#1220"):
        find(page, words)
        assert page.ask(f"{V}.hits[0].id") == 1220
    page.ask(f"{V}.choose(1220)")
    page.wait("document.querySelector('.knew h2')?.innerText === 'User 1,220'")
    assert "condensation 1,300 forgot it at version 1,301" in page.text(".why")


@pytest.mark.parametrize("days", [0, 3])
def test_the_time_axis_names_the_days(page, report, days):
    start = datetime(2026, 2, 17, 9, 14, tzinfo=UTC)
    step = timedelta(days=days) / 60 or timedelta(minutes=1)
    some = [said(str(n), timestamp=start + n * step) for n in range(60)]
    page.open(report(some))
    page.ask(WRITTEN)
    page.run(f"{V}.changed('size')")
    times = [text for text, *_ in page.ask("window.written") if re.search(r"\d\d:\d\d$", text)]
    assert times[0] == "17 Feb 09:14"
    named = [time.split(" ")[0] for time in times if " " in time]
    assert named == (["17", "18", "19", "20"] if days else ["17"])


def test_chosen_row_covers_whole_labels(tidewatch):
    labels = tidewatch.ask(f"{V}.chart.rowSpots")
    tidewatch.ask(WRITTEN)
    tidewatch.run(f"{V}.choose(52)")
    (tag,) = [y for text, _, y in tidewatch.ask("window.written") if text == "52"]
    touched = [label for label in labels if abs(label - tag) < 15]
    boxes = tidewatch.ask("window.filled")
    assert len(touched) == 1
    for label in touched:
        assert any(
            x == 0 and y <= label - 7 and y + height >= label + 7 for x, y, _, height in boxes
        )


def test_work_of_sub_agent_is_no_bookkeeping(page, report):
    first = said("said", origin=Origin(format="claude-code", id="t"))
    aside = replied("aside", shown=False, origin=Origin(format="claude-code", id="u"))
    page.open(report([first, aside]))
    why = "it was not shown to the agent in the claude-code history from which it was imported"
    assert "never shown\n1 event" in page.text(".knew")
    page.run(f"{V}.choose(1)")
    assert page.text(".knew h2") == "Agent 1"
    assert why in page.text(".why")


def test_an_event_without_text_says_so(page, report):
    page.open(report([*messages(1), replied("")]))
    page.wait(f"{BLOCKS}.some((text) => text.includes('no text'))")


def test_pending_action_at_the_end_waits_for_nothing(page, report):
    some = [*messages(1), Action(tool="t", call_id="1"), *messages(1)]
    page.open(report(some) + "#v=2")
    assert "pending\n1 event" in page.text(".knew")
    page.run(f"{V}.choose(1, 2)")
    assert "it waits for its observation" in page.text(".why")
    page.run(f"{V}.choose(1, 3)")
    assert "no observation came for it, or for a parallel call, up to the last event" in page.text(
        ".why"
    )


@pytest.mark.parametrize("address, notice", rows("page.json", "addresses that name nothing"))
def test_an_address_that_names_nothing_is_told(page, report, address, notice):
    page.open(report(messages(3)) + address)
    shown = 1 if "v=1" in address else 3
    assert notice in page.text(".notice")
    assert f"Version {shown} is shown." in page.text(".notice")
    assert page.ask(f"[{V}.version, {V}.from, {V}.event]") == [shown, None, None]
    page.press("ArrowLeft")
    assert page.text(".notice") == ""


def test_a_page_that_cannot_be_shown_leads_on(page, serve, stored):
    address = serve(stored("usual", usual_history()))
    home = address.split("?")[0]
    page.open(address)
    page.expected = ["404", "ERR_BLOCKED_BY_CLIENT"]
    page.open(f"{home}?id=none")
    assert page.text("h1") == "This page cannot be shown"
    assert "This store has no conversation 'none'" in page.text(".failure")
    assert "does not answer" not in page.text(".failure")
    assert page.text(".failure button") == "Try again"
    page.click(".failure a", "All runs")
    page.wait("document.querySelector('a.row')")
    page.send("Network.setBlockedURLs", urls=["*/api/history*"])
    page.open(f"{home}?id=usual")
    assert "The server does not answer. Start it again with foldlog serve" in " ".join(
        page.text(".failure").split()
    )


def test_empty_store_names_the_import_command(page, serve, tmp_path):
    url = f"sqlite:///{tmp_path}/empty.db"
    open_store(url).close()
    page.open(serve(url))
    assert page.text(".rows pre") == f"foldlog import PATH --db {url}"


def test_words_in_any_order_and_in_quotes(page, serve, report, stored):
    some = [said(text) for text in ("one two", "two and one", "onetwo", "one  two")]
    expected = {"two one": [0, 1, 2, 3], '"one two"': [0], '"two and" one': [1]}
    url = stored("c", some)
    address = serve(url)
    for opened in (report(some), f"{address}&id=c"):
        page.open(opened)
        page.wait(f"{V}?.history")
        for words, ids in expected.items():
            find(page, words)
            assert page.ask(f"{V}.hits.map((one) => one.id)") == ids, words
        find(page, "nowhere")
        assert "all of the words: in any order" in page.text(".knew")
    page.open(address)
    page.search("two one")
    page.wait("document.querySelector('.hit')")
    assert page.text(".hits h2").endswith("with all of the words")


def test_each_word_that_was_found_is_marked(page, report):
    page.open(report([said("first alpha, then beta")]))
    find(page, "alpha beta")
    page.wait("document.querySelectorAll('.block-of mark').length === 2")
    marks = page.ask(
        "Array.from(document.querySelectorAll('.block-of mark'), (one) => one.innerText)"
    )
    assert marks == ["alpha", "beta"]


def test_an_id_with_a_quote_is_one_word_of_the_command(page, report):
    name = "it's; rm 1"
    page.open(report([said("hi")], name))
    words = shlex.split(page.text(".knew pre.code"))
    assert words == ["foldlog", "view", name, "--at", "1"]


def test_no_word_that_was_found_is_cut(sized, report):
    far = (
        "a long beginning " * 20
        + "the needle "
        + "and much between " * 20
        + "a haystack "
        + "and an end " * 30
    )
    some = [*sample(), said(far)]
    inside = """Array.from(document.querySelectorAll('.hit-of')).map((line) => {
      const box = line.querySelector('bdi').getBoundingClientRect();
      return Array.from(line.querySelectorAll('mark'), (mark) => [mark.innerText, ...Array.from(mark.getClientRects(),
        (one) => one.left >= box.left && one.right <= box.right + 1 && one.bottom <= box.bottom + 1)]);
    })"""
    sized.open(report(some))
    for words, first in (("needle haystack", ["needle", "haystack"]), ("pytest fails", None)):
        find(sized, words)
        marks = sized.ask(inside)
        assert len(marks) >= 1
        if first:
            assert [mark for mark, *_ in marks[-1]] == first
        for line in marks:
            assert {mark.lower() for mark, *_ in line[:2]} <= set(words.split())
            assert all(all(insides) for _, *insides in line[:2]), line


def test_report_and_server_show_the_same_excerpts(page, report):
    events = [*sample(), said("the needle " * 30 + "\u0130stanbul")]
    events.append(said("\u0130" * 300 + " a thimble " + "and an end " * 30 + "of \u0130zmir"))
    with open_store("memory:") as store, asking_store(store) as client:
        store.ingest("c", iter(events))
        page.open(report(events))
        for words in (
            "pytest fails",
            "needle",
            '"the flaky" test',
            "a e i",
            "\u0130",
            "thimble \u0130zmir",
            "x" * 20,
        ):
            hits = client.json("find", {"id": "c", "words": words})["hits"]
            expected = [[hit["event"], hit["snippet"]] for hit in hits]
            find(page, words)
            assert (
                page.ask(f"{V}.hits.map((one) => [{V}.history.came(one.id), one.snippet])")
                == expected
            ), words
