"""The events of OpenHands V0 records, also of the strange ones."""

import pytest

from foldlog.eventstore import Message, Origin
from foldlog.formats import UnknownFormat, decode, encode
from foldlog.projections import View

V0 = "openhands-v0"


def action(name, number=0, source="agent", **args):
    return {"id": number, "source": source, "action": name, "args": args}


def read(*records, **how):
    return list(decode(records, V0, **how))


def test_a_history_shows_everything_but_condensations_and_requests():
    records = [
        {"id": 2, "source": "environment", "observation": "agent_state_changed", "content": ""},
        {"id": 3, "source": "environment", "observation": "null", "content": ""},
        action("change_agent_state", 4),
        action("run", 5, command="ls", hidden=True),
        action("condensation_request", 6),
        action("condensation", 7, forgotten_event_ids=[]),
    ]
    events = read(*records, as_history=True)
    assert [event.shown for event in events] == [True, True, True, True, False, False]


@pytest.mark.parametrize(
    "ids, shown",
    [
        ((0, 1, 2, 3), ["zero", "later"]),
        (("m0", 1, "c2", 3), ["zero", "later"]),
        (("m0", "m1", "c2", "m3"), ["zero", "one", "later"]),
    ],
)
def test_a_condensation_never_forgets_an_event_whose_id_is_a_text(ids, shown):
    first, second, condensation, last = ids
    records = [
        action("message", first, source="user", content="zero"),
        action("message", second, content="one"),
        action("condensation", condensation, forgotten_event_ids=[1]),
        action("message", last, source="user", content="later"),
    ]
    view = View.from_events(read(*records))
    assert [event.content for event in view] == shown


def test_a_format_that_is_not_there_is_named():
    with pytest.raises(
        UnknownFormat, match="'nonsense' is not a format; choose one of openhands-v0, openhands-v1,"
    ):
        decode([], "nonsense")
    with pytest.raises(
        UnknownFormat, match="'Cline' is not a format; its histories are anthropic-messages; choose"
    ):
        decode([], "Cline")
    with pytest.raises(UnknownFormat, match="'nonsense' is not a format"):
        encode([], "nonsense")


def test_an_export_needs_the_whole_history():
    events = read(action("run", 0), action("run", 1))
    with pytest.raises(ValueError, match="expected event 0, found event 1"):
        list(encode(events[1:], "openai-chat"))


def test_events_are_exported_in_their_format_or_as_chat():
    events = read(action("message", 0, source="user", content="hi"))
    with pytest.raises(
        UnknownFormat, match=r"imported from 'openhands-v0'.*in any format \(--view, "
    ):
        encode(events, "openhands-v1")
    assert list(encode(events, "openai-chat")) == [{"role": "user", "content": "hi"}]
    # no format writes it
    own = Message(id=0, source="user", content="hi", origin=Origin(format="my-bot"))
    with pytest.raises(
        UnknownFormat, match="from 'my-bot'; export it as 'openai-chat', or export its View"
    ):
        encode([own], "openhands-v1")
