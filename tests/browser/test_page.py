"""The page in a browser: it shows what the store says, runs nothing that a history says, and looks
as it should.
"""

import json
from collections import Counter
from itertools import chain, islice
from pathlib import Path

import pytest

import foldlog
from benchmarks import workload
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    Observation,
    Retraction,
    open_store,
)
from foldlog.eventstore.maintenance.erase import erase
from foldlog.projections import Views
from tests.beside import SAMPLES
from tests.browser.pictures import HEIGHT, MOMENTS, WIDTH, make
from tests.browser.states import BLOCKS, BUTTONS, READY, V, find, forked_report, rest, sample
from tests.browser.task_store import TASK, write_task
from tests.foldlog.formats.reading import histories_at
from tests.page_samples import HOSTILE, LONG_LINE, hostile_history, usual_history
from tests.said import by_turns, replied, said
from tests.web_client import asking_store

GONE = ("summarized", "forgotten", "taken back")


def assert_nothing_happened(page, home):
    """Check that no script of a history ran, and that only the page's own address was requested."""
    assert page.ask("window.attacked") is None
    assert [url for url in page.requests if not url.startswith((home, "data:,"))] == []
    assert (
        page.ask(
            "document.querySelectorAll('iframe, img, svg, object, embed, video, audio,"
            " base').length"
        )
        == 0
    )
    links = page.ask(
        "Array.from(document.querySelectorAll('a'), (each) => each.getAttribute('href'))"
    )
    assert [link for link in links if not link.startswith("./")] == []


def click_through(page):
    """Open every event and every condensation at several versions, each way on from there, and
    search for attacks.
    """
    ids = page.ask(f"{V}.history.ordered.concat(Array.from({V}.history.changes.keys()))")
    assert len(ids) > 50
    for place, event in enumerate(ids):
        page.ask(f"{V}.choose({event}, {V}.history.version - {place % 5})")
        page.wait("document.querySelector('.knew .stored')")
        if place % 9 == 0:
            ways = page.ask("document.querySelectorAll('.ways button').length")
            for way in range(ways):
                page.run(f"document.querySelectorAll('.ways button')[{way}]?.click()")
                page.run(f"{V}.choose({event})")
    page.ask(f"{V}.choose(null)")
    for text in (*HOSTILE, "attacked alert"):
        page.run(f"{V}.find({json.dumps(text)})")
    page.search("script")
    page.wait(f"{V}.hits?.length && document.querySelector('.hit-of mark')")
    page.press("Enter")
    page.press("Escape")
    for key in ("Home", "PageDown", "Enter", "PageDown", "ArrowRight", "Escape", "+", "-", "End"):
        page.press(key)
    for x in range(80, 760, 170):
        page.click_at(x, 150)
        page.click_at(x, 420)
    for label in ("Whole history", "All events", "Plain text", "Expand all"):
        page.run(
            f"{BUTTONS}.find((each) => each.textContent.includes({json.dumps(label)}))?.click()"
        )


def test_a_hostile_history_runs_nothing_in_a_report(page, report):
    url = report(hostile_history(LONG_LINE), limit=1_000)
    page.open(url)
    click_through(page)
    assert_nothing_happened(page, url)
    assert page.ask("document.title").startswith("__proto__")


