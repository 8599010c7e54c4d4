"""Sessions of pi and OpenClaw: what pi sends its model is what the View shows."""

from __future__ import annotations

import json

import pytest

from foldlog._formats.imported_calls import calls_of_imported
from foldlog.eventstore import Action
from foldlog.formats import detect
from foldlog.projections import View
from tests.foldlog.formats.reading import histories_at, reader_of
from tests.foldlog.records import used

TIME = "2026-03-01T10:00:00.000Z"
HEAD = {"type": "session", "version": 3, "id": "s-1", "timestamp": TIME, "cwd": "/w"}


def entry(kind, entry_id, parent, **fields):
    return {"type": kind, "id": entry_id, "parentId": parent, "timestamp": TIME, **fields}


def user(name, parent, **fields):
    return entry(
        "message",
        name,
        parent,
        message={"role": "user", "content": f"{name}?", "timestamp": 1, **fields},
    )


def agent(name, parent, *blocks, **fields):
    content = list(blocks) or [{"type": "text", "text": f"{name}."}]
    message = {
        "role": "assistant",
        "content": content,
        "api": "anthropic-messages",
        "provider": "p",
        "model": "m",
    }
    return entry(
        "message", name, parent, message={**message, "stopReason": "stop", "timestamp": 1, **fields}
    )


def call(call_id):
    return {"type": "toolCall", "id": call_id, "name": "measure", "arguments": {"of": call_id}}


def compaction(name, parent, first, **fields):
    return entry(
        "compaction",
        name,
        parent,
        summary=f"sum {name}",
        firstKeptEntryId=first,
        tokensBefore=7,
        **fields,
    )


read = reader_of("pi")


def shown(events):
    """What is shown, each by its text; of a summary what stands between the words around it."""
    texts = (
        event.thought if isinstance(event, Action) else event.content
        for event in View.from_events(events)
    )
    plain = (
        text if isinstance(text, str) else "".join(part["text"] for part in text) for text in texts
    )
    return [text.partition("<summary>\n")[2].partition("\n</summary>")[0] or text for text in plain]


def test_entries_of_version_1_have_no_ids_and_count_lines():
    entries = [user("a", None), agent("b", None), user("c", None), agent("d", None)]
    old = {
        "type": "compaction",
        "timestamp": TIME,
        "summary": "sum e",
        "firstKeptEntryIndex": 3,
        "tokensBefore": 7,
    }
    plain = [
        {key: value for key, value in each.items() if key not in ("id", "parentId")}
        for each in entries
    ]
    head = {key: value for key, value in HEAD.items() if key != "version"}
    assert shown(read(head, *plain, old)) == ["sum e", "c?", "d."]
    assert detect([head, *plain]) == "pi"


def test_what_the_system_says_stays_and_an_edit_takes_the_place_of_an_entry():
    told = {"role": "system", "content": [{"type": "text", "text": "You are pi."}]}
    prompt = entry(
        "message",
        "s",
        None,
        message={**told, "sections": {"b": "# B"}, "toolsAdded": [{"name": "ls"}]},
    )
    more = entry(
        "message",
        "t",
        "c",
        message={"role": "system", "content": "", "sections": {"b": None, "d": "# D"}},
    )
    edits = [
        entry(
            "context_edit",
            "e",
            "t",
            targetId="c",
            replacement={"content": [{"type": "text", "text": "cut"}]},
        ),
        entry("context_edit", "f", "e", targetId="b", replacement=None),
        entry("context_edit", "g", "f", targetId="none", replacement=None),
    ]
    entries = [
        HEAD,
        prompt,
        user("a", "s"),
        agent("b", "a"),
        user("c", "b"),
        more,
        *edits,
        agent("h", "g"),
    ]
    system = "You are pi.# B"
    events = read(*entries)
    assert events[1].tools == ({"type": "function", "function": {"name": "ls"}},)
    assert shown(events) == [system, "a?", "cut", "# D", "h."]
    assert shown(read(*entries, compaction("i", "h", "c"))) == [system, "sum i", "cut", "# D", "h."]
    assert shown(read(*entries, compaction("i", "h", "h"))) == [system, "# D", "sum i", "h."]
    assert shown(read(*entries, user("i", "t"))) == [system, "a?", "b.", "c?", "# D", "i?"]


def test_usage_is_that_of_each_response_and_summary():
    usage = {"input": 5, "output": 40, "cacheRead": 300, "cacheWrite": 20, "cost": {"total": 0.004}}
    hostile = [agent("x", "c", usage=7), agent("y", "x", usage={"input": "1", "cost": 3})]
    events = read(
        HEAD,
        user("a", None),
        agent("b", "a", usage=usage),
        compaction("c", "b", "a", usage=usage),
        *hostile,
    )
    calls = [used(call) for call in calls_of_imported(events, "pi")]
    assert calls == [(325, 300, 40, 0.004), (325, 300, 40, 0.004), (1, None, None, None)]


def test_a_session_has_its_id_and_its_name(tmp_path, foldlog):
    path = tmp_path / "2026_x.jsonl"
    named = entry("session_info", "c", "b", name="The lighthouse")
    path.write_text(
        "".join(f"{json.dumps(each)}\n" for each in (HEAD, user("a", None), agent("b", "a"), named))
    )
    (history,) = histories_at(tmp_path)
    assert (history.name, history.format) == ("s-1", "pi")
    assert foldlog("import", path).status == 0
    with path.open("a") as file:
        file.write(f"{json.dumps(user('d', 'a'))}\n")
    assert foldlog("import", path).status == 0
    (row,) = foldlog("list", "--long", "--json").document["conversations"]
    assert row["title"] == "The lighthouse"


def test_one_compaction_or_a_type_alone_is_no_session():
    chat = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
    assert detect([*chat * 5, compaction("e", "d", "c")]) == "openai-chat"
    for other in ({"type": "session", "id": "s"}, {"type": "compaction", "timestamp": TIME}):
        with pytest.raises(ValueError, match="no format"):
            detect([other, other])
