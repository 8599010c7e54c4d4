"""The page at first reading: numbers that add up, titles that differ, figures with their source, and phones."""

from __future__ import annotations

import re

import pytest

from foldlog._page.report import write_report
from foldlog.eventstore import Action, CondensationAction, DocumentChanges, Message, open_store
from foldlog.projections import Views
from tests.browser.server import serving
from tests.browser.states import LINES, SAMPLE, SIZES, V, home, sample
from tests.foldlog.formats.reading import histories_at
from tests.page_samples import HOSTILE, hostile_history, usual_history

SCROLLERS = """Array.from(document.querySelectorAll('body *')).filter((each) =>
  /auto|scroll/.test(getComputedStyle(each).overflowY) && each.clientHeight && each.scrollHeight > each.clientHeight + 1
).map((each) => each.className)"""
TOLD = f"{V}.rows.map((one) => {V}.nodes.get(one.conversation).node.querySelector('.name').innerText)"


@pytest.mark.parametrize("events", [sample, usual_history, hostile_history], ids=["sample", "usual", "hostile"])
def test_the_numbers_of_a_version_add_up(page, report, events):
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


MEANS = "Saved: the View before each condensation less the View after it, estimated event by event (≈)."


def told_in(page, selector: str) -> str:
    return page.text(selector).replace("\N{NO-BREAK SPACE}", " ")


def test_totals_are_of_the_version_that_is_open_and_the_others_say_whole_history(page, report):
    page.open(report(sample()))
    sizes = page.ask(f"Array.from({V}.history.total)")
    made = (93, 152, 198, 240, 280)
    for version, whole in ((199, False), (286, True)):
        page.run(f"{V}.go({version})")
        before = [at for at in made if at < version]
        assert page.ask("document.querySelectorAll('.detail tbody tr').length") == len(before)
        assert page.ask(f"{V}.history.savingsAt({version}).saved") == sum(sizes[at] - sizes[at + 1] for at in before)
        moment, *others = page.ask("Array.from(document.querySelectorAll('p.about'), (each) => each.innerText)")
        start = "Whole history: " if whole else "Up to version 199: "
        assert moment.startswith(f"{start}{len(before)} condensations saved ≈"), moment
        assert moment.endswith(MEANS)
        assert len(others) == (0 if whole else 1)
        assert all(other.startswith("Whole history: 5 condensations saved ≈") for other in others)
    assert told_in(page, ".facts").startswith("Whole history: 2026-02-17 · 286 events · 5 condensations")
    page.open(report([*sample(), DocumentChanges(changed={"attributes": {"value": {"incomplete": "1 record"}}})]))
    assert told_in(page, ".facts").startswith("Whole history: 2026-02-17 · 287 events · 5 condensations")
    assert "Last event: 2026-02-17" in told_in(page, ".when")
    page.run(f"{V}.go(60)")
    first, other = page.ask("Array.from(document.querySelectorAll('p.about'), (each) => each.innerText)")
    assert first.startswith("Up to version 60: no condensation. Largest View: version 59,")
    assert "Largest View: version 152," in other
    page.run(f"{V}.choose(198, 246)")
    assert "stands at version 246 (whole history: until version 281)" in told_in(page, ".about")
    page.run(f"{V}.choose(198, 286)")
    assert "stood until version 281" in told_in(page, ".about")
    page.run(f"{V}.choose(198, 100)")
    assert "comes at version 199" in told_in(page, ".about")


def test_saved_is_one_measure_beside_what_a_condensation_recorded(page, report):
    some = [Message(source="user", content="word " * 40) for number in range(5)]
    told = {"tokens_before": 900, "tokens_after": 300, "cost": 0.25}
    some.append(CondensationAction(forgotten_event_ids=(1,), metadata=told))
    some.append(CondensationAction(forgotten_event_ids=(2,)))
    page.open(report(some))
    sizes = page.ask(f"Array.from({V}.history.total)")
    each = sizes[5] - sizes[6]
    assert each == sizes[6] - sizes[7] > 40
    words = told_in(page, ".detail")
    assert f"2 condensations saved ≈ {2 * each} tokens; cost $0.2500 (recorded by 1 of them)." in words
    assert page.ask("Array.from(document.querySelectorAll('tbody tr'), (row) => row.children[3].innerText)") == 2 * [
        f"≈\N{NO-BREAK SPACE}{each}"
    ]
    page.run(f"{V}.choose(5)")
    words = told_in(page, ".about")
    assert f"saved\n≈ {each} tokens" in words
    assert "its own count\n900 → 300 tokens of its prompt" in words
    assert "sent\n5 events → 4 events" in words


