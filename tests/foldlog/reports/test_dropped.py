"""The terms that a condensation dropped, and whether a fact is known, equal a naive comparison of
the Views.
"""

from operator import itemgetter

import pytest
from hypothesis import given, strategies as st
from msgspec.structs import replace

import foldlog
from foldlog import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    Message,
    Observation,
    Retraction,
    SystemMessage,
)
from foldlog._reports import dropped as dropped_module
from foldlog._reports.recall_score import event_terms, event_texts
from foldlog.eventstore.events import Origin
from foldlog.projections import View, begins_reply
from tests.how_many import examples
from tests.said import ids, replied, said

NAMES = ["src/alpha.py", "src/beta.py", "alpha.py", "GAMMA_SIZE", "4711002", "words"]


def naive(events, condensation):
    """Compare the Views before and after a condensation, each folded from the log; look into texts
    for each term.
    """
    before, after = (
        View.from_events(events[:stop]) for stop in (condensation.id, condensation.id + 1)
    )
    shown = {event.id for event in after}
    forgotten = [event for event in before if event.id not in shown]
    text = "\n".join(text for event in after for text in event_texts(event))
    lost = {}
    for event in forgotten:
        for term in event_terms(event):
            if term not in text:
                lost[term] = max(event.id, lost.get(term, event.id))
    again = {}
    for event in events[condensation.id + 1 :]:
        if event.shown and begins_reply(event):
            for term in event_terms(event) & lost.keys():
                again.setdefault(term, event.id)
    return ids(forgotten), sorted((event, term, again.get(term)) for term, event in lost.items())


def ids_and_terms(dropped):
    return [*dropped.ids], [(term.event, term.term, term.needed_in) for term in dropped.terms]


@st.composite
def logs(draw):
    """Return messages with names in them, condensations of what is shown with and without a summary
    that has some of them.
    """
    events = []
    for number in range(draw(st.integers(2, 30))):
        words = " ".join(draw(st.lists(st.sampled_from(NAMES), max_size=3)))
        shown = ids(View.from_events(events))
        if len(shown) > 1 and draw(st.integers(0, 4)) == 0:
            forgotten_ids = tuple(draw(st.sets(st.sampled_from(shown), min_size=1)))
            summary = draw(st.sampled_from([None, words or "nothing"]))
            offset = None if summary is None else 0
            events.append(
                CondensationAction(
                    id=number,
                    forgotten_event_ids=forgotten_ids,
                    summary=summary,
                    summary_offset=offset,
                )
            )
        else:
            events.append(
                Message(
                    id=number,
                    source=draw(st.sampled_from(["user", "agent"])),
                    content=words or "hm",
                )
            )
    return events


@examples(100)
@given(logs())
def test_dropped_terms_equal_a_naive_comparison(events):
    for event in events:
        if isinstance(event, CondensationAction):
            before = View.from_events(events[: event.id])
            (dropped,) = dropped_module.dropped_among(before, events[event.id :], {event.id: event})
            assert ids_and_terms(dropped) == naive(events, event)


@examples(60)
@given(logs(), st.sampled_from(NAMES))
def test_fact_is_known_by_words_of_the_view(events, word):
    def has(version):
        texts = (
            text for event in View.from_events(events[:version]) for text in event_texts(event)
        )
        return any(word in text for text in texts)

    has_word = [has(version) for version in range(len(events) + 1)]
    gaps = [at for at in range(1, len(has_word)) if has_word[at - 1] and not has_word[at]]
    with foldlog.open("memory:") as histories:
        histories["c"].append(events)
        fact = histories["c"].fact(word)
        assert fact.is_known == has_word[-1]
        gap = gaps[-1] if gaps else None
        assert fact.unknown_from == gap
        assert (fact.by and fact.by.id) == (None if gap is None else gap - 1)


@pytest.fixture
def history(history):
    history.append(
        [
            said("begin"),
            Action(tool="read", arguments={"path": "src/a.py"}),
            Observation(tool="read", cause=1, content="MAX_SIZE is 4711002"),
            CondensationAction(
                forgotten_event_ids=(1, 2), summary="read src/a.py", summary_offset=1
            ),
            replied("what was MAX_SIZE?"),
        ]
    )
    return history


def test_needed_terms_are_named(history):
    dropped = history.dropped()
    assert (dropped.condensation.id, dropped.ids, dropped.summary.content) == (
        3,
        (1, 2),
        "read src/a.py",
    )
    assert [(term.term, term.event, term.needed_in) for term in dropped.terms] == [
        ("4711002", 2, None),
        ("MAX_SIZE", 2, 4),
    ]
    assert [term.term for term in dropped.needed] == ["MAX_SIZE"]
    assert dropped.tokens > 0
    assert history.dropped(3) == dropped
    assert repr(dropped) == "<Dropped by condensation 3: 2 events, 2 terms, 1 needed again>"
    with pytest.raises(
        foldlog.errors.InvalidArgument,
        match="has no condensation 2; 'foldlog log ID --kind condensation'",
    ):
        history.dropped(2)


def test_newest_condensation_forgot_something(history):
    history.append(CondensationRequest(reason="too long"))
    history.append(
        CondensationAction(forgotten_event_ids=(), metadata={"outcome": "declined", "reason": "no"})
    )
    assert history.dropped().condensation.id == 3
    history.append(Retraction(version=3))
    assert history.dropped() is None
    assert history.dropped(3).ids == (1, 2), "what it dropped when it was made"


