"""The page at first reading: numbers that add up, titles that differ, figures with their source,
and phones.
"""

import re

import pytest

from foldlog.eventstore import CondensationAction, DocumentChanges, Message, Origin, Retraction
from foldlog.eventstore.usage import WRITTEN_AGAIN
from tests.browser.states import V, sample
from tests.page_samples import HOSTILE, hostile_history, usual_history
from tests.said import replied, said

DAY = "Whole history: 2026-02-17 · took 1 h 18 m"


@pytest.mark.parametrize(
    "events", [sample, usual_history, hostile_history], ids=["sample", "usual", "hostile"]
)
def test_the_numbers_of_a_version_add_up(page, report, events):
    page.open(report(events()))
    rows = page.ask(f"""(async () => {{
              const rows = [];
              for (let version = 1; version <= {V}.history.version; version += 1) {{
                {V}.go(version); {V}.draw();
                const pairs = Array.from(document.querySelectorAll('.pair .number'), (one) => one.innerText);
                rows.push([version, document.querySelector('.sent').textContent, pairs.filter((text) => text.includes('event'))]);
              }}
              return rows;
            }})()""")
    assert len(rows) > 40
    for version, sent, others in rows:
        number = re.search(r"(\d+) events?\b(?: and \d+ summar\w+)? sent", sent)
        numbers = [int(other.split()[0]) for other in others]
        assert sum(numbers) + (int(number[1]) if number else 0) == version, (sent, others)


MEANS = "Saved: the tokens of the View before each condensation minus the tokens after it, estimated event by event (≈)."


def text_of(page, selector):
    """Return the text of an element, with plain spaces."""
    return page.text(selector).replace("\N{NO-BREAK SPACE}", " ")


def test_totals_say_which_version_they_are_of(page, report):
    page.open(report(sample()))
    sizes = page.ask(f"Array.from({V}.history.total)")
    versions = (93, 152, 198, 240, 280)
    for version, whole in ((199, False), (286, True)):
        page.run(f"{V}.go({version})")
        before = [at for at in versions if at < version]
        assert page.ask("document.querySelectorAll('.knew tbody tr').length") == len(before)
        assert page.ask(f"{V}.history.savingsAt({version}).saved") == sum(
            sizes[at] - sizes[at + 1] for at in before
        )
        moment, *others = page.ask(
            "Array.from(document.querySelectorAll('p.about'), (each) => each.innerText)"
        )
        start = "Whole history: " if whole else "Up to version 199: "
        assert moment.startswith(f"{start}{len(before)} condensations saved ≈"), moment
        assert moment.endswith(MEANS)
        assert len(others) == (0 if whole else 1)
        assert all(other.startswith("Whole history: 5 condensations saved ≈") for other in others)
    facts = text_of(page, ".facts")
    assert "Whole history: 2026-02-17 · took 1 h 18 m · 286 events · 5 condensations" in facts
    page.open(
        report(
            [
                *sample(),
                DocumentChanges(changed={"attributes": {"value": {"incomplete": "1 record"}}}),
            ]
        )
    )
    assert f"{DAY} · 287 events · 5 condensations" in text_of(page, ".facts")
    assert "Last event before: 2026-02-17" in text_of(page, ".when")
    page.run(f"{V}.go(60)")
    first, other = page.ask(
        "Array.from(document.querySelectorAll('p.about'), (each) => each.innerText)"
    )
    assert first.startswith("Up to version 60: no condensation. Largest View: version 59,")
    assert "Largest View: version 152," in other
    page.run(f"{V}.choose(198, 246)")
    assert "stands at version 246 (whole history: until version 281)" in text_of(page, ".knew")
    page.run(f"{V}.choose(198, 286)")
    assert "stood until version 281" in text_of(page, ".knew")
    page.run(f"{V}.choose(198, 100)")
    assert "comes at version 199" in text_of(page, ".knew")