def test_a_hostile_history_runs_nothing_on_the_server(page, serve, stored):
    stored("hostile", hostile_history(100_000))
    store = stored(HOSTILE[0], [said(HOSTILE[1], meta={"title": HOSTILE[5]})])
    address = serve(store)
    home = address.split("?")[0]
    page.open(address)
    page.wait("document.querySelectorAll('a.row').length === 2")
    rest(page)
    page.search("script attacked")
    page.wait("document.querySelector('.hit mark')")
    page.click(".hit")
    page.wait(f"{V}?.history")
    page.open(f"{home}?id=hostile")
    click_through(page)
    page.open(f"{home}?id=%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert "no conversation" in page.text(".failure")
    page.expected = ["404"]
    assert_nothing_happened(page, home)


def test_control_characters_are_seen_and_steer_nothing(page, report):
    page.open(report([said(HOSTILE[12]), said("a tag \U000e0041")]))
    page.wait(READY)
    assert "user\\u202egpj.exe" in page.text(".transcript .prose")
    assert "a tag \\u{e0041}" in page.text(".transcript")
    assert "\u202e" not in page.ask("document.body.textContent")


def test_arguments_of_every_type_are_shown(page, report):
    changed = {"difference": "+ one\n+ two", "old_str": "two", "new_str": "three"}
    page.open(
        report([said("go"), Action(tool="t", arguments="5"), Action(tool="t", arguments=changed)])
    )
    page.wait(READY)
    arguments = page.ask(
        "Array.from(document.querySelectorAll('.argument'), (each) => each.innerText)"
    )
    assert [text.split() for text in arguments] == [
        ["arguments", "5"],
        ["-two", "+three"],
        ["difference", "+", "one", "+", "two"],
    ]


def test_very_long_line_is_shown_in_parts(page, report):
    page.open(report([said("<b>" * (LONG_LINE // 30))]))
    page.wait("document.querySelector('.more')")
    length = "document.querySelector('.transcript .prose').textContent.length"
    assert page.ask(length) == 1_800
    page.click(".more")
    assert page.ask(length) == 3 * (LONG_LINE // 30)
    assert page.ask("document.querySelectorAll('.transcript .prose b').length") == 0


def test_clipped_text_ends_with_a_whole_character(page, report):
    page.open(report([said("x" + "\U0001f600" * 2_000)]))
    page.wait("document.querySelector('.more')")
    shown = page.ask("document.querySelector('.transcript .prose').textContent")
    assert shown == "x" + "\U0001f600" * 899


def forgets(*ids, summary=None, offset=None):
    return CondensationAction(forgotten_event_ids=ids, summary=summary, summary_offset=offset)


SUMMARIZED = [
    forgets(1, 2, summary="one", offset=1),
    forgets(-8, 3, summary="two", offset=1),
    forgets(-9),
]
"""A summary that is summarized, then forgotten."""
TAKEN_BACK = [
    forgets(1, summary="one", offset=1),
    *by_turns(1),
    Retraction(version=3),
    *by_turns(2),
    Retraction(version=6),
]
"""What is taken back, and a condensation with it."""


def histories():
    yield "sample", sample
    yield "usual", lambda: list(usual_history())
    yield "hostile", lambda: list(hostile_history())
    yield "without condensations", lambda: by_turns(3)
    yield "summarized", lambda: [*by_turns(6), *SUMMARIZED, *by_turns(2)]
    yield "taken back", lambda: [*by_turns(4), *TAKEN_BACK]
    if SAMPLES.is_dir():
        real = chain.from_iterable(
            histories_at(SAMPLES / format) for format in ("openhands_v0", "claude_code")
        )
        for history in islice(real, 24):
            yield history.name, lambda history=history: history.events


def documents(events):
    """Return the page's document of a history at half of its versions, and what came then."""
    half = len(events) // 2
    with open_store("memory:") as store, asking_store(store) as client:
        store.ingest("c", iter(events[:half]))
        begun = client.get("/api/history?id=c").text
        store.ingest("c", iter(events))
        return [begun, client.get(f"/api/history?id=c&since={half}").text]


@pytest.mark.parametrize(
    "events", [pytest.param(make, id=str(name)[:40]) for name, make in histories()]
)
def test_page_shows_every_view_state_and_difference(page, report, events):
    events = events()
    versions = range(len(events) + 1)
    with open_store("memory:") as store:
        store.ingest("c", iter(events))
        views = Views(store)
        page.open(report(events))
        shown = at_each_version(page, f"{V}.history.view(version)", versions)
        assert shown == [[event.id for event in views.at("c", version)] for version in versions]
        tallies = check_grown_history(page, events, versions)
        check_states(page, views.lifetimes("c"), shown, tallies)
        check_differences(page, views, len(events))


def at_each_version(page, expression, versions):
    """Return the value of an expression for each ``version``."""
    return page.ask(f"Array.from({{length: {len(versions)}}}, (_, version) => {expression})")


def check_grown_history(page, events, versions):
    """Check that a history that grew on the page equals the whole one. Return what it counts at
    each version, by state.
    """
    begun, rest = documents(events)
    page.ask(f"void (window.grown = new {V}.history.constructor({begun})).add({rest})")
    grown, whole = (
        at_each_version(
            page,
            f"[{history}.view(version), Array.from({history}.tally(version)).sort()]",
            versions,
        )
        for history in ("window.grown", f"{V}.history")
    )
    assert grown == whole
    return [Counter(dict(tally)) for _, tally in whole]


def check_states(page, lives, shown, tallies):
    """Check the state of each event at each version, and the counts of these states."""
    stands = (
        f"{V}.history.lastSpan(id, version) ? {V}.history.standsFor(id, version).summary : null"
    )
    states = f"{V}.history.ordered.map((id) => [id, {V}.history.state(id, version), {stands}])"
    moments = at_each_version(page, states, range(len(shown)))
    for version, states_of_events in enumerate(moments):
        counted = Counter(state for event, state, _ in states_of_events if event >= 0)
        assert [tallies[version][state] for state in GONE] == [counted[state] for state in GONE]
        for event, state, summary in states_of_events:
            assert state != "summarized" or summary in shown[version], (version, event)
            named = {"masked": "sent", "unsent": "pending"}.get(state, state)
            why = lives.of(event).at(version)
            if why == "summarized" and summary is None:  # its summary left the View, too
                assert named in ("forgotten", "taken back"), (version, event, state)
            else:
                assert named == why, (version, event, state)


def check_differences(page, views, newest):
    """Check which events enter and leave between some versions."""
    pairs = [(0, newest), (newest // 3, newest), (newest // 2, newest // 2 + 1)]
    for before, after in pairs:
        changes = page.ask(
            f"{V}.history.ordered.map((id) => [{V}.history.changeOf(id, {before}, {after}), id])"
        )
        difference = views.difference("c", before, after)
        for change in ("entered", "left"):
            assert {event_id for name, event_id in changes if name == change} == {
                event.id for event in getattr(difference, change)
            }


def test_keys_move_and_the_address_follows(page, report):
    url = report(sample())
    page.open(url)
    assert page.text(".knew h2") == "At version 286 the model knows"
    page.press("ArrowLeft")
    assert page.text(".knew h2") == "At version 285 the model knew"
    page.press("c", shift=True)
    assert page.ask(f"[{V}.version, {V}.event]") == [281, 280]
    page.press("Escape")
    page.press("ArrowLeft")
    page.press("Enter")
    page.press("ArrowRight")
    assert page.text(".knew h2") == "Version 280 → 281"
    assert "1 entered, 43 left" in page.text(".comparing")
    page.wait("location.hash === '#v=281&from=280&tab=memory'")
    page.open(url + "#v=246&e=30")
    assert "condensation 93 forgot it at version 94" in page.text(".why")
    assert "summary S198 replaces it now" in page.text(".why")
    page.wait(READY)
    assert page.text(".block-of.chosen .state") == "in S198"
    page.click(".ways button", "What the model knew when it wrote this")
    assert page.ask(f"{V}.version") == 30
    assert page.text(".block-of.chosen .state") == ""
    page.click(".ways button", "Its observation, 31")
    assert page.text(".knew h2") == "Observation 31"


def test_comparison_shows_events_that_entered_or_left(page, report):
    page.open(report(sample()) + "#v=281&from=240")
    page.wait(READY)
    shown = f"{V}.transcript.blocks.flatMap((one) => [one.id, one.result ?? []].flat())"
    ids = page.ask(shown)
    changed = page.ask(f"{V}.history.ordered.filter((id) => {V}.history.changeOf(id, 240, 281))")
    assert {event_id if event_id >= 0 else -event_id - 2 for event_id in changed} <= set(ids)
    assert len(ids) < 110
    words = page.ask("Array.from(document.querySelectorAll('.state'), (one) => one.textContent)")
    assert set(words) <= {"", "+ entered", "− left"}
    assert "+ entered" in words or "− left" in words
    compared = page.text(".comparing")
    page.open(report(sample()) + "#v=240&from=281")
    assert page.text(".comparing") == compared
    assert page.ask(shown) == ids
    page.click(".knew button", "All events")
    assert len(page.ask(shown)) > 200
    page.click(".knew button", "Stop comparing")
    assert page.ask(f"{V}.from") is None


def test_texts_are_shown_whole_and_plain(page, report):
    text = "# A *title*\n\n" + "- a **line**\n" * 60
    page.open(report([said(text), Annotation(name="n", data="aside")]))
    page.wait(READY)
    shown = "document.querySelector('.transcript .prose').textContent"
    assert page.ask(f"[{shown}.includes('*'), {shown}.split('a line').length - 1]") == [False, 12]
    page.click(".bar button", "Expand all")
    assert page.ask(f"{shown}.split('a line').length - 1") == 60
    page.click(".bar button", "Plain text")
    assert page.ask(shown) == text
    assert page.ask(f"{BLOCKS}.length") == 1
    page.click(".bar button", "All events")
    page.wait(f"{BLOCKS}.length === 2 && {BLOCKS}[1].includes('aside')")
    page.click(".bar button", "Expand all")
    assert page.ask(f"{shown}.split('a **line**').length - 1") < 20


def test_number_sign_finds_exactly_one_event(tidewatch):
    for words, is_one in (("30", False), ("#30", True)):
        find(tidewatch, words)
        assert tidewatch.ask(f"{V}.hits[0].id") == 30
        assert tidewatch.ask(f"{V}.hits.length === 1") is is_one


def test_search_counts_hits_sent_at_this_version(page, report):
    page.open(report(sample()) + "#v=150")
    find(page, "30")
    sent = f"{V}.hits.filter((one) => {V}.history.state(one.id, {V}.version) === 'sent').length"
    before = page.text(".knew .soft")
    assert f"At version 150, the model is sent {page.ask(sent)} of the hits" in before
    page.run(f"{V}.go(20)")
    assert page.text(".knew .soft") != before
    assert f"At version 20, the model is sent {page.ask(sent)} of" in page.text(".knew .soft")
    page.run("document.querySelector('[aria-label=\"Now, the newest version (End)\"]').click()")
    assert page.ask(f"{V}.version === {V}.history.version")


def test_numbers_lead_to_versions_and_events(tidewatch):
    tidewatch.press("/")
    tidewatch.type("41")
    tidewatch.wait(f"{V}.hits?.[0]?.id === 41 && {V}.searched")
    assert tidewatch.ask(f"{V}.hits.filter((one) => one.id === 41).length") == 1
    tidewatch.press("Enter")
    tidewatch.wait("document.querySelector('.knew h2')?.innerText === 'Action 41'")
    assert "condensation 93 forgot it at version 94" in tidewatch.text(".why")
    tidewatch.press("Escape")
    tidewatch.click(".number")
    tidewatch.type("150")
    tidewatch.press("Enter")
    assert tidewatch.ask(f"{V}.version") == 150
    for wrong in ("", "x", "-1"):
        tidewatch.ask(f"{V}.number.value = {json.dumps(wrong)}")
        tidewatch.press("Enter")
        assert tidewatch.ask(f"{V}.number.value") == "150"
    tidewatch.click(".number")
    tidewatch.type("100,000")
    tidewatch.press("Enter")
    assert tidewatch.ask(f"{V}.version") == 286


def test_forgotten_and_taken_back_are_counted_apart(usual):
    names = ("summarized", "forgotten", "taken back")
    counts = "Array.from(document.querySelectorAll('.pair'), (one) => one.innerText.split('\\n'))"
    pairs = [pair for pair in usual.ask(counts) if pair[0] in names]
    assert pairs == [
        ["summarized", "12 events"],
        ["forgotten", "12 events"],
        ["taken back", "2 events"],
    ]
    usual.run(f"{V}.go(40)")
    assert [pair[0] for pair in usual.ask(counts) if pair[0] in names] == []


@pytest.mark.parametrize("shown", ["parent", "fork"])
def test_page_drops_redacted_text_and_shows_the_receipt(page, serve, stored, shown):
    store = stored("parent", usual_history())
    address = serve(store)
    with foldlog.open(store) as histories:
        histories["parent"].fork(32, "fork")
        page.open(f"{address}&id={shown}")
        page.ask(f"{V}.choose(28)")
        page.wait(f"{BLOCKS}.some((text) => text.includes('make test-13'))")
        histories["parent"].redact(28, reason="asked to, letter of 3 May", by="ana")
        page.wait(f"{V}?.history.redactions === 1")
        page.wait("document.querySelector('.knew')?.textContent.includes('The content was erased')")
        page.wait(f"{BLOCKS}.some((text) => text.includes('Its content was erased'))")
        assert "make test-13" not in page.ask("document.body.textContent")
        if shown == "fork":
            assert page.ask(f"{V}.history.version") == 32
            return
        assert "letter of 3 May" in page.text(".knew")
        page.ask(f"{V}.choose(50)")  # what is asked of the server is shown until the answer comes
        page.wait("document.querySelector('.why')?.textContent.includes('receipt of a redaction')")


def test_page_of_fork_follows_erasure_of_parent(page, serve, stored):
    store = stored("parent", usual_history())
    address = serve(store)
    with foldlog.open(store) as histories:
        histories["parent"].fork(32, "kept")
        page.open(f"{address}&id=kept")
        page.wait(
            "document.querySelector('.facts')?.innerText.includes('fork of parent at version 32')"
        )
        erase(histories.store, "parent", reason="asked to", detach_forks=True)
        page.wait("!document.querySelector('.facts').innerText.includes('fork of')")
        page.settle()
        assert page.ask(f"{V}.transcript.blocks.filter((one) => one.border)") == []
        histories["kept"].fork(20, "gone")
        page.open(f"{address}&id=gone")
        page.wait(f"{BLOCKS}.some((text) => text.includes('make test'))")
        page.expected = ["410"]
        erase(histories.store, "kept", reason="asked to", with_forks=True)
        page.wait("document.querySelector('.failure')?.innerText.includes('was erased')")
        assert "make test" not in page.ask("document.body.textContent")
        assert page.text(".failure a") == "All runs"


def test_the_server_follows_new_events(page, serve, stored):
    store = stored("c", usual_history())
    with foldlog.open(store) as histories:
        page.open(serve(store))
        page.wait("document.querySelector('a.row')?.innerText.includes('build fails')")
        rest(page)
        page.click("a.row")
        page.wait(f"{V}?.history?.version === {histories['c'].version()}")
        histories["c"].append([said("something new"), replied("yes")])
        page.wait(f"{V}?.history.version === {histories['c'].version()}")
        page.settle()
        assert page.ask(f"{V}.version") == histories["c"].version()
        page.wait(f"{BLOCKS}.some((text) => text.includes('something new'))")
        histories["c"].retract(3)
        page.wait(f"{V}?.history.version === {histories['c'].version()}")
        expected = [event.id for event in histories["c"].view()]
        assert page.ask(f"{V}.history.view({V}.history.version)") == expected


def test_transcript_has_no_gap_while_scrolling(page, report):
    page.open(report(workload.history(10_000)))
    page.wait(READY)
    gaps, blocks = page.ask("""(async () => {
              const node = document.querySelector('.transcript'), gaps = [];
              for (let step = 0; step < 120; step += 1) {
                node.scrollTop -= step % 3 ? 1700 : 24000;
                await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
                const { top, bottom } = node.getBoundingClientRect();
                const boxes = Array.from(document.querySelectorAll('.blocks > *'), (each) => each.getBoundingClientRect());
                const first = Math.min(...boxes.map((each) => each.top));
                const last = Math.max(...boxes.map((each) => each.bottom));
                if (first > top + 1 || last < bottom - 1) gaps.push([step, first - top, bottom - last]);
              }
              return [gaps, document.querySelectorAll('.blocks > *').length];
            })()""")
    assert gaps == []
    assert blocks < 120


def test_a_fork_says_where_it_begins(page, serve, stored, tmp_path):
    page.open(forked_report(tmp_path))
    places = "(one, place, all) => one.border ? [[one.border.parent, all[place + 1]?.id]] : []"
    borders = f"{V}.transcript.blocks.flatMap({places})"
    assert page.ask(borders) == [["sample/tidewatch", 96], ["second try", 120]]
    assert "fork of second try at version 120" in page.text(".facts")
    page.run(f"{V}.goToEvent(96)")
    words = "Fork of sample/tidewatch at version 96: the events before are shared"
    page.wait(f"document.querySelector('.cut.border')?.innerText === '{words}'")
    page.ask(f"{V}.showPage('memory')")
    page.settle()
    assert page.ask(f"{V}.chart.labelSpots.length") >= 2
    store = stored("parent", usual_history())
    with open_store(store) as opened:
        opened.fork("parent", 3, "fork")
    address = serve(store)
    page.open(f"{address.split('?')[0]}?{address.split('?')[1]}&id=fork")
    page.wait(f"{V}?.history")
    page.settle()
    page.click(".cut.border a")
    page.wait(f"{V}?.history?.conversation === 'parent'")
    assert page.ask(f"{V}.version") == 3


def test_runs_of_a_task_open_in_their_calls(page, serve, tmp_path):
    store = tmp_path / "task.db"
    with foldlog.open(store) as histories:
        top = histories["top"]
        for name in ("first", "second"):
            top.append(Action(tool="agent", call_id=name))
            child = top.begin_child(top.open_calls()[-1], name)
            child.append(said(f"words of {name}"))
        inner = Action(tool="read", call_id="r")
        child.append([inner, Observation(call_id="r", content="no such file", is_error=True)])
    address = serve(str(store))
    page.open(address)
    page.wait("document.querySelectorAll('a.row').length === 1")
    rest(page)
    assert "2 sub-agents" in page.text("a.row")
    assert "no such file" in page.text("a.row .c-first")
    page.click("a.row .c-first")
    page.wait(f"{V}?.history?.conversation === 'second'")
    page.wait("document.querySelectorAll('.agent').length === 3")
    page.run("document.querySelector('.agents').open = true")
    page.run("document.querySelector('.agent a').click()")
    page.wait(f"{V}?.history?.conversation === 'top'")
    page.wait("document.querySelectorAll('.sub-agent').length === 2")
    page.run("document.querySelectorAll('.sub-agent')[1].open = true")
    page.wait("document.querySelectorAll('.run-of')[1]?.innerText.includes('words of second')")
    page.wait("document.querySelector('.run-of .bad')?.innerText.includes('no such file')")
    page.settle()


def test_page_of_a_task_answers_a_debugger(page, serve, tmp_path):
    store = tmp_path / "task.db"
    write_task(store)
    address = serve(f"sqlite:///{store}")
    page.open(address)
    page.wait("document.querySelectorAll('a.row').length === 1")
    rest(page)
    assert "2 of 5 runs of 1 task had an error" in page.text(".summary")
    assert "4 sub-agents" in page.text("a.row")
    page.click("a.row .name")
    page.wait("document.querySelectorAll('.agent').length === 6")
    words = page.text(".agents")
    for answer in (
        "4 sub-agents, 2 errors, $3.10 + 1 erased agent, $0.3700 without sub-agents, 9 m 36 s",
        "9 m 36 s of work in 3 m 46 s (the first agent alone: 3 m 30 s)",
        "First error in build (Find out why the build of version 4.2 fails, and repair it.): make:",
        "Highest cost: build (Find out why the build of version 4.2 fails, and repair it.) $2.35",
        "Longest call of this agent: 1 3 m 06 s, waited for a sub-agent",
        "Longest wait of an agent without sub-agents: logs (Read build.log, and say what failed.)",
        "Calls without a result, which may have run: in 4.2 (Release version 4.2",
        "docs (Write the release notes of version 4.2 from the commits.) event 3 (by ann: a mail",
        "erased 09:03:10, a token of a user\nunknown",
    ):
        assert answer in words
    models = "Array.from(document.querySelectorAll('.agent'), (row) => row.children[3].innerText)"
    assert page.ask(models) == ["opus", "sonnet", "haiku", "haiku", "sonnet", "unknown"]
    bars = page.ask("Array.from(document.querySelectorAll('.agent .span'), (bar) => bar.title)")
    assert bars[1] == "2026-11-02 09:00:05 to 09:03:08, 3 m 03 s"
    assert bars[5] == "2026-11-02 09:00:04 to 09:00:31, 27 s"
    erased = "Sub-agent scan: erased 09:03:10, a token of a user; cost unknown"
    page.wait(f"document.querySelector('.transcript')?.innerText.includes('{erased}')")
    page.run("document.querySelector('.agents input').value = 'libexpat-2.6.1'")
    page.click(".agents form button")
    page.wait("document.querySelector('.agents [role=status]')?.innerText.includes('lost: result')")
    found = page.text(".agents [role=status]")
    assert found.startswith("First in event 3 of logs; lost in result 9 of 4.2\n")
    assert "the user wrote it in event 10" in found
    answered = "document.querySelector('.agents [role=status]')"
    assert page.ask(f"{answered}.getBoundingClientRect().top") < page.ask(
        "document.querySelector('.agents').getBoundingClientRect().bottom"
    )
    links = f"Array.from({answered}.querySelectorAll('li a'), (link) => link.innerText)"
    assert {"event 10", "result 6", "result 9", "call 13"} <= {*page.ask(links)}

    page.click(".agents p a", "Sign version 4.2")
    page.wait(f"{V}?.history?.conversation === '{TASK}/sign'")
    page.wait("document.querySelector('.agents')?.innerText.includes('4 sub-agents')")
    assert "erased 09:03:10, a token of a user" in page.text(".agents")
    page.wait("document.querySelector('.transcript')?.innerText.includes('may have run')")
    assert page.ask(f"{V}.event") == 6
    page.click(".agents > p a")
    page.wait(f"{V}?.history?.conversation === '{TASK}'")
    page.wait("document.querySelector('.run-of ul')?.innerText.includes('release-key-0042 (0)')")
    assert page.ask(f"{V}.event") == 13


@pytest.mark.usefixtures("chromium")  # skips the test if there is no browser
def test_the_pictures_of_the_documentation_are_made(tmp_path):
    pictures = make(tmp_path)
    assert [path.name for path in pictures] == [f"{name}.png" for name in MOMENTS]
    for path in pictures:
        header = path.read_bytes()[:24]
        assert (int.from_bytes(header[16:20]), int.from_bytes(header[20:24])) == (WIDTH, HEIGHT)
        assert (Path(__file__).parents[2] / "docs" / "pictures" / path.name).is_file()
