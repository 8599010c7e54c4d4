"""What OpenHands V1 records mean, the strange ones too."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from foldlog.eventstore import (
    Action,
    CondensationAction,
    Observation,
    summary_id,
)
from foldlog.formats import decode, encode
from foldlog.projections import View
from tests.foldlog.archive.imports import new_store
from tests.foldlog.formats.reading import histories_at, reader_of, recorded

V1 = "openhands-v1"


def text(said, **more):
    return {"type": "text", "text": said, **more}


def message(name, said="hi", source="user", **more):
    role = "assistant" if source == "agent" else "user"
    said = {"role": role, "content": [text(said, cache_prompt=False)]}
    return {"kind": "MessageEvent", "id": name, "source": source, "llm_message": said, **more}


def condensation(name, *forgotten, **more):
    record = {
        "kind": "Condensation",
        "id": name,
        "source": "environment",
        "forgotten_event_ids": list(forgotten),
    }
    return {**record, "llm_response_id": "r9", **more}


read = reader_of(V1)


@pytest.mark.parametrize("number", ["", " 2", " 3"])
def test_a_rejected_call_is_written_as_a_rejection_again(number):
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
    assert [said["content"] for said in chat if said["role"] == "system"] == ["old", "new"]
    assert notes[0].startswith(
        "left out: 1 replacement of a system prompt, 1 condensation; openai-chat has no place"
    )


# -- branches
# --------------------------------------------------------------------------------------------------


def seen(events):
    """The source ids of the View's events, and the texts of its summaries."""
    return [
        event.content if event.id < 0 else event.origin.id for event in View.from_events(events)
    ]


def test_a_log_that_grows_and_switches_its_branch_adds_its_tail(write, tmp_path):
    log = [
        message("a"),
        message("b"),
        message("c"),
        message("d", parent_id="a"),
        message("e", parent_id="c"),
    ]
    expected = ["a", "ab", "abc", "ad", "abce"]
    with new_store() as store:
        for count, view in enumerate(expected, 1):
            path = tmp_path / write("log.jsonl", log[:count])
            (history,) = histories_at(path, store=store)
            assert (history.added, "".join(seen(history.events))) == (1, view)
            (again,) = histories_at(path, store=store)
            assert (again.added, again.records) == (0, log[:count])


def test_the_files_of_a_conversation_grow_and_the_view_is_the_branch_of_the_newest_step(
    write, tmp_path
):
    log = [
        message("a"),
        message("b", parent_id="a"),
        message("c", parent_id="a"),
        message("d", parent_id="b"),
    ]
    with new_store() as store:
        for count, leaf, view in ((3, "b", "ac"), (4, "d", "abd")):
            for number, record in enumerate(log[:count]):
                write(f"s/events/event-{number:05}-{record['id']}.json", [record])
            write("s/base_state.json", [{"leaf_event_id": leaf}])
            (history,) = histories_at(tmp_path / "s", store=store)
            assert "".join(seen(history.events)) == view


# -- odd records
# --------------------------------------------------------------------------------------------------


def test_events_that_were_added_since_are_exported_with_ids_of_their_own():
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
