"""The list of runs in a real browser: chosen, sorted, counted by day, and two of them compared."""

from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest

import foldlog
from foldlog.eventstore import Action, CondensationAction, Observation, SystemMessage
from tests.browser.chromium import PageFailed
from tests.browser.states import V, home
from tests.browser.tree import tree
from tests.said import all_said, replied, said

START = datetime(2026, 3, 1, 9, tzinfo=UTC)
ROWS = "Array.from(document.querySelectorAll('a.row .name'), (each) => each.textContent.trim())"


def run(title, day, tool="Bash", errors=0, seconds=60):
    """A run of one day, whose tool fails some times."""
    at = START + timedelta(days=day)
    yield said(title, timestamp=at)
    for number in range(errors + 1):
        yield Action(tool=tool, arguments={"command": "ls"}, call_id=str(number), timestamp=at)
        failed = number < errors
        text = "No such file" if failed else "README"
        yield Observation(
            tool=tool, content=text, call_id=str(number), is_error=failed, timestamp=at
        )
    yield replied("done", timestamp=at + timedelta(seconds=seconds))


@pytest.fixture
def runs(stored, serve):
    stored("one", run("fix the importer", 0, errors=2))
    stored("two", run("write the docs", 1, "Edit", errors=1, seconds=3_600))
    return serve(stored("three", run("review the change", 4)))


@pytest.fixture
def listed(page, runs):
    """A page that shows the list of these runs."""
    home(page, runs, 3)
    return page


def called(tool):
    return Action(tool=tool, arguments={}, call_id=tool)


def shown(page, count):
    """Wait until the page shows so many chosen runs, and return their names. The rows and the sums
    come in two answers. If the number stays, as after a sort, this may return before they come.
    """
    page.wait(f"{V}.total === {count} && document.querySelectorAll('a.row').length === {count}")
    page.wait(f"{V}.fleet?.chosen.conversations === {count}")
    page.settle()
    return page.ask(ROWS)


def test_search_line_chooses_sentence_facets_and_days(page, runs):
    home(page, runs, 3)
    assert page.text(".summary").startswith("2 of 3 runs had an error")
    page.click(".facet button", "Edit")
    assert shown(page, 1) == ["write the docs"]
    assert page.ask(f"{V}.box.value") == "tool:Edit"
    assert page.text(".summary").startswith("1 of 1 run had an error")
    page.click(".facet button", "Edit")
    shown(page, 3)
    page.search("has:error")
    assert set(shown(page, 2)) == {"fix the importer", "write the docs"}
    assert page.ask(f"{V}.range") == ["2026-03-01", "2026-03-02"]
    assert page.ask("location.hash") == "#q=has%3Aerror"


def test_odd_time_does_not_stretch_the_days(page, stored, serve):
    stored("one", run("fix the importer", 0, errors=2))
    stored("odd", run("without a clock", -20_513, errors=9))
    home(page, serve(stored("two", run("write the docs", 1))), 3)
    assert page.ask(f"{V}.range") == ["2026-03-01", "2026-03-02"]
    assert "at most 2 a day" in page.text(".ends")
    page.click(".ends button", "1 run on 1 Jan 1970")
    assert shown(page, 1) == ["without a clock"]
    assert page.ask(f"{V}.range") == ["1970-01-01"]
    page.click(".ends button", "2 runs from")
    assert set(shown(page, 2)) == {"fix the importer", "write the docs"}


def test_each_column_of_figures_has_a_heading(listed):
    cells = ".row.head .cell > *, .row.head .c-first"
    words = f"Array.from(document.querySelectorAll('{cells}'), (each) => each.innerText)"
    assert listed.ask(words) == [
        "Run",
        "Context",
        "Condensed",
        "First error",
        "Errors",
        "Longest wait",
        "Took",
        "Cost",
        "Last event ↓",
    ]
    assert listed.ask("document.querySelector('.item input').title") == "Compare with another run"


