"""ChatGPT's exports: the tree of a conversation, what its model was told, and an export that is
written again.
"""

from __future__ import annotations

import json
from itertools import count

import pytest

from foldlog._archive.importing import Failed, Import, Imported
from foldlog.projections import View
from tests.foldlog.archive.imports import bytes_of, new_store
from tests.foldlog.formats.reading import histories_at, opened

NAME = "chatgpt"


times = count(1767225600)


def node(name, parent, role, text):
    message = {
        "id": name,
        "author": {"role": role},
        "create_time": next(times) + 0.5,
        "content": {"content_type": "text", "parts": [text]},
        "recipient": "all",
    }
    return {"id": name, "message": message, "parent": parent, "children": []}


def chat(*nodes, **about):
    """A conversation whose nodes follow each other if they name no parent; each parent names its
    children.
    """
    mapping = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    before = "root"
    for name, parent, role, text in nodes:
        mapping[name] = node(name, parent or before, role, text)
        mapping[mapping[name]["parent"]]["children"].append(name)
        before = name
    times = {"create_time": 1767225600.0, "update_time": 1767225900.0}
    names = {"conversation_id": "c1", "current_node": before}
    return {"title": "Kites", **times, "mapping": mapping, **names, **about}


HI = ("u", None, "user", "hi")


def shown(events):
    return [
        (message["role"], message["content"]) for message in View.from_events(events).to_messages()
    ]


def part(conversation, last, newest=None):
    """The conversation as it was when ``last`` was its newest node."""
    names = list(conversation["mapping"])[: list(conversation["mapping"]).index(last) + 1]
    nodes = {name: conversation["mapping"][name] for name in names}
    mapping = {
        name: {**each, "children": [child for child in each["children"] if child in nodes]}
        for name, each in nodes.items()
    }
    return {**conversation, "mapping": mapping, "current_node": newest or last}


def test_an_export_that_is_written_again_adds_what_is_new(tmp_path):
    first = [HI, ("a", None, "assistant", "one")]
    more = [("u2", None, "user", "so?"), ("a2", None, "assistant", "this")]
    whole = chat(*first, *more, ("b", "u", "assistant", "two"), ("u3", "a2", "user", "oh"))
    exports = [
        part(whole, "a"),
        {**part(whole, "a2"), "title": "Kites and gulls"},
        part(whole, "b"),
        part(whole, "b", newest="a2"),
        whole,
        {**whole, "mapping": dict(reversed(whole["mapping"].items()))},
    ]
    back = ["hi", "one", "so?", "this"]
    said = [["hi", "one"], back, ["hi", "two"], back, [*back, "oh"], [*back, "oh"]]
    # the branch was chosen, and then went on: another history
    names = ["c1", "c1", "c1", "c1", "c1@6", "c1@6"]
    with new_store() as store:
        for export, now, name in zip(exports, said, names, strict=True):
            for again in (False, True):
                (history,) = opened(tmp_path, export, store=store)
                assert (history.name, history.added == 0) == (name, again or export is exports[-1])
                assert [content for _, content in shown(history.events)] == now
                assert json.loads(bytes_of(store, history.name)) == export


def test_one_file_has_many_conversations_and_those_without_a_message_are_left_out(tmp_path):
    path = tmp_path / "conversations.json"
    chats = [chat(HI), chat(conversation_id="c0"), {"title": 1}, chat(HI, conversation_id="c2")]
    path.write_text(json.dumps(chats))
    with new_store() as store:
        outcomes = list(Import(store, [path]))
    imported = [one.conversation for one in outcomes if isinstance(one, Imported)]
    assert imported == ["c1", "c2"]
    (failed,) = [one for one in outcomes if isinstance(one, Failed)]
    assert "expected a conversation, found an object of another kind" in str(failed.error)


ONE = json.dumps(chat(HI))


@pytest.mark.parametrize("text", [ONE, f"{ONE}\n{ONE}"])
def test_a_conversation_may_stand_alone_or_on_a_line(tmp_path, text):
    path = tmp_path / ("a.jsonl" if "\n" in text else "a.json")
    path.write_text(text)
    assert [(history.name, history.format) for history in histories_at(path)] == [
        ("c1", NAME),
        *([("c1#2", NAME)] if "\n" in text else []),
    ]
