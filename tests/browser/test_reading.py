"""The page at first reading: numbers that add up, titles that differ, figures with their source, and phones."""

from __future__ import annotations

import re

import pytest

from eventstore import CondensationAction, Message, open_store
from foldlog.page.report import write_report
from projections import Views
from tests.browser.server import serving
from tests.browser.states import LINES, SIZES, V, sample
from tests.page_samples import hostile_history, usual_history

SCROLLERS = """Array.from(document.querySelectorAll('body *')).filter((each) =>
  /auto|scroll/.test(getComputedStyle(each).overflowY) && each.clientHeight && each.scrollHeight > each.clientHeight + 1
).map((each) => each.className)"""
TOLD = f"{V}.rows.map((one) => {V}.nodes.get(one.id).node.querySelector('.name').innerText)"


@pytest.mark.parametrize("events", [sample, usual_history, hostile_history], ids=["sample", "usual", "hostile"])
def test_the_numbers_of_a_version_add_up(chromium, report, events):
    with chromium.new_page() as page:
        page.open(report(events()))
        told = page.ask(
            f"""(async () => {{
              const told = [];
              for (let version = 1; version <= {V}.history.version; version += 1) {{
                {V}.go(version); {V}.draw();
                told.push([version, {V}.sum.firstChild.textContent, {V}.sentence.textContent]);
              }}
              return told;
            }})()"""
        )
    assert len(told) > 40
    for version, sum_of, sentence in told:
        whole, parts = sum_of.replace(",", "").split(": ")
        assert whole == f"{version} event{'s' if version > 1 else ''}"
        numbers = [int(re.match(r"\d+", part)[0]) for part in parts.split(" + ")]
        assert sum(numbers) == version, sum_of
        sent = int(re.search(r"is sent (\d+) event", sentence)[1])
        assert sent == (numbers[0] if "sent" in parts.split(" + ")[0] else 0)


def test_the_page_says_what_condensing_saved_and_that_no_cost_was_recorded(chromium, report):
    with open_store("memory:") as store:
        store.ingest("c", iter(sample()))
        lives = Views(store).lifetimes("c")
    with chromium.new_page() as page:
        page.open(report(sample()))
        told = page.text(".detail")
        ids = page.ask(f"{V}.history.condensations.map((each) => each.id)")
        saved = page.ask(f"{V}.history.tokens_saved")
        assert saved == sum(page.ask(f"{V}.history.total[{at}] - {V}.history.total[{at + 1}]") for at in ids)
        assert (
            "The 5 condensations saved ≈ 53k tokens (derived from the View before and after each; not recorded)" in told
        )
        assert "What that cost was not recorded." in told
        assert len(ids) == 5
        assert lives.version == 286


def test_recorded_figures_are_told_as_recorded(chromium, report):
    some = [Message(source="user", content=str(number)) for number in range(5)]
    told = {"tokens_before": 900, "tokens_after": 300, "cost": 0.25}
    some.append(CondensationAction(forgotten_event_ids=(1,), metadata=told))
    with chromium.new_page() as page:
        page.open(report(some))
        words = page.text(".detail")
        assert "The condensation saved 600 tokens (as recorded) and cost $0.2500, as recorded." in words


@pytest.mark.parametrize("size", SIZES)
def test_no_label_is_crossed_by_the_line_of_the_version(chromium, tmp_path, size):
    with open_store("memory:") as store:
        store.ingest("c", iter(sample()))
        write_report(store, "c", tmp_path / "c.html", limit=20_000)
    with chromium.new_page(*SIZES[size]) as page:
        page.open((tmp_path / "c.html").as_uri())
        labels, crossed = page.ask(
            f"""(() => {{
              const chart = {V}.chart, crossed = [];
              for (let version = 0; version <= {V}.history.version; version += 1) {{
                const x = chart.middle(version), end = chart.lineEnd(version);
                const spots = chart.labelSpots.filter(([from, to, above]) => from < x && x < to && above < end);
                if (spots.length) crossed.push(version);
              }}
              return [chart.labelSpots.length, crossed];
            }})()"""
        )
    assert labels > 2
    assert crossed == []