@pytest.mark.parametrize("size", SIZES)
def test_a_page_tells_which_models_were_called_and_with_how_many_tokens(chromium, report, size):
    usage = {"prompt_tokens": 1_200, "cached_tokens": 800, "completion_tokens": 34}
    some = [
        Message(source="agent", content="hi", meta={"model": f"m<{n}>", "usage": usage, "cost": 0.25}) for n in "112"
    ]
    some += [Message(source="agent", content="hm", meta={"model": HOSTILE[0], "usage": "many", "cost": "free"})]
    some.append(CondensationAction(forgotten_event_ids=(1,), summary="it", summary_offset=0))
    with chromium.new_page(*SIZES[size]) as page:
        page.open(report(some))
        told = page.ask("Array.from(document.querySelectorAll('[aria-label=Models] > *'), (one) => one.textContent)")
        assert told[:4] == [
            *("m<1>", "2 calls, 2.4k tokens in, 1.6k of them cached, 68 out, cost $0.5000"),
            *("m<2>", "1 call, 1.2k tokens in, 800 of them cached, 34 out, cost $0.2500"),
        ]
        for event, words in (
            (0, "Model: m<1>, 1.2k tokens in, 800 of them cached, 34 out, cost $0.2500"),
            (3, f"Model: {HOSTILE[0]}"),
            (-6, "this is that of condensation 4"),
        ):
            page.run(f"{V}.choose({event})")
            assert words in page.ask("document.querySelector('.detail .body').textContent")
        assert page.ask("window.attacked") is None


def test_home_and_the_page_count_the_same_events(page, serve, stored):
    stored("waiting", [Message(source="user", content="go"), Action(tool="t", call_id="1")])
    stored("sample", iter(sample()))
    url = stored("usual", usual_history())
    address = serve(url)
    home(page, address, 3)
    cells = "(name) => document.querySelector(`a.row[href$='=${name}'] .c-sent span`).textContent"
    told = {name: page.ask(f"({cells})('{name}')") for name in ("waiting", "sample", "usual")}
    assert told["waiting"] == "1"
    assert told["sample"] == "19 + 1"
    for name, sent in told.items():
        page.open(f"{address.split('?')[0]}?id={name}")
        page.wait(f"{V}.history")
        page.settle()
        numbers = re.findall(r"(\d+) (?:event|summar)", page.text(".sentence"))
        assert " + ".join(numbers) == sent


def test_bars_of_reasons_are_as_long_as_the_numbers_beside_them_say(page, serve, stored):
    some = [Message(source="user", content="word " * 10 * number) for number in range(9)]
    for at, reason in ((1, "often"), (2, "often"), (3, "often"), (8, "once")):
        some.append(CondensationAction(forgotten_event_ids=(at,), metadata={"reason": reason}))
    url = stored("c", some)
    page.open(serve(url))
    page.wait(f"{V}.counted === 1 && document.querySelector('.meter')")
    page.settle()
    reasons = page.ask("fetch('api/fleet').then((reply) => reply.json())")["reasons"]
    assert [(one["reason"], one["condensations"]) for one in reasons] == [("once", 1), ("often", 3)]
    panel = "document.querySelector('.panel')"
    assert page.ask(f"{panel}.querySelector('h2').innerText") == "Tokens saved by reason"
    widths = page.ask(f"Array.from({panel}.querySelectorAll('.meter'), (each) => each.style.width)")
    most = reasons[0]["tokens_saved"]
    assert widths == [f"{round(100 * one['tokens_saved'] / most)}%" for one in reasons]
    assert page.ask(f"Array.from({panel}.querySelectorAll('.figure'), (each) => each.innerText)") == [
        f"≈ {one['tokens_saved']}" for one in reasons
    ]
    told = page.ask(f"Array.from({panel}.querySelectorAll('dt'), (each) => each.innerText)")
    assert told == ["once · 1 condensation", "often · 3 condensations"]


