"""An event that stays with the next is forgotten with it, cut with it and sent with it."""

from __future__ import annotations

import foldlog
from foldlog.eventstore import Action, Annotation, Message, Observation
from foldlog.eventstore.events import Event
from foldlog.projections import View, well_formed


def reasoning(**fields: object) -> Event:
    return Annotation(name="reasoning", source="agent", shown=True, stays_with_next=True, **fields)  # type: ignore[arg-type]


def said(text: str, source: str = "agent", **fields: object) -> Event:
    return Message(source=source, content=text, **fields)  # type: ignore[arg-type]


def call(call_id: str) -> Event:
    return Action(tool="run", call_id=call_id)


def answer(call_id: str) -> Event:
    return Observation(content="done", call_id=call_id)


def fit(*events: Event) -> list[int]:
    return [event.id for event in well_formed(View.from_events(events))]


def test_no_cut_parts_an_event_from_the_one_it_stays_with():
    view = View.from_events(
        [
            said("q", "user"),
            reasoning(),
            reasoning(),
            call("a"),
            answer("a"),
            reasoning(),
            said("r"),
        ]
    )
    assert view.cut_points == (0, 1, 5, 7)


def test_an_event_at_the_end_waits_for_the_next_one():
    view = View.from_events([said("q", "user"), reasoning()])
    assert view.cut_points == (0, 1)
    assert fit(said("q", "user"), reasoning()) == [0], "it is not sent before the next one is there"
    assert fit(said("q", "user"), reasoning(), said("next", "user")) == [0, 2], (
        "what the user says is no follower"
    )


def test_thinking_of_a_message_goes_back_to_the_model():
    block = {"type": "thinking", "thinking": "hm", "signature": "s"}
    view = View.from_events([said("q", "user"), said("r", thinking=(block,))])
    assert view.to_messages(dialect="litellm")[1] == {
        "role": "assistant",
        "content": "r",
        "thinking_blocks": [block],
    }
    assert view.to_messages(dialect="openai")[1] == {"role": "assistant", "content": "r"}
    assert view.to_messages(dialect="anthropic")[1]["content"] == [
        block,
        {"type": "text", "text": "r"},
    ]


def test_both_are_stored_and_come_back():
    with foldlog.open("memory:") as histories:
        given = [reasoning(), said("r", thinking=({"type": "thinking"},)), said("r")]
        histories["c1"].append(given)
        kept = list(histories["c1"].events())
    assert [event.stays_with_next for event in kept] == [True, False, False]
    assert [getattr(event, "thinking", None) for event in kept] == [
        None,
        ({"type": "thinking"},),
        (),
    ]
