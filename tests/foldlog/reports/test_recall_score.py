"""The terms that were needed again, in histories that were made so that the answer is known."""

import sys
from itertools import pairwise

import pytest
from hypothesis import given
from msgspec.structs import astuple, replace

from benchmarks.compaction import Copier
from foldlog._reports import recall_score
from foldlog._reports.recall_score import AGES, is_near, pairs_of, words_beside
from foldlog._reports.replays import Replaying
from foldlog.condensers import LLMSummarizingCondenser
from foldlog.condensers.config.registry import condenser_from_config
from foldlog.eventstore import Action, Observation
from foldlog.replays import replay
from tests.foldlog.reports.test_replays import Counted
from tests.how_many import examples
from tests.properties.histories import ordered_histories, tidy_histories
from tests.said import said

CALLS = 80


def replayed(events, **config):
    return replay(events, condenser_from_config(config), Counted())


def name(number):
    return f"src/part_{number:04}.py"


def lag(number):
    """Return how many calls earlier the call is whose name this call uses: 1, 3, … 15. Each name is
    used once.
    """
    return 2 * (number % 8) + 1


def call(place, arguments, result, reply=None):
    """A call and its result."""
    call_id = f"c{place}"
    return [
        Action(
            id=place,
            tool="read",
            arguments=arguments,
            call_id=call_id,
            response_id=reply or call_id,
        ),
        Observation(id=place + 1, tool="read", call_id=call_id, cause=place, content=result),
    ]


def looking_back():
    """Return calls whose results each show a new name. From the ninth on, each uses the name of an
    earlier one.
    """
    events = [said("begin", id=0)]
    for number in range(CALLS):
        arguments = {"path": name(number - lag(number))} if number >= 8 else {}
        events += call(len(events), arguments, name(number))
    return events


def test_window_names_missing_terms_with_events():
    """The head is one event; a call and its result are two."""
    lags = [lag(number) for number in range(8, CALLS)]
    for window in (2, 6, 11):
        limits = {"max_events": 1 + 2 * window, "keep_first": 1}
        result = replayed(looking_back(), type="recent_events", **limits)
        missed = sum(calls_ago > window for calls_ago in lags)
        assert (len(result.needed), len(result.missing)) == (len(lags), missed)
        assert result.needed_shown == pytest.approx(100 * (1 - missed / len(lags)))
    result = replayed(looking_back(), type="recent_events", max_events=5)
    used = 9  # the first call that looks back further than two calls: three
    assert astuple(result.missing[0]) == (
        name(used - 3),
        1 + 2 * used,
        (2 + 2 * (used - 3),),
        False,
    )


LAST = 40
"""The number of events, at the end of a replay, whose work ``steps_of_last_events`` counts."""


def steps_of_last_events(events):
    """Return how many instructions of ``recall_score`` a replay runs for the last events, if each
    prompt shows the newest six.
    """
    replaying = Replaying(condenser_from_config({"type": "recent_events", "max_events": 6}))
    steps = 0

    def count(frame, kind, _):
        nonlocal steps
        if frame.f_code.co_filename != recall_score.__file__:
            return None
        frame.f_trace_opcodes = True
        steps += kind == "opcode"
        return count

    for event in events[:-LAST]:
        replaying.take(event)
    tracing_before = sys.gettrace()
    sys.settrace(count)
    try:
        for event in events[-LAST:]:
            replaying.take(event)
    finally:
        sys.settrace(tracing_before)
    return steps


def test_a_name_in_every_command_costs_no_more_in_a_longer_history():
    def commands(count):
        events = []
        for number in range(count):
            arguments = {"folder": "src/work_dir", "path": name(number)}
            events += call(len(events), arguments, "done")
        return events

    short, long = (steps_of_last_events(commands(count)) for count in (50, 400))
    assert short > 0
    assert long == pytest.approx(short, rel=0.1)


def test_masked_results_count_as_missing():
    result = replayed(looking_back(), type="noop")
    assert (result.missing, result.needed_shown) == ((), 100)
    masked = replayed(looking_back(), type="observation_masking", attention_window=2)
    recent = replayed(looking_back(), type="recent_events", max_events=5)
    assert {term.term for term in masked.missing} == {term.term for term in recent.missing}


@pytest.mark.parametrize("inputs", [False, True])
def test_cleared_event_can_be_recalled_by_id(inputs):
    long = [
        replace(event, content=event.content + " word" * 90)
        if isinstance(event, Observation)
        else event
        for event in looking_back()
    ]
    settings = {"trigger": 1, "keep": 2, "clear_tool_inputs": inputs}
    result = replayed(long, type="clear_tool_uses", **settings)
    assert result.missing
    assert result.needed_shown < result.needed_named == 100


