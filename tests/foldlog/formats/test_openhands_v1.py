"""Histories of OpenHands V1 are written again, also with events that were appended later."""

import pytest
from msgspec.structs import replace

from foldlog.eventstore import Action, CondensationAction, Observation, summary_id
from foldlog.formats import decode, encode
from tests.foldlog.formats.openhands_v1_records import condensation, message
from tests.foldlog.formats.reading import recorded

V1 = "openhands-v1"


def read(*records):
    return list(decode(records, V1))


@pytest.mark.parametrize("number", ["", " 2", " 3"])
def test_rejected_call_is_written_as_rejection(number):
    records = recorded(V1, f"a rejected call failed{number}")
    moved = [replace(event, origin=None) for event in read(*records)]
    *_, written = encode(moved, V1)
    ids = {name: written[name] for name in ("id", "action_id")}
    rejected = {"rejection_source": "user", **records[-1], **ids}
    assert written.items() >= rejected.items()


def test_condensations_after_an_update_forget_what_they_name():
    events = read(*recorded(V1, "condensations after an update forget what they name"))
    added = CondensationAction(
        id=len(events), forgotten_event_ids=(3,), summary="s", summary_offset=0
    )
    assert list(encode([*events, added], V1))[-1]["forgotten_event_ids"] == ["c"]
    notes = []
    chat = list(encode(events, "openai-chat", notes=notes.append))
    assert [record["content"] for record in chat if record["role"] == "system"] == ["old", "new"]
    assert notes[0].startswith(
        "left out: 1 replacement of a system prompt, 1 condensation, which openai-chat cannot"
    )


def test_later_events_get_ids_of_their_own():
    imported = read(
        message("a"), message("b"), condensation("k", "a", summary="S", summary_offset=0)
    )
    added = [
        Action(id=3, tool="run", arguments={"command": "ls"}, call_id="c1", response_id="r1"),
        Observation(id=4, content="a", tool="run", call_id="c1", cause=3),
        CondensationAction(
            id=5, forgotten_event_ids=(1, summary_id(2)), summary="T", summary_offset=0
        ),
    ]
    called, answered, condensed = list(encode([*imported, *added], V1))[3:]
    assert called["id"] == answered["action_id"] == "00000003-0000-4000-8000-000000000000"
    assert called["tool_call"]["arguments"] == '{"command": "ls"}'
    assert condensed["forgotten_event_ids"] == ["b", "k-summary"]
    again = list(decode([*encode([*imported, *added], V1)], V1))
    assert again[5].forgotten_event_ids == (1, summary_id(2))
