"""What Claude Code's lines mean, the strange ones too."""

from __future__ import annotations

import json

import foldlog
from foldlog.eventstore import (
    Retraction,
)
from foldlog.projections import View
from tests.foldlog.archive.imports import new_store
from tests.foldlog.formats.reading import histories_at, reader_of

FORMAT = "claude-code"


def line(name, parent, kind="user", **more):
    return {
        "uuid": name,
        "parentUuid": parent,
        "type": kind,
        "isSidechain": False,
        "sessionId": "s",
        **more,
    }


def asked(name, parent, content="why?", **more):
    return line(name, parent, message={"role": "user", "content": content}, **more)


def replied(name, parent, *blocks, response="m1", **more):
    message = {
        "id": response,
        "type": "message",
        "role": "assistant",
        "model": "sonnet",
        "content": list(blocks),
    }
    return line(name, parent, "assistant", requestId=f"r{response}", message=message, **more)


def text(said):
    return {"type": "text", "text": said}


read = reader_of(FORMAT)


def seen(events):
    """The lines of the View's events."""
    return [event.origin.id for event in View.from_events(events)]


def test_a_sub_agents_log_is_linked_to_its_session(tmp_path):
    side = [
        asked("a", None, isSidechain=True, agentId="7f", sessionId="s1"),
        replied("b", "a", text("found")),
    ]
    side[1]["isSidechain"] = True
    history = written(tmp_path / "agent-7f.jsonl", *side)
    assert history.name == "s1/agent-7f"
    assert [event.meta for event in history.events] == [{"parent": "s1"}, {}]
    with foldlog.open("memory:") as histories:
        (prefixed,) = histories.import_(tmp_path, prefix="run/")
        assert (prefixed.id, next(prefixed.events()).meta) == (
            "run/s1/agent-7f",
            {"parent": "run/s1"},
        )
    assert [event.meta for event in read(asked("a", None), *side)] == [{}, {}, {}]


def written(path, *records):
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    (history,) = histories_at(path)
    return history


def test_a_session_that_grows_a_side_branch_adds_its_tail_and_the_view_follows(tmp_path):
    log = [asked("a", None, "one"), replied("b", "a", text("1"))]
    left = [asked("c", "b", "/ide", isMeta=True), replied("d", "c", text("2"), response="m2")]
    right = [asked("e", "b", "/ide", isMeta=True), replied("f", "e", text("3"), response="m3")]
    back = [asked("g", "d", "and on"), replied("h", "g", text("4"), response="m4")]
    lines = [*log, *left, *right, *back]
    path = tmp_path / "s.jsonl"
    expected = {2: "ab", 3: "abc", 4: "abcd", 5: "abe", 6: "abef", 7: "abcdg", 8: "abcdgh"}
    with new_store() as store:
        for count in range(2, len(lines) + 1):
            path.write_text("".join(f"{json.dumps(record)}\n" for record in lines[:count]))
            (history,) = histories_at(path, store=store)
            assert history.added == (2 if count == 2 else 1)
            assert "".join(seen(history.events)) == expected[count]
            (again,) = histories_at(path, store=store)
            assert (again.added, again.records) == (0, lines[:count])
        assert sum(isinstance(event, Retraction) for event in again.events) == 2
        assert not View.from_events(again.events).unhandled_condensation_request
