"""The sizes of a history's Views are stored, and a later count looks only at new events."""

import random

import pytest

import foldlog
from foldlog import Action, Annotation, CondensationAction, Message, Observation
from foldlog._reports.figures import view_tokens
from foldlog._reports.figures.tokens import event_tokens
from foldlog.projections import Views
from foldlog.projections.units import UnitsSoFar
from tests.conformance.conftest import noted
from tests.page_samples import hostile_history, usual_history


@pytest.fixture
def counted(monkeypatch):
    """The ids of the events whose tokens were counted."""
    ids = []

    def count(event):
        ids.append(event.id)
        return event_tokens(event)

    monkeypatch.setattr(view_tokens, "event_tokens", count)
    monkeypatch.setattr("foldlog._reports.figures.tokens.event_tokens", count)
    return ids


def figures_of(history):
    stats = history.stats()
    names = ("view_tokens", "peak_prompt_tokens", "peak_prompt_version", "max_input_tokens")
    return {name: getattr(stats, name) for name in names}


def turns(count):
    for number in range(count):
        usage = {"prompt_tokens": 100 + number % 7}
        yield Message(content=f"question {number}", source="user")
        yield Message(
            content="an answer " * (number % 5 + 1), source="agent", meta={"usage": usage}
        )


@pytest.mark.parametrize("events", [list(usual_history()), [*hostile_history(400)], [*turns(60)]])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_sizes_of_a_growing_history(events, seed, tmp_path):
    chance = random.Random(seed)
    with foldlog.open(str(tmp_path / "a.db")) as histories:
        history = histories.create("h")
        stop = 0
        while stop < len(events):
            start = stop
            stop += chance.choice((1, 1, 1, 2, 3, 5, 9, 30))
            history.append(events[start:stop])
            shown = figures_of(history)
            assert shown["view_tokens"] == Views(histories.store).lifetimes("h", event_tokens).sizes
            with foldlog.open("memory:") as others:
                other = others.create("h")
                other.append(events[:stop])
                assert figures_of(other) == shown


ODD = {
    "the name of a model with half a letter": Message(
        content="yes", source="agent", meta={"usage": {"prompt_tokens": 5}, "model": "m\ud83d"}
    ),
    "a window with more than 64 bits": Annotation(
        name="token_count", data={"info": {"model_context_window": 2**64}}
    ),
    "a limit with more than 64 bits": CondensationAction(
        forgotten_event_ids=(0,), metadata={"tokens_max": 2**64}
    ),
}


@pytest.mark.parametrize("event", ODD.values(), ids=ODD)
def test_odd_values_of_an_event_are_measured(event):
    with foldlog.open("memory:") as histories:
        history = histories["h"]
        history.append([*turns(2), event])
        measured = figures_of(history)
        assert figures_of(history) == measured, "the stored figures are read back"
        assert len(measured["view_tokens"]) == 6
        assert history.stats().max_input_tokens is None


def tangled(chance, count):
    """Yield calls of several replies whose results are late, missing or doubled, beside texts that
    stay with the next event.
    """
    for number in range(count):
        reply = chance.choice([None, "r1", f"r{number // 3}"])
        call_id = f"call {chance.randrange(max(1, number - 4), number + 2)}"
        match chance.randrange(6):
            case 0 | 1:
                thinks = chance.random() < 0.3
                yield Action(
                    tool="bash", arguments={"n": number}, call_id=call_id, source="agent",
                    response_id=reply, thinking=({"type": "thinking"},) if thinks else (),
                )  # fmt: skip
            case 2 | 3:
                yield Observation(content=f"result {number}", call_id=call_id)
            case 4:
                yield Message(content=f"text {number}", source=chance.choice(["agent", "user"]))
            case _:
                yield Message(content=f"note {number}", source="agent", stays_with_next=True)


