"""Claude.ai's exports: messages of blocks, branches, and an export that is written again."""

from __future__ import annotations

import json
from itertools import count

from foldlog.eventstore import Message
from foldlog.projections import View
from tests.foldlog.archive.imports import bytes_of, new_store
from tests.foldlog.formats.reading import opened

ROOT = "00000000-0000-4000-8000-000000000000"
seconds = count(10)


def said(name, sender, text, parent=None):
    tree = {} if parent is None else {"parent_message_uuid": parent}
    return {
        "uuid": name,
        "text": text,
        "content": [{"start_timestamp": None, "type": "text", "text": text, "citations": []}],
        "sender": sender,
        "created_at": f"2026-01-01T00:00:{next(seconds):02}.500000Z",
        "attachments": [],
        "files": [],
        **tree,
    }


def chat(*messages, **about):
    whole = {"uuid": "c1", "name": "Kites", "updated_at": "2026-01-01T00:00:09Z"}
    return {**whole, "chat_messages": list(messages), **about}


def texts(events):
    contents = [message["content"] for message in View.from_events(events).to_messages()]
    return [each if isinstance(each, str) else each[0]["text"] for each in contents]


def test_the_branch_of_the_newest_message_or_of_the_named_one_is_shown(tmp_path):
    whole = [
        said("u", "human", "hi", parent=ROOT),
        said("a", "assistant", "one", parent="u"),
        said("b", "assistant", "two", parent="u"),
        said("v", "human", "hello", parent=ROOT),
    ]
    exports = [
        (chat(*whole[:2]), ["hi", "one"]),
        (chat(*whole[:3]), ["hi", "two"]),
        (chat(*whole[:3], current_leaf_message_uuid="a"), ["hi", "one"]),
        (chat(*whole, name="Gulls"), ["hello"]),
        (chat(*whole[::-1], current_leaf_message_uuid="b"), ["hi", "two"]),
    ]
    with new_store() as store:
        for export, now in exports:
            for again in (False, True):
                (history,) = opened(tmp_path, export, store=store)
                assert history.added == 0 or not again
                assert texts(history.events) == now
                assert json.loads(bytes_of(store, history.name)) == export


def test_conversations_without_messages_are_left_out_and_messages_without_names_are_findings(
    tmp_path,
):
    odd = [said("u", "human", "hi"), said("u", "assistant", "ho"), {"sender": "human", "text": "?"}]
    empty, whole = chat(uuid="c0"), chat(*odd)
    (history,) = opened(tmp_path, empty, whole)
    assert [each.content for each in history.events if isinstance(each, Message)][1:] == ["ho"]