def test_facet_of_a_tool_with_errors(listed):
    facet = "[aria-label^='Tool'] button"
    names = f"Array.from(document.querySelectorAll({facet!r}), (each) => each.innerText)"
    assert listed.ask(names) == ["Bash\n2", "Edit\n1"]
    listed.click(facet, "Bash")
    assert set(shown(listed, 2)) == {"fix the importer", "review the change"}
    listed.click(".facet button", "with an error")
    assert shown(listed, 1) == ["fix the importer"]
    assert listed.ask(f"{V}.line") == "tool:Bash has:error"
    listed.wait("document.querySelector('[aria-label=\"Tool with errors\"]')")


def test_proposed_line_has_one_value_of_a_facet(listed):
    listed.run(f"{V}.choose('fix tool:Bash')")
    assert shown(listed, 1) == ["fix the importer"]
    options = "document.querySelectorAll('#facet-words option')"
    listed.wait(f"{options}[0]?.value.startsWith('fix ')")
    lines = listed.ask(f"Array.from({options}, (each) => each.value)")
    assert "fix tool:Bash" in lines
    assert {line.count("tool:") for line in lines} == {1}


def test_facet_finds_runs_with_a_note(page, runs):
    home(page, runs, 3)
    assert page.ask("!document.querySelector('.facets').innerText.includes('with a note')")
    page.open(runs.replace("?", "?id=two&") + "#e=1")
    page.wait(f"{V}?.history && document.querySelector('.block-of.chosen')")
    page.press("n")
    page.wait("document.activeElement.localName === 'textarea'")
    page.run("document.activeElement.value = 'look here'")
    page.click(".noting button")
    page.wait("document.querySelector('.note')")
    home(page, runs, 3)
    page.wait("document.querySelector('.facets')?.innerText.includes('with a note')")
    page.click(".facet button", "with a note")
    assert shown(page, 1) == ["write the docs"]
    assert page.ask(f"{V}.line") == "has:note"


def test_words_beside_error_facet_search_errors_only(listed):
    hits = "document.querySelectorAll('.hit').length"
    for line, words in (
        ("README", "3 events in all runs with all of the words"),
        ("README has:error", "No error contains these words."),
        ('tool:Bash has:error "No such file"', "2 errors in the chosen runs with all"),
    ):
        listed.run(f"{V}.choose({line!r})")
        listed.wait(f"document.querySelector('.hits')?.innerText.startsWith({words!r})")
    assert listed.ask(hits) == 2
    assert listed.ask("document.querySelectorAll('.hit .bad').length") == 2


PARTIAL = """
const plain = window.fetch;
window.fetch = async (...asked) => {
  const answer = await plain(...asked);
  if (!asked[0].startsWith("api/search")) return answer;
  const lacking = asked[0].includes("README") ? { is_partial: true } : { read: 1 };
  if (asked[0].includes("docs")) Object.assign(lacking, { unread: ["c1: damaged", "c2: lost", "c3: lost"] });
  return new Response(JSON.stringify({ ...(await answer.json()), ...lacking }));
};
"""
"""The answers of searches that had not enough time, or could not read a conversation."""


def test_a_search_that_did_not_read_all_says_so(listed):
    hits = "document.querySelector('.hits')?.innerText"
    listed.run(f"{V}.choose('README')")
    listed.wait(f"{hits}.startsWith('3 events in all runs')")
    assert "Not all" not in listed.text(".hits")
    listed.run(PARTIAL)
    for line, begins, says in (
        ("README Bash", "", "Not all conversations were searched."),
        ("nothing", "No event contains these words.", "Not all conversations were searched."),
        ("docs", "1 event", "searched: c1: damaged; c2: lost; 1 more."),
    ):
        listed.run(f"{V}.choose({line!r})")
        listed.wait(f"{hits}?.startsWith({begins!r}) && {hits}.includes({says!r})")


def test_hits_are_in_the_chosen_runs(listed):
    listed.run(f"""{V}.choose('tool:Edit "No such file"')""")
    listed.wait(
        "document.querySelector('.hits')?.innerText.startsWith('1 event in the chosen runs')"
    )
    assert listed.text(".hit b") == "write the docs"


def test_tool_with_most_errors_is_named(page, runs, stored):
    stored("four", run("try again", 5, "Edit", errors=1))
    stored("five", run("and again", 6, errors=4))
    stored("six", run("and once more", 7, "Edit", errors=1))
    home(page, runs, 6)
    page.wait("document.querySelector('.summary')?.innerText.includes('errors in Bash (6)')")


