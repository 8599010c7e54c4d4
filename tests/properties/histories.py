"""Strategies for histories that a log may have, also for histories that no agent should write.

A history is drawn as a list of steps. A step is a function that gets the next id and returns events.
So hypothesis can leave out steps of an example.
"""

from datetime import UTC, datetime
from itertools import chain

from hypothesis import strategies as st
from msgspec.structs import replace

from foldlog.eventstore.events import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    Message,
    Observation,
    Origin,
    Retraction,
    SystemMessage,
    UnknownEvent,
    summary_id,
)

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
THINKING = ({"type": "thinking", "thinking": "hm"},)
CALL_IDS = (None, "a", "b", "c")
REASONING = Annotation(
    name="reasoning",
    data=THINKING[0],
    source="agent",
    shown=True,
    stays_with_next=True,
    origin=Origin(format="test"),
)


def history(steps):
    events = []
    for step in steps:
        start = len(events)
        events += [_with_id(event, event_id) for event_id, event in enumerate(step(start), start)]
    return events


def _with_id(event, event_id):
    """Return the event with an id, and with a time, because a store gives the present time to an
    event that has none.
    """
    if isinstance(event, UnknownEvent):
        return replace(event, id=event_id)
    return replace(event, id=event_id, timestamp=AT)


# --- steps ---


def always(event):
    return lambda _: [event]


_rarely = st.sampled_from([False, False, False, True])
_message = st.builds(
    Message,
    source=st.sampled_from(["user", "agent", "environment"]),
    content=st.sampled_from(["hello", "more"]),
    stays_with_next=_rarely,
    meta=st.sampled_from([{}, {"reply": "r"}, {"reply": "s"}]),
).map(always)
_call = st.builds(
    Action,
    tool=st.just("run"),
    call_id=st.sampled_from(CALL_IDS),
    response_id=st.sampled_from([None, "r", "s"]),
    thinking=st.sampled_from([(), THINKING]),
    thought=st.just("so"),
    stays_with_next=_rarely,
).map(always)
_answer = st.builds(
    lambda call, back: (
        lambda i: [Observation(content="done", call_id=call, cause=i - back if back <= i else None)]
    ),
    st.sampled_from(CALL_IDS),
    st.integers(1, 4),
)
_other = st.sampled_from(
    [
        SystemMessage(content="you are an agent"),
        Annotation(name="state"),
        Annotation(name="state", shown=True),
        REASONING,
        replace(REASONING, origin=None),
        CondensationSummary(content="an imported one"),
        UnknownEvent(stored_kind="new", stored_schema=1, body=b"{}"),
        UnknownEvent(stored_kind="new", stored_schema=1, body=b"{}", shown=True),
    ]
).map(always)
_request = st.just(always(CondensationRequest()))
_retract = st.builds(
    lambda back: lambda i: [Retraction(version=max(0, i - back), origin=Origin(format="test"))],
    st.integers(-1, 12),
)


def batch_step(size, thinking, interleaved, interrupted):
    """Return a step with the calls of one response and an answer to each."""

    def events(i):
        calls = [
            Action(
                tool="run",
                call_id=f"call {i} {n}",
                response_id=f"response {i}",
                thinking=THINKING if thinking and n == 0 else (),
            )
            for n in range(size)
        ]
        answers = [Observation(content="done", call_id=f"call {i} {n}") for n in range(size)]
        if interleaved:
            return list(chain.from_iterable(zip(calls, answers, strict=True)))
        messages = [Message(source="user", content="wait")] if interrupted else []
        return [*calls, *messages, *answers]

    return events


def turn_step(replies, thinks, missing):
    """Return a step with all that an agent writes between two messages of the user: thoughts, words
    and calls of each reply, and the results. If it ``thinks``, the first call has thinking too. The
    result at index ``missing`` is left out.
    """

    def events(i):
        turn = []
        for number, (size, thoughts, says) in enumerate(replies):
            batch = batch_step(size, thinks and not number, interleaved=False, interrupted=False)(
                i + number
            )
            words = Message(source="agent", content="so", meta={"reply": f"response {i + number}"})
            turn += [*[REASONING] * thoughts, *[words] * says, *batch]
        results = [place for place, event in enumerate(turn) if isinstance(event, Observation)]
        return [
            event for place, event in enumerate(turn) if place not in results[missing : missing + 1]
        ]

    return events


