"""The list of runs in a real browser: chosen, sorted, counted by day, and two of them compared."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from foldlog.eventstore import Action, Event, Message, Observation
from tests.browser.states import SIZES, V, home
from tests.browser.tree import tree

START = datetime(2026, 3, 1, 9, tzinfo=UTC)
ROWS = "Array.from(document.querySelectorAll('a.row .name'), (each) => each.innerText.trim())"


def run(
    title: str, day: int, tool: str = "Bash", errors: int = 0, seconds: int = 60
) -> Iterator[Event]:
    """A run of one day, whose tool fails some times."""
    at = START + timedelta(days=day)
    yield Message(source="user", content=title, timestamp=at)
    for number in range(errors + 1):
        yield Action(tool=tool, arguments={"command": "ls"}, call_id=str(number), timestamp=at)
        failed = number < errors
        text = "No such file" if failed else "README"
        yield Observation(
            tool=tool, content=text, call_id=str(number), is_error=failed, timestamp=at
        )
    yield Message(source="agent", content="done", timestamp=at + timedelta(seconds=seconds))


@pytest.fixture
def runs(stored, serve) -> str:
    stored("one", run("fix the importer", 0, errors=2))
    stored("two", run("write the docs", 1, "Edit", errors=1, seconds=3_600))
    return serve(stored("three", run("review the change", 4)))


def shown(page, count: int) -> list[str]:
    page.wait(f"{V}.total === {count} && document.querySelectorAll('a.row').length === {count}")
    page.settle()
    return page.ask(ROWS)


def test_the_sentence_facets_and_days_are_of_the_runs_that_the_line_chooses(page, runs):
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


def test_words_beside_a_facet_of_errors_are_searched_in_errors_alone(page, runs):
    home(page, runs, 3)
    hits = "document.querySelectorAll('.hit').length"
    for line, said in (
        ("README", "3 events of all runs with all of the words"),
        ("README has:error", "No error contains these words."),
        ('tool:Bash "No such file"', "3 errors of all runs with all of the words"),
    ):
        page.run(f"{V}.choose({line!r})")
        page.wait(f"document.querySelector('.hits')?.innerText.startsWith({said!r})")
    assert page.ask(hits) == 3
    assert page.ask("document.querySelectorAll('.hit .bad').length") == 3


def test_a_drag_over_the_days_chooses_them_and_again_takes_it_back(page, runs):
    home(page, runs, 3)
    page.ask("window.box = document.querySelector('.histogram').getBoundingClientRect()")
    x, y, width, height = page.ask("[box.x, box.y, box.width, box.height]")
    for _ in range(2):
        for kind, at in (("mousePressed", 0.05), ("mouseMoved", 0.3), ("mouseReleased", 0.3)):
            page.send(
                "Input.dispatchMouseEvent",
                type=kind,
                x=x + at * width,
                y=y + height / 2,
                button="left",
                buttons=int(kind != "mouseReleased"),
                clickCount=1,
            )
        line = page.ask(f"{V}.line")
        if line:
            assert line == "since:2026-03-01 until:2026-03-03"
            assert len(shown(page, 2)) == 2
            assert len(page.ask(f"{V}.range")) == 5
    assert page.ask(f"{V}.line") == ""
    shown(page, 3)


def test_each_column_sorts_all_runs_and_the_way_back_shows_the_same(page, runs):
    home(page, runs, 3)
    page.click(".sort", "Took")
    assert shown(page, 3)[0] == "write the docs"
    page.click(".sort", "Errors")
    page.wait(f"{ROWS}[0] === 'fix the importer'")
    page.click(".sort", "Errors")
    page.wait(f"{ROWS}[0] === 'review the change'")
    page.click("a.row")
    page.wait(f"{V}?.history")
    page.click(".back")
    page.wait(f"{V}?.sort === 'errors' && {ROWS}[0] === 'review the change'")
    assert page.problems == []


def test_two_runs_that_are_ticked_are_compared_on_a_page_aligned_by_call(page, runs):
    home(page, runs, 3)
    for title in ("fix the importer", "write the docs"):
        page.click(f"input[aria-label='Compare {title}']")
    page.click(".picked a")
    page.wait("document.querySelector('.steps-of')")
    words = page.text("main.compared")
    assert "They differ from the first request on" in words
    assert "calls of Bash" in words
    steps = page.ask(
        "Array.from(document.querySelectorAll('.step'), (each) => each.innerText.replace(/\\s+/g,"
        " ' '))"
    )
    assert any("fix the importer" in step for step in steps)
    page.click(".step a")
    page.wait(f"{V}?.history")
    assert page.problems == []


def test_a_wrong_word_is_named_and_the_list_stays(page, runs):
    home(page, runs, 3)
    page.search("state:none")
    page.wait(
        "document.querySelector('.above .problem').innerText.includes('state:none is not known')"
    )
    assert len(page.ask(ROWS)) == 3


def test_a_screen_reader_is_told_each_run_with_units(page, runs):
    home(page, runs, 3)
    links = [one.name for one in tree(page) if one.role == "link"]
    assert any("fix the importer" in name and "2 errors" in name for name in links)
    boxes = {one.name for one in tree(page) if one.role == "checkbox"}
    assert "Compare write the docs" in boxes


def test_only_rows_in_sight_are_elements_and_pages_follow(page, stored, serve):
    for number in range(130):
        url = stored(f"run {number:03}", run(f"run {number:03}", number))
    home(page, serve(url), 130)
    assert page.ask("document.querySelectorAll('.item').length") < 60
    page.run(f"{V}.list.scrollTop = {V}.list.scrollHeight")
    page.wait(f"{ROWS}.includes('run 000')")


@pytest.mark.parametrize("size", SIZES)
def test_a_row_fits_its_line(chromium, runs, size):
    with chromium.new_page(*SIZES[size]) as page:
        home(page, runs, 3)
        assert page.ask("document.documentElement.scrollWidth <= innerWidth")
        heights = "[each.scrollHeight, each.clientHeight + 1]"
        for whole, seen in page.ask(
            f"Array.from(document.querySelectorAll('.item'), (each) => {heights})"
        ):
            assert whole <= seen