def test_the_cost_opens_by_model_and_by_day(page, serve, stored):
    for name, model, day, cost in (("a", "m", 0, 0.5), ("b", "m", 1, 0.25), ("c", "n", 1, 1)):
        meta = {"model": model, "usage": {"prompt_tokens": 10}, "cost": cost}
        at = START + timedelta(days=day)
        url = stored(name, [replied("hi", meta=meta, timestamp=at)])
    home(page, serve(url), 3)
    page.wait("document.querySelector('.summary button')?.innerText === '$1.75'")
    assert page.ask("document.querySelector('.costs').offsetHeight") == 0
    page.click(".summary button", "$1.75")
    rows = "Array.from(document.querySelectorAll('.costs tbody tr'), (each) => each.innerText)"
    assert [row.split() for row in page.ask(rows)] == [
        ["n", "1", "10", "$1.00"],
        ["m", "2", "20", "$0.7500"],
        ["2026-03-02", "2", "20", "$1.25"],
        ["2026-03-01", "1", "10", "$0.5000"],
    ]
    page.search("model:n")
    page.wait(f"{rows}.length === 2")
    page.click(".summary button")
    assert page.ask("document.querySelector('.costs').offsetHeight") == 0


def test_a_tick_moves_no_row(listed):
    top = "document.querySelector('.rows').getBoundingClientRect().top"
    before = listed.ask(top)
    listed.click("input[aria-label='Compare write the docs']")
    listed.wait("document.querySelector('.picked')?.offsetHeight > 0")
    assert listed.ask(top) == before


def test_a_row_counts_condensations_and_guesses_none(page, serve, stored):
    def replies(*sizes):
        for size in sizes:
            meta = {"model": "m", "usage": {"prompt_tokens": size}}
            yield replied("hi", meta=meta)

    stored("falls", replies(900, 100, 900, 100))
    condensed = [*replies(900, 800), CondensationAction(forgotten_event_ids=(0,))]
    home(page, serve(stored("condensed", condensed)), 2)
    cells = "Array.from(document.querySelectorAll('a.row'), (each) =>"
    cells += " [each.querySelectorAll('.spark .area').length,"
    cells += " each.querySelector('.condensed')?.firstChild.data ?? ''])"
    page.wait(f"{cells}.some(([, number]) => number === '1')")
    assert sorted(page.ask(cells)) == [[1, ""], [1, "1"]]


def test_first_error_leads_to_its_event(listed):
    listed.click("a.row .c-first", "No such file")
    listed.wait(f"{V}?.history")
    assert listed.ask(f"[{V}.event, {V}.version]") == [2, 3]
    listed.click(".back")
    listed.wait(f"{V}?.total === 3 && document.querySelectorAll('a.row').length === 3")
    listed.click("a.row .name", "fix the importer")
    listed.wait(f"{V}?.history")
    assert listed.ask(f"{V}.event") is None


def test_more_shows_all_names_of_a_facet(page, serve, stored):
    for number in range(12):
        meta = {"model": f"model {number:02}", "usage": {"prompt_tokens": 10}}
        event = replied("hi", meta=meta)
        url = stored(f"run {number}", [event])
    home(page, serve(url), 12)
    names = "Array.from(document.querySelectorAll('[aria-label=Model] button'),"
    names += " (each) => each.innerText.split('\\n')[0])"
    page.wait(f"{names}.at(-1) === '2 more'")
    page.click("[aria-label=Model] .more")
    assert page.ask(names) == [f"model {number:02}" for number in range(12)]


def test_a_day_of_another_year_has_its_year(page, serve, stored):
    event = said("hi", timestamp=datetime(2025, 9, 25, 9, tzinfo=UTC))
    home(page, serve(stored("old", [event])), 1)
    assert page.text("a.row .c-activity").split() == ["25", "Sep", "2025", "09:00"]
    page.wait("document.querySelector('.ends')?.innerText.includes('25 Sep 2025')")