def test_term_within_a_longer_one_stays(history):
    history.append(said("see alpha.py and beta.py"))
    history.append(
        CondensationAction(
            forgotten_event_ids=(5,), summary="src/alpha.py was read", summary_offset=1
        )
    )
    assert [term.term for term in history.dropped().terms] == ["beta.py"]


@examples(60)
@given(logs(), st.integers(0, 30), st.integers(0, 30))
def test_range_has_each_condensation(events, start, stop):
    with foldlog.open("memory:") as histories:
        history = histories["c"]
        history.append(events)
        each = [history.dropped(action.id) for action in dropped_module.condensations(*of(history))]
        expected = [change for change in each if start <= change.condensation.id < stop]
        assert dropped_module.dropped_in(*of(history), start, stop) == expected
        assert dropped_module.dropped_in(*of(history)) == each


def of(history):
    return history._store, history.id


def test_long_range_reads_each_event_once(monkeypatch, histories):
    history = histories["c"]
    for number in range(40):
        history.append([said(f"src/file_{number}.py")])
        history.append(CondensationAction(forgotten_event_ids=(2 * number,)))
    store, name = of(history)
    ranges = []
    events = store.events

    def noted_events(conversation, start, stop):
        ranges.append((start, stop))
        return events(conversation, start, stop)

    monkeypatch.setattr(store, "events", noted_events)
    monkeypatch.setattr(dropped_module, "NEWEST", 10)
    dropped = dropped_module.dropped_in(store, name)
    assert [terms.condensation.id for terms in dropped] == [*range(61, 80, 2)]
    assert ranges == [(61, 80)]


def test_search_for_a_term_ends(history, monkeypatch):
    history.append([said("so?"), replied("4711002")])
    assert [term.term for term in history.dropped().needed] == ["MAX_SIZE", "4711002"]
    monkeypatch.setattr(dropped_module, "EVENTS_AFTER", 2)
    assert [term.term for term in history.dropped().needed] == ["MAX_SIZE"]
    history.append(CondensationAction(forgotten_event_ids=(5,)))
    first, _ = dropped_module.dropped_in(*of(history))
    assert first == history.dropped(3), "a later condensation does not extend the search"


def test_unsent_event_is_not_known(history):
    history.append(Action(tool="read", arguments={"path": "left_open.py"}))
    fact = history.fact("left_open.py")
    assert not fact.is_known
    assert fact.reason == (
        "'left_open.py' is not known: event 5 contains it; the View shows it at index 3, but it is"
        " not sent to a model: its call or another call of the same response has no observation"
    )


def test_result_is_not_called_missing_for_another_open_call(history):
    version = history.version()
    history.append(
        [
            Action(tool="ls", arguments={}, call_id="a", response_id="r"),
            Action(tool="ls", arguments={}, call_id="b", response_id="r"),
            Observation(tool="ls", content="zebra", call_id="a"),
        ]
    )
    fact = history.fact("zebra")
    assert fact.events == (version + 2,)
    assert fact.reason.endswith(f"contains it; {history.why(version + 2).reason}")


def test_event_without_a_message_is_not_known(history):
    origin = Origin(format="openai-chat")
    history.append(Annotation(name="note", data="zebra", origin=origin, shown=True))
    fact = history.fact("zebra")
    assert (fact.is_known, history.why(fact.events[0]).sent) == (False, False)
    assert fact.reason.endswith("it cannot be written as a message")


def test_hidden_event_is_not_called_retracted(history):
    version = history.version()
    history.append([said("hello"), Annotation(name="n", data={"t": "zebra"}), said("draft")])
    history.retract(version + 2)
    assert history.fact("zebra").reason == "no event that was ever shown contains 'zebra'"
    assert "only retracted events contain it" in history.fact("draft").reason


def test_names_of_tools_are_not_needed_again():
    tool = {"function": {"name": "todo", "parameters": {"enum": ["in_progress"]}}}
    text = "in_progress todo_list src/alpha.py"
    written = (
        SystemMessage(content="You repair.", tools=[tool]),
        Action(tool="todo_list", arguments={}, call_id="1"),
        Observation(tool="todo_list", content="yes", call_id="1"),
        said(text),
        CondensationAction(forgotten_event_ids=(3,)),
        replied(text),
    )
    events = [replace(event, id=number) for number, event in enumerate(written)]
    (result,) = dropped_module.dropped_among(
        View.from_events(events[:4]), events[4:], {4: events[4]}
    )
    assert [term.term for term in result.terms] == ["in_progress", "src/alpha.py", "todo_list"]
    assert [term.term for term in result.needed] == ["src/alpha.py"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "JVBERi0x"}},
        {"type": "input_image", "image_url": "JVBERi0x"},
        {"type": "document", "source": {"type": "base64", "data": "JVBERi0x"}},
        {"type": "input_file", "file_data": "JVBERi0x"},
        {"type": "input_audio", "input_audio": {"data": "JVBERi0x", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "JVBERi0x"}},
    ],
    ids=itemgetter("type"),
)
def test_texts_of_an_event_are_without_its_media(part):
    event = Message(source="user", content=[{"type": "text", "text": "Look at this."}, part])
    assert event_texts(event) == ["Look at this."]