_answered_turn = st.builds(
    turn_step,
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([0, 0, 0, 1, 2]), st.booleans()), max_size=4
    ),
    st.booleans(),
    st.integers(0, 9),
)
_answered_batch = st.builds(
    batch_step, st.integers(1, 3), st.booleans(), st.booleans(), st.booleans()
)


def condensation(ids, summary, offset, format="openhands-v0"):
    """Return a condensation of ids, or of a range if they are a tuple of its first id and its length."""
    fields = {} if summary is None else {"summary": summary, "summary_offset": offset}
    if isinstance(ids, tuple):
        start, length = ids
        fields |= {"forgotten_events_start_id": start, "forgotten_events_end_id": start + length}
    else:
        fields["forgotten_event_ids"] = tuple(ids)
    return CondensationAction(origin=Origin(format=format), **fields)


def _native_condensation(event_id, ids, summary, offset):
    """Return a condensation. Ids are counted back from its own id, so that most of them exist. A
    negative one names the summary of the condensation that is so many events before.
    """
    if isinstance(ids, tuple):
        back, length = ids
        return condensation((event_id - back, length), summary, offset, "test")
    existing = [
        event_id - back if back >= 0 else summary_id(event_id + back)
        for back in ids
        if event_id + back >= 0
    ]
    action = condensation(existing, summary, offset, "test")
    if not ids and summary is None:
        action = replace(action, metadata={"outcome": "declined", "reason": "nothing to forget"})
    return action


_back = st.one_of(st.integers(-12, -1), st.integers(-3, 25))
_forgotten = st.one_of(
    st.tuples(st.integers(-2, 25), st.integers(0, 15)),
    st.lists(_back, max_size=10),
    st.builds(
        lambda first, n: list(range(first, first - n, -1)), st.integers(3, 25), st.integers(1, 15)
    ),
)
_condense = st.builds(
    lambda ids, summary, offset: lambda i: [_native_condensation(i, ids, summary, offset)],
    _forgotten,
    st.sampled_from([None, "", "in short", "in brief"]),
    st.integers(-2, 12),
)


# --- steps imported from V0: with ids of the source that have gaps, repeat, go back or are missing ---

_source_id = st.one_of(st.integers(0, 30), st.none())


def from_v0(step, source_id):
    def events(i):
        return [
            replace(
                event,
                origin=Origin(
                    format="openhands-v0", id=None if source_id is None else source_id + n
                ),
            )
            for n, event in enumerate(step(i))
            # an UnknownEvent is stored as it came, with its own origin
            if not isinstance(event, UnknownEvent)
        ]

    return events


_v0_condense = st.builds(
    condensation,
    st.one_of(
        st.tuples(st.integers(-1, 30), st.integers(-2, 8)),
        st.lists(st.integers(-1, 30), max_size=8),
    ),
    st.sampled_from([None, "", "in short", "in brief"]),
    st.integers(-3, 12),
).map(always)

_v0_step = st.builds(
    from_v0,
    st.one_of(
        _message, _call, _answer, _other, _request, _answered_batch, _v0_condense, _v0_condense
    ),
    _source_id,
)
_native_step = st.one_of(
    _message,
    _call,
    _answer,
    _other,
    _request,
    _answered_batch,
    _answered_turn,
    _condense,
    _condense,
    _retract,
)
_tidy_step = st.one_of(_message, _answered_batch, _answered_turn, _condense)

ordered_histories = st.builds(history, st.lists(_native_step, max_size=30))
tidy_histories = st.builds(history, st.lists(_tidy_step, max_size=25))
v0_histories = st.builds(history, st.lists(_v0_step, max_size=25))
continued_v0_histories = st.builds(
    lambda imported, native, more: history([*imported, *native, *more]),
    st.lists(_v0_step, max_size=15),
    st.lists(_native_step, max_size=15),
    st.lists(_v0_step, max_size=5),
)
histories = st.one_of(ordered_histories, tidy_histories, v0_histories, continued_v0_histories)
"""Native histories, tidy ones, imports from V0, and imports from V0 to which native events and then a
second import were appended.
"""

_few_calls = st.one_of(
    _message, _call, _answer, _condense, _condense, _answered_batch, _answered_turn
)
long_histories = st.one_of(
    st.builds(history, st.lists(_few_calls, max_size=60)),
    st.builds(history, st.lists(_tidy_step, max_size=60)),
    histories,
)
"""Histories with several condensations."""