def test_dragging_over_days_chooses_them_and_again_chooses_all(listed):
    listed.ask("window.box = document.querySelector('.histogram').getBoundingClientRect()")
    x, y, width, height = listed.ask("[box.x, box.y, box.width, box.height]")

    def drag_over_two_of_five_days():
        for kind, at in (("mousePressed", 0.05), ("mouseMoved", 0.3), ("mouseReleased", 0.3)):
            listed.send(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x + at * width,
                y=y + height / 2,
                button="left",
                buttons=int(kind != "mouseReleased"),
                clickCount=1,
            )

    drag_over_two_of_five_days()
    listed.wait(f"{V}.line === 'since:2026-03-01 until:2026-03-03'")
    assert len(shown(listed, 2)) == 2
    assert len(listed.ask(f"{V}.range")) == 5
    drag_over_two_of_five_days()
    listed.wait(f"{V}.line === ''")
    shown(listed, 3)


def test_no_shown_day_is_chosen_by_a_later_one(listed):
    chosen = "document.querySelectorAll('.day.chosen').length"
    listed.run(f"{V}.choose('since:2026-03-02')")
    shown(listed, 2)
    assert listed.ask(chosen) == 4
    listed.run(f"{V}.choose('since:2026-06-01')")
    shown(listed, 0)
    assert listed.ask(f"[{V}.range.length, {chosen}]") == [5, 0]


def test_columns_sort_and_back_keeps_the_order(listed):
    listed.click(".sort", "Took")
    listed.wait(f"{ROWS}[0] === 'write the docs'")
    listed.click(".sort", "Errors")
    listed.wait(f"{ROWS}[0] === 'fix the importer'")
    listed.click(".sort", "Errors")
    listed.wait(f"{ROWS}[0] === 'review the change'")
    listed.click("a.row")
    listed.wait(f"{V}?.history")
    listed.click(".back")
    listed.wait(f"{V}?.sort === 'errors' && {ROWS}[0] === 'review the change'")


def test_ticked_runs_are_compared_by_call(listed):
    for title in ("fix the importer", "write the docs"):
        listed.click(f"input[aria-label='Compare {title}']")
    listed.click(".picked a")
    listed.wait("document.querySelector('.steps-of')")
    words = listed.text("main.compared")
    assert words.startswith(
        "Their first request or call differs; 0 requests and calls are in both."
    )
    assert "calls of Bash" in words
    steps = listed.ask(
        "Array.from(document.querySelectorAll('.step'), (each) => each.innerText.replace(/\\s+/g,"
        " ' '))"
    )
    assert any("fix the importer" in step for step in steps)
    listed.click(".step a")
    listed.wait(f"{V}?.history")


def test_comparison_marks_the_words_that_differ(page, serve, stored):
    prompt = "You repair programs. " * 20
    for name, last in (("one", "Be short."), ("two", "Be long.")):
        text = f"{prompt}\n{last}"
        events = [SystemMessage(content=text), said("mend")]
        url = stored(name, events)
    address = serve(url)
    page.open(address)
    page.open(f"{address.split('?')[0]}?compare=one&with=two")
    page.wait("document.querySelector('.steps-of')")
    words = page.text("main.compared")
    assert words.startswith("Their system prompts differ; their first request or reply is equal")
    assert "1 of 2 lines only in the first, 1 of 2 lines only in the second" in words
    assert "No request and no reply differs." in words
    marked = "Array.from(document.querySelectorAll('.differs mark'), (each) => each.innerText)"
    assert page.ask(marked) == ["short.", "long."]
    stored("three", [*events, said(f"{prompt} now and here")])
    stored("four", [*events, said(f"{prompt} now and there")])
    page.open(f"{address.split('?')[0]}?compare=three&with=four")
    page.wait("document.querySelector('.differs mark')")
    assert page.ask(marked) == ["here", "there"]