@pytest.mark.parametrize("seed", range(8))
def test_sizes_of_units_that_new_events_extend(seed):
    chance = random.Random(seed)
    with foldlog.open("memory:") as histories:
        history = histories.create("h")
        history.append([Message(content="begin", source="user")])
        events = [*tangled(chance, 40)]
        while events:
            count = chance.choice((1, 1, 2, 4))
            history.append(events[:count])
            del events[:count]
            sizes = Views(histories.store).lifetimes("h", event_tokens).sizes
            assert figures_of(history)["view_tokens"] == sizes


def called(call_id, **options):
    return Action(tool="bash", call_id=call_id, source="agent", arguments={}, **options)


def result_of(call_id):
    return Observation(content=f"result of {call_id}", call_id=call_id)


@pytest.mark.parametrize(
    "events",
    [
        # The model refuses the loop, because the call "b" in it has no result.
        [
            called("a", thinking=({"type": "thinking", "signature": "x", "thinking": "so"},)),
            result_of("a"), called("b"), called("c"), result_of("c"),
        ],
        # The model gets the note with the next event of the agent.
        [
            Message(content="note", source="agent", stays_with_next=True),
            Message(content="text", source="agent"),
        ],
        [called("a"), called("b"), result_of("b"), result_of("a")],
    ],
    ids=["loop", "bond", "late result"],
)  # fmt: skip
def test_a_new_event_changes_what_is_sent_of_earlier_events(events):
    with foldlog.open("memory:") as histories:
        history = histories.create("h")
        history.append([Message(content="begin", source="user")])
        for event in events:
            history.append([event])
            sizes = Views(histories.store).lifetimes("h", event_tokens).sizes
            assert figures_of(history)["view_tokens"] == sizes


@pytest.mark.parametrize("earlier", [40, 160])
def test_a_growing_view_reads_no_unit_again(monkeypatch, earlier):
    with foldlog.open("memory:") as histories:
        history = histories.create("h")
        history.append([*turns(earlier), called("open")])
        history.stats()
        read = noted(monkeypatch, UnitsSoFar, "_read")
        history.append([result_of("open"), *turns(1)])
        history.stats()
    assert 0 < len(read) < 20


def test_only_new_events_are_counted(tmp_path, counted):
    with foldlog.open(str(tmp_path / "a.db")) as histories:
        history = histories.create("h")
        history.append([*turns(100)])
        history.stats()
        start = history.version()
        counted.clear()
        for _ in range(3):
            history.append([*turns(1)])
            history.stats()
        assert {*counted} == {*range(start, start + 6)}
        largest = history.stats().view_tokens[-1]
        history.append(CondensationAction(forgotten_event_ids=[*range(start - 100)]))
        assert history.stats().view_tokens[-1] < largest


def test_redaction_counts_again(tmp_path):
    with foldlog.open(str(tmp_path / "a.db")) as histories:
        history = histories.create("h")
        (secret,) = history.append(Message(content="secret " * 400, source="user"))
        history.append([*turns(5)])
        before = history.stats().view_tokens
        history.redact([secret.id], reason="asked for")
        after = history.stats().view_tokens
        assert after[secret.id + 1] < before[secret.id + 1] / 4
        assert after == Views(histories.store).lifetimes("h", event_tokens).sizes


def test_store_that_cannot_be_written(tmp_path, monkeypatch):
    with foldlog.open(str(tmp_path / "a.db")) as histories:
        history = histories.create("h")
        history.append([*turns(5)])
        recorder = histories.store.database.recorder
        monkeypatch.setattr(recorder, "offer", lambda work, **_: False)
        for _ in range(2):
            assert len(history.stats().view_tokens) == history.version() + 1


def test_sizes_of_another_version_are_not_read(tmp_path, monkeypatch, counted):
    with foldlog.open(str(tmp_path / "a.db")) as histories:
        history = histories.create("h")
        history.append([*turns(20)])
        expected = history.stats().view_tokens
        monkeypatch.setattr(view_tokens, "_CODE", -1)
        counted.clear()
        assert history.stats().view_tokens == expected
        assert len({*counted}) == 40