def test_on_a_phone_only_the_page_scrolls(chromium, stored):
    stored("sample", iter(sample()))
    url = stored("usual", usual_history())
    with serving(url) as address, chromium.new_page(*SIZES["phone"]) as page:
        page.open(address)
        page.wait(f"{V}.counted === 2")
        assert page.ask(SCROLLERS) == []
        page.open(f"{address.split('?')[0]}?id=sample")
        page.wait(f"{LINES}.length")
        page.ask(f"{V}.toggleGap({V}.list.entries.find((one) => one.ids).gap)")
        page.settle()
        assert page.ask(SCROLLERS) == []
        assert page.ask("document.documentElement.scrollHeight") > 250 * 26
        page.ask("scrollTo(0, 4000)")
        page.settle()
        visible = (
            "Array.from(document.querySelectorAll('.line')).filter((each) => each.getBoundingClientRect().top > 60)"
        )
        chosen = page.ask(f"{visible}[0].dataset.place")
        page.ask(f"{visible}[0].click()")
        page.wait("document.querySelector('.body pre')")
        assert page.ask("document.querySelector('.list').getClientRects().length") == 0
        assert 0 <= page.ask("document.querySelector('.detail').getBoundingClientRect().top") < 200
        assert page.ask(SCROLLERS) == []
        page.click(".heading .close")
        page.settle()
        assert page.ask("scrollY") == 4000
        assert page.ask(f"{visible}[0].dataset.place") == chosen
        assert page.problems == []


@pytest.mark.parametrize("size", SIZES)
def test_the_list_tells_titles_apart_and_shows_every_figure(chromium, stored, size):
    begun = "We solve the following issue within our repository. The issue: "
    for name, text in {"a": "the clock is late", "b": "the door is open", "c/7": "no light", "c/8": "no light"}.items():
        url = stored(name, iter([Message(source="user", content=begun + text)]))
    stored("z", usual_history())
    with serving(url) as address, chromium.new_page(*SIZES[size]) as page:
        page.open(address)
        page.wait(f"{V}.counted === 5")
        page.ask(f"{V}.sortBy('title')")
        page.settle()
        names = [" ".join(name.replace(",", "").split()) for name in page.ask(TOLD)]
        assert names[0].startswith("Find out why")
        assert [re.sub(r"^.*… ", "", name) for name in names[3:]] == ["the clock is late", "the door is open"]
        assert sorted(name.split(":")[0].strip() for name in names[1:3]) == ["c/7", "c/8"]
        cells = (
            "Array.from(document.querySelectorAll('.row.head .cell, a.row .cell')).filter((each) => each.textContent)"
        )
        assert page.ask(f"{cells}.length") > 30
        assert page.ask(f"{cells}.filter((each) => !each.getClientRects().length).length") == 0


def test_conversations_without_times_come_last_in_either_order(chromium, tmp_path):
    source = tmp_path / "chat.json"
    source.write_text('{"messages": [{"role": "user", "content": "no time"}]}')
    from foldlog.formats import open_sources

    url = f"sqlite:///{tmp_path}/some.db"
    (undated,) = open_sources([source])
    with open_store(url) as store:
        store.register(Views(store))
        store.ingest("usual", usual_history())
        store.ingest("undated", iter(list(undated.events())))
    with serving(url) as address, chromium.new_page() as page:
        page.open(address)
        page.wait(f"{V}.counted === 2")
        page.settle()
        ids = f"{V}.rows.map((one) => one.id)"
        assert page.ask(ids) == ["usual", "undated"]
        assert "no times" in page.text(".rows")
        page.ask(f"{V}.sortBy('updated_at')")
        assert page.ask(ids) == ["usual", "undated"]


def test_another_order_of_the_list_begins_at_its_top(chromium, stored):
    for n in range(60):
        url = stored(f"c{n}", [Message(source="user", content=f"question {n}")])
    with serving(url) as address, chromium.new_page() as page:
        page.open(address)
        page.wait(f"{V}.counted === 60")
        page.ask(f"{V}.list.scrollTop = 1e6")
        page.settle()
        assert page.ask(f"{V}.list.scrollTop") > 0
        page.click(".sort", "Tokens")
        page.settle()
        assert page.ask(f"{V}.list.scrollTop") == 0