def test_comparison_of_equal_runs_says_what_was_not_compared(page, serve, tmp_path):
    """The sentence that the page shows for each number of requests and of redacted requests."""
    with foldlog.open(tmp_path / "history.db") as histories:
        address = serve(f"sqlite:///{tmp_path}/history.db")
        for requests, redacted, words in (
            (0, 0, "Neither has a request or a reply."),
            (1, 0, "Their first request or reply is equal; 1 request or reply is in both."),
            (1, 1, "Their first request or reply is redacted, and was not compared; 0 requests"),
            (
                3,
                2,
                "1 of their first 3 requests and replies is equal; 2 are redacted, and were not"
                " compared; 1 request or reply is in both.",
            ),
        ):
            one, two = (f"{name} {requests} {redacted}" for name in ("one", "two"))
            for name in (one, two):
                histories[name].append(
                    [SystemMessage(content="Be kind."), *all_said(*"abc"[:requests])]
                )
                for event_id in range(1, redacted + 1):
                    histories[name].redact(event_id, reason="asked to", by="ann")
            page.open(address)
            page.open(f"{address.split('?')[0]}?{urlencode({'compare': one, 'with': two})}")
            page.wait("document.querySelector('.steps-of')")
            shown = page.text("main.compared")
            assert shown.startswith(words)
            assert ("differs." in shown) == (requests > redacted)


def test_comparison_counts_the_tools_that_it_leaves_out(page, serve, stored):
    stored("one", iter([said("go"), *(called(tool) for tool in "abcdefghijklm")]))
    url = stored("two", iter([said("go"), *(called("z") for _ in range(3))]))
    address = serve(url)
    page.open(address)
    page.open(f"{address.split('?')[0]}?compare=one&with=two")
    page.wait("document.querySelector('.steps-of')")
    rows = page.ask(
        "Array.from(document.querySelectorAll('.compared table tr'), (row) => row.innerText.trim())"
    )
    calls = [row.split() for row in rows if row.startswith("calls of ")]
    assert [row[2:] for row in calls] == [
        ["z", "0", "3"],
        *([tool, "1", "0"] for tool in "abcdefghijk"),
        ["2", "other", "tools", "2", "0"],
    ]


def test_an_error_of_the_page_ends_a_wait(page, runs):
    page.open(runs)
    with pytest.raises(PageFailed, match="context is not defined"):
        page.wait("context.isReady")


def test_wrong_filter_is_named_and_list_stays(listed):
    listed.expected = ["422"]
    listed.search("state:none")
    listed.wait(
        "document.querySelector('.above .problem').innerText.includes('state:none is not known')"
    )
    assert len(listed.ask(ROWS)) == 3


def test_a_wrong_filter_in_the_address_can_be_changed(page, runs):
    page.expected = ["422"]
    page.open(f"{runs}#q=state:none")
    assert "state:none is not known" in page.text(".above .problem")
    page.ask(f"{V}.choose('tool:Edit')")
    assert shown(page, 1) == ["write the docs"]
    assert page.text(".above .problem") == ""


def test_the_error_of_an_earlier_filter_is_not_shown(listed):
    listed.expected = ["422"]
    listed.ask(f"{LATE} void (window.chosen = {V}.choose('state:none'))")
    listed.ask(f"{V}.choose('tool:Edit')")
    listed.ask("(async () => { window.go(); await window.chosen; })()")
    assert listed.text(".above .problem") == ""


def test_one_of_two_words_that_begin_alike_is_left_out(listed):
    listed.ask(f"{V}.choose('has:errors has:error')")
    shown(listed, 2)
    listed.run(f"{V}.toggle('has', 'error')")
    assert listed.ask(f"{V}.line") == "has:errors"


def test_another_value_of_an_attribute_replaces_the_chosen_one(listed):
    listed.ask(f"{V}.choose('attribute:team=ab attribute:user=ann has:error')")
    listed.run(f"{V}.toggle('attribute', 'team=a')")
    assert listed.ask(f"{V}.line") == "attribute:user=ann has:error attribute:team=a"


def test_screen_reader_hears_runs_with_units(listed):
    links = [node.name for node in tree(listed) if node.role == "link"]
    assert any("fix the importer" in name and "2 errors" in name for name in links)
    boxes = {node.name for node in tree(listed) if node.role == "checkbox"}
    assert "Compare write the docs" in boxes