def test_repeated_tokens_are_in_the_beginning_that_stayed():
    whole = replayed(looking_back(), type="noop")
    assert [turn.repeated for turn in whole.turns] == [
        0,
        *(turn.tokens for turn in whole.turns[:-1]),
    ]
    condensed = replayed(looking_back(), type="amortized_forgetting", max_size=20)
    assert condensed.condensations
    for before, turn in pairwise(condensed.turns):
        stayed = turn.event_id not in condensed.condensations
        assert (turn.repeated == before.tokens) == stayed
    assert condensed.tokens_repeated < whole.tokens_repeated


@examples(60)
@given(ordered_histories | tidy_histories)
def test_without_condenser_only_unsendable_is_missing(events):
    result = replayed(events, type="noop")
    sent = {event.id for event in result.final}
    assert all(
        not sent.issuperset(term.occurred) or result.final.open_calls for term in result.missing
    )


def test_copier_keeps_user_words_and_ids():
    events = looking_back()
    result = replay(events, LLMSummarizingCondenser(Copier(), max_size=10, keep_first=0))
    summary = next(event for event in result.final if event.id < 0)
    assert summary.content.splitlines()[0].startswith("User:")
    assert summary.content.splitlines()[0].endswith("[0]")
    assert result.needed
    assert result.missing == ()


# --- facts ---


def test_words_beside_come_from_the_last_line():
    texts = ["see a/path.py first\nthen MAX_SIZE", "MAX_SIZE = 12 of kites\n  a/path.py\n"]
    assert words_beside(texts, {"a/path.py", "MAX_SIZE", "getValue"}) == {
        "a/path.py": set(),
        "MAX_SIZE": {"12"},
        "getValue": set(),
    }


def test_short_words_are_beside_no_fact():
    """Such words stand beside old values too."""
    texts = ["server_port 9191 and retry_limit 7"]
    assert words_beside(texts, {"retry_limit"}) == {"retry_limit": {"9191", "7"}}
    old = "known: server_port 8080 and retry_limit 3"
    assert not is_near(old, "retry_limit", {"9191", "7"})


# --- plain words, numbers and ages ---


def test_facts_in_plain_words_are_neighbours():
    found = pairs_of(
        ["The harbour falcon is teal.\nWe listen at port 8080, not 443; see src/a.py x1"]
    )
    assert found == {
        ("harbour", "falcon"): "words",
        ("falcon", "teal"): "words",
        ("listen", "port"): "words",
        ("port", "8080"): "numbers",
    }


def walks(steps, used):
    """Return a walk that sees another bird at each step. At the end it names the birds of the steps
    ``used`` again.
    """
    events = [said("Count the birds.", id=0)]
    for number in range(steps):
        bird = f"{WORDS[number // 8]} {WORDS[8 + number % 8]}"
        events += call(len(events), {}, f"a {bird} sat on post {100 + number}")
    for number in used:
        bird = f"{WORDS[number // 8]} {WORDS[8 + number % 8]}"
        events += call(len(events), {"note": f"a {bird} sat on post {100 + number}"}, "noted")
    return events


WORDS = [
    "amber",
    "brisk",
    "civil",
    "dusty",
    "early",
    "faint",
    "giant",
    "humid",
    "falcon",
    "heron",
    "otter",
    "magpie",
    "robin",
    "badger",
    "lynx",
    "raven",
]


@pytest.mark.parametrize(
    "window, shown", [(200, {0: 1, 4: 1, 21: 1, 61: 1}), (60, {0: 1, 4: 1, 21: 1, 61: 0})]
)
def test_recall_has_the_age_of_each_fact(window, shown):
    events = walks(60, (59, 57, 49, 29))
    result = replayed(events, type="recent_events", max_events=window, keep_first=1)
    # A step is two events, and each use moves the earlier steps two events further away.
    assert {age for _, age in result.recall} == {*shown}
    for (kind, age), (needed, seen) in result.recall.items():
        assert kind in ("words", "numbers")
        assert needed == 1
        assert seen == shown[age], (kind, age)
    assert result.shown_of("numbers") == 100 * sum(shown.values()) / 4
    assert result.shown_of("words", least_age=AGES[-1]) == 100 * shown[61]
    assert result.shown_of("names") is None


def test_an_expression_is_no_fact():
    events = [said("begin", id=0)]
    for number in range(6):
        events += call(len(events), {"note": "please look further"}, f"result {number}")
    needed = replayed(events, type="noop").recall
    assert sum(count for count, _ in needed.values()) == 2 * 3, "the first three uses of two pairs"


@pytest.mark.parametrize(
    "text, near",
    [
        ("kites of MAX_SIZE", True),
        ("MAX_SIZE\n\n- kites", True),
        ("kites " + "x" * 130 + " MAX_SIZE", False),
        ("kites xMAX_SIZE", False),
        ("MAX_SIZE, kitesurf", False),
        ("MAX_SIZE " + "x" * 130 + " kites MAX_SIZE", True),
        ("see MAX_SIZE. Kites: kites", True),
    ],
)
def test_fact_needs_a_word_beside_it(text, near):
    assert is_near(text, "MAX_SIZE", {"kites"}) == near