def test_saved_tokens_stand_beside_recorded_ones(page, report):
    some = [said("word " * 40) for number in range(5)]
    figures = {"tokens_before": 900, "tokens_after": 300, "cost": 0.25}
    some.append(CondensationAction(forgotten_event_ids=(1,), metadata=figures))
    some.append(CondensationAction(forgotten_event_ids=(2,)))
    page.open(report(some))
    sizes = page.ask(f"Array.from({V}.history.total)")
    each = sizes[5] - sizes[6]
    assert each == sizes[6] - sizes[7] > 40
    words = text_of(page, ".knew")
    assert (
        f"2 condensations saved ≈ {2 * each} tokens; cost $0.2500 (recorded by 1 of them)." in words
    )
    assert page.ask(
        "Array.from(document.querySelectorAll('tbody tr'), (row) => row.children[3].innerText)"
    ) == 2 * [f"≈\N{NO-BREAK SPACE}{each}"]
    page.run(f"{V}.choose(5)")
    words = text_of(page, ".knew")
    assert f"saved\n≈ {each} tokens" in words
    assert "its own count\n900 → 300 tokens of its prompt" in words
    assert "sent\n5 events → 4 events" in words


def test_page_names_models_with_their_tokens(sized, report):
    usage = {"prompt_tokens": 1_200, "cached_tokens": 800, "completion_tokens": 34}
    some = [replied("hi", meta={"model": f"m<{n}>", "usage": usage, "cost": 0.25}) for n in "112"]
    some += [
        Message(
            source="agent",
            content="hm",
            meta={"model": HOSTILE[0], "usage": "many", "cost": "free"},
        )
    ]
    some.append(CondensationAction(forgotten_event_ids=(1,), summary="it", summary_offset=0))
    sized.open(report(some))
    texts = sized.ask(
        "Array.from(document.querySelectorAll('[aria-label=Models] > *'), (one) => one.textContent)"
    )
    assert texts[:4] == [
        *("m<1>", "2 calls, 2.4k tokens in, 1.6k of them cached, 68 out, cost $0.5000"),
        *("m<2>", "1 call, 1.2k tokens in, 800 of them cached, 34 out, cost $0.2500"),
    ]
    for event, words in (
        (0, "Model: m<1>, 1.2k tokens in, 800 of them cached, 34 out, cost $0.2500"),
        (3, f"Model: {HOSTILE[0]}"),
    ):
        sized.run(f"{V}.choose({event})")
        sized.wait("document.querySelector('.called')")
        assert sized.ask("document.querySelector('.called').textContent") == words
    assert sized.ask("window.attacked") is None


def test_line_of_the_version_crosses_no_label(sized, report):
    sized.open(report(sample(), limit=20_000))
    labels, crossed = sized.ask(f"""(() => {{
          const chart = {V}.chart, crossed = [];
          for (let version = 0; version <= {V}.history.version; version += 1) {{
            const x = chart.strip.at(version), end = chart.lineEnd(version);
            const spots = chart.labelSpots.filter(([from, to, y]) => from < x && x < to && y - 6 < end);
            if (spots.length) crossed.push(version);
          }}
          return [chart.labelSpots.length, crossed];
        }})()""")

    assert labels > 2
    assert crossed == []


def test_condensation_that_an_import_took_back_has_no_savings(page, report):
    source = Origin(format="claude-code", id="c")
    page.open(
        report(
            [
                *(said(text) for text in ("one", "two", "three")),
                CondensationAction(forgotten_event_ids=(1,), origin=source),
                Retraction(version=2, reason=WRITTEN_AGAIN, origin=source),
                CondensationAction(forgotten_event_ids=(1,), origin=source),
            ]
        )
    )
    page.run(f"{V}.choose(3)")
    assert page.text(".knew h2") == "Condensation 3"
    words = "saved\nnot counted, because an import took the condensation back"
    assert words in text_of(page, ".knew")