LATE = """
const plain = window.fetch;
window.fetch = async (...asked) => {
  window.fetch = plain;
  await new Promise((go) => (window.go = go));
  return plain(...asked);
};
"""
"""The next answer of the server waits for ``window.go()``."""


def test_further_rows_are_loaded_at_the_end(page, stored, serve):
    for number in range(130):
        url = stored(f"run {number:03}", run(f"run {number:03}", number))
    home(page, serve(url), 130)
    assert page.ask("document.querySelectorAll('.item').length") == 100
    page.ask(f"{LATE} void (window.refreshed = {V}.follow())")
    page.run(f"{V}.list.scrollTop = {V}.list.scrollHeight")
    page.wait("document.querySelectorAll('.item').length === 130")
    assert page.ask("document.querySelector('.item:last-child').textContent.includes('run 000')")
    page.ask("(async () => { window.go(); await window.refreshed; })()")
    assert page.ask("document.querySelectorAll('.item').length") == 130
    page.run(f"{V}.follow()")
    assert page.ask("document.querySelectorAll('.item').length") == 130


EARLY = """
const plain = window.fetch;
window.fetch = async (...asked) => {
  if (!asked[0].startsWith("api/conversations")) return plain(...asked);
  window.fetch = plain;
  const page = await (await plain(...asked)).json();
  page.conversations.shift();
  return new Response(JSON.stringify({ ...page, counted: page.total - 1 }));
};
"""
"""The next list is as the server answers it while it has not counted the newest run."""


def test_the_end_of_the_list_asks_once_for_runs_that_are_not_counted(listed):
    listed.ask(
        f"{V}.askPage = async () => {{ window.asked = (window.asked ?? 0) + 1;"
        " return { conversations: [] }; }"
    )
    listed.run(f"{V}.total = 4; {V}.draw()")
    listed.wait("window.asked")
    frames = "for (let frame = 0; frame < 10; frame += 1) await new Promise(requestAnimationFrame)"
    listed.ask(f"(async () => {{ {frames}; }})()")
    assert listed.ask("window.asked") == 1


def test_a_list_without_the_last_counted_runs_is_asked_again(listed):
    lacking = listed.ask(f"(async () => {{ {EARLY} await {V}.follow(); return {ROWS}; }})()")
    assert lacking == ["write the docs", "fix the importer"]
    listed.wait(f"{ROWS}[0] === 'review the change'")


def test_a_click_during_an_answer_is_not_lost(listed):
    facet = "Array.from(document.querySelectorAll('.facet button'))"
    box = f"{facet}.find((each) => each.innerText.startsWith('Edit')).getBoundingClientRect()"
    x, y = listed.ask(f"(({{ x, y }}) => [x + 5, y + 5])({box})")
    mouse = {"x": x, "y": y, "button": "left", "clickCount": 1}
    listed.send("Input.dispatchMouseEvent", type="mousePressed", **mouse)
    listed.ask(f"{V}.follow()")
    listed.send("Input.dispatchMouseEvent", type="mouseReleased", **mouse)
    assert shown(listed, 1) == ["write the docs"]


LATE_AND_EMPTY = """
const plain = window.fetch;
window.fetch = async (...asked) => {
  window.fetch = plain;
  const page = await (await plain(...asked)).json();
  await new Promise((go) => (window.go = go));
  return new Response(JSON.stringify({ ...page, conversations: [] }));
};
"""
"""The next list waits for ``window.go()``, and has no run."""


def test_an_answer_that_was_overtaken_is_not_shown(listed):
    listed.ask(f"{LATE_AND_EMPTY} void (window.refreshed = {V}.follow())")
    listed.wait("window.go")
    listed.ask(f"{V}.follow()")
    shown = f"window.go(); await window.refreshed; return {V}.rows.length;"
    assert listed.ask(f"(async () => {{ {shown} }})()") == 3


def test_a_row_fits_its_line(sized, runs):
    home(sized, runs, 3)
    assert sized.ask("document.documentElement.scrollWidth <= innerWidth")
    heights = "[each.scrollHeight, each.clientHeight + 1]"
    for whole, room in sized.ask(
        f"Array.from(document.querySelectorAll('.item'), (each) => {heights})"
    ):
        assert whole <= room