@pytest.mark.parametrize("size", SIZES)
def test_home_says_that_it_still_counts(chromium, stored, size):
    stored("usual", usual_history())
    url = stored("other", [Message(source="user", content="a question")])
    with serving(url) as address, chromium.new_page(*SIZES[size]) as page:
        home(page, address, 2)
        page.wait("document.querySelector('.counting').getClientRects().length === 0")
        assert page.ask("document.querySelectorAll('.partial').length") == 0
        assert "so far" not in page.text(".fleet")
        page.ask(
            "fetch('api/fleet').then((reply) => reply.json()).then((fleet) => "
            f"{V}.showFleet({{...fleet, counted: 1, spent: {{...fleet.spent, prompt_tokens: 1200}}}}))"
        )
        assert "Still counting: 1 of 2 conversations." in page.text(".counting")
        assert page.ask("document.querySelector('progress').position") == 0.5
        tiles = page.ask(
            "[...document.querySelectorAll('.partial')].map((tile) => [...tile.children].map((one) => one.textContent))"
        )
        values, names = zip(*tiles, strict=True)
        costs = "cost of 1.2k tokens spent", "cost of condensing"
        assert names == ("events", "tokens sent now", "condensations", "tokens saved", *costs)
        assert all(value.endswith("so far") for value in values)
        assert values[-1] == "$0.0123 so far"  # one of two condensations recorded what it cost
        page.ask(
            "fetch('api/fleet').then((reply) => reply.json()).then((fleet) => "
            f"{V}.showFleet({{...fleet, needs_key: 1}}))"
        )
        told = page.ask("[...document.querySelectorAll('.tile')].map((tile) => tile.textContent)")
        assert told[0] == "2conversations, 1 without a key"
        assert "of 2 conversations" in "".join(told), "how many lack their usage"
        page.ask(  # the figures are answered before the list
            "void (window.answered = fetch, window.fetch = async (path, ...rest) => {"
            " const reply = await answered(path, ...rest);"
            " if (!path.endsWith('fleet')) return reply;"
            " window.fetch = answered;"
            " return new Response(JSON.stringify({...(await reply.json()), counted: 1})); })"
        )
        assert not page.ask(f"{V}.refresh().then(() => document.querySelector('.counting').hidden)")
        page.wait("document.querySelector('.counting').hidden")


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
        home(page, address, 2)
        assert page.ask(SCROLLERS) == []
        page.open(f"{address.split('?')[0]}?id=sample")
        page.wait(f"{LINES}.length")
        page.run(f"{V}.toggleGap({V}.list.entries.find((one) => one.pieces).gap)")
        assert page.ask(SCROLLERS) == []
        assert page.ask("document.documentElement.scrollHeight") > 250 * 26
        page.run("scrollTo(0, 4000)")
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
        home(page, address, 5)
        for order in ("events", "title"):
            page.run(f"{V}.sortBy('{order}')")
            places = "Array.from(document.querySelectorAll('.lines .item'), (each) => Number(each.ariaPosInSet))"
            assert page.ask(places) == [1, 2, 3, 4, 5], "Tab goes through the rows as they are read"
        names = [" ".join(name.replace(",", "").split()) for name in page.ask(TOLD)]
        assert names[0].startswith("Find out why")
        assert [re.sub(r"^.*… ", "", name) for name in names[3:]] == ["the clock is late", "the door is open"]
        assert sorted(name.split(":")[0].strip() for name in names[1:3]) == ["c/7", "c/8"]
        cells = (
            "Array.from(document.querySelectorAll('.row.head .cell, a.row .cell')).filter((each) => each.textContent)"
        )
        assert page.ask(f"{cells}.length") > 30
        assert page.ask(f"{cells}.filter((each) => !each.getClientRects().length).length") == 0


def test_conversations_without_times_come_last_in_either_order(page, serve, tmp_path):
    source = tmp_path / "chat.json"
    source.write_text('{"messages": [{"role": "user", "content": "no time"}]}')
    url = f"sqlite:///{tmp_path}/some.db"
    (undated,), (local,) = histories_at(source), histories_at(SAMPLE)
    with open_store(url) as store:
        store.register(Views(store))
        store.ingest("usual", usual_history())
        store.ingest("undated", iter(undated.events))
        store.ingest("local", iter(local.events))
    home(page, serve(url), 3)
    ids = f"{V}.rows.map((one) => one.conversation)"
    assert page.ask(ids) == ["usual", "local", "undated"]
    assert "no times" in page.text(".rows")
    assert re.findall(r"\d\d:\d\d\S?", page.text(".rows")) == ["09:30", "10:32"]
    page.ask(f"{V}.sortBy('updated_at')")
    assert page.ask(ids) == ["local", "usual", "undated"]


def test_another_order_of_the_list_begins_at_its_top(page, serve, stored):
    for n in range(60):
        url = stored(f"c{n}", [Message(source="user", content=f"question {n}")])
    home(page, serve(url), 60)
    page.run(f"{V}.list.scrollTop = 1e6")
    assert page.ask(f"{V}.list.scrollTop") > 0
    page.click(".sort", "Tokens")
    page.settle()
    assert page.ask(f"{V}.list.scrollTop") == 0
