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


def node(name, parent, role, content, author=None, children=(), recipient="all", **metadata):
    if isinstance(content, str):
        content = {"content_type": "text", "parts": [content]}
    about = {"role": role, "name": author, "metadata": {}}
    message = {
        "id": name,
        "author": about,
        "create_time": next(times) + 0.5,
        "content": content,
        "recipient": recipient,
    }
    return {
        "id": name,
        "message": {
            **message,
            "status": "finished_successfully",
            "weight": 1.0,
            "metadata": metadata,
        },
        "parent": parent,
        "children": list(children),
    }


def chat(*nodes, newest=None, **about):
    """A conversation whose nodes follow each other if they name no parent; each parent names its
    children.
    """
    mapping = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    before = "root"
    for each in nodes:
        name, parent, role, content = each[:4]
        more = each[4] if len(each) > 4 else {}
        mapping[name] = node(name, parent or before, role, content, **more)
        mapping[mapping[name]["parent"]]["children"].append(name)
        before = name
    return {
        **{
            "title": "Kites",
            "create_time": 1767225600.0,
            "update_time": 1767225900.0,
            "mapping": mapping,
        },
        **{
            "moderation_results": [],
            "current_node": newest or before,
            "conversation_id": "c1",
            "id": "c1",
            **about,
        },
    }


def code(text, language="python"):
    return {"content_type": "code", "language": language, "text": text}


PYTHON, BROWSER, WEB = {"author": "python"}, {"author": "browser"}, {"author": "web"}
PROFILE = {
    "content_type": "user_editable_context",
    "user_profile": "I sew.",
    "user_instructions": "Be brief.",
}
FLOWN = [
    ("s", None, "system", ""),
    ("c", None, "user", PROFILE),
    (
        "m",
        None,
        "system",
        {"content_type": "model_editable_context", "model_set_context": "", "repository": None},
    ),
    (
        "u1",
        None,
        "user",
        {
            "content_type": "multimodal_text",
            "parts": [
                {
                    "content_type": "image_asset_pointer",
                    "asset_pointer": "sediment://f1",
                    "width": 2,
                },
                {"content_type": "audio_transcription", "text": "how far?", "direction": "in"},
                "really",
            ],
        },
    ),
    (
        "t1",
        None,
        "assistant",
        {"content_type": "thoughts", "thoughts": [{"summary": "far", "content": "far"}]},
    ),
    (
        "t2",
        None,
        "assistant",
        {"content_type": "reasoning_recap", "content": "Thought for 3 seconds"},
    ),
    ("a1", None, "assistant", code("1 + 1"), {"recipient": "python", "model_slug": "gpt-5"}),
    ("o1", None, "tool", {"content_type": "execution_output", "text": "2"}, PYTHON),
    ("a2", None, "assistant", code('search("wind")', "unknown"), {"recipient": "browser"}),
    (
        "o2",
        None,
        "tool",
        {"content_type": "tether_browsing_display", "result": "calm", "summary": ""},
        BROWSER,
    ),
    (
        "o3",
        None,
        "tool",
        {"content_type": "tether_quote", "url": "u", "title": "Wind", "text": "calm"},
        BROWSER,
    ),
    (
        "o4",
        None,
        "tool",
        {"content_type": "sonic_webpage", "url": "v", "title": "Sea", "text": "wet"},
        WEB,
    ),
    ("a3", None, "assistant", code("x"), {"recipient": "python"}),
    ("o5", None, "tool", {"content_type": "system_error", "name": "Error", "text": "no x"}, PYTHON),
    ("a4", None, "assistant", "9 km", {"model_slug": "gpt-5"}),
    ("x", None, "assistant", {"content_type": "of a later year", "new": 1}),
]


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
    first = [("u", None, "user", "hi"), ("a", None, "assistant", "one")]
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
    empty = chat(id="c0", conversation_id="c0")
    path = tmp_path / "conversations.json"
    path.write_text(
        json.dumps(
            [
                chat(("u", None, "user", "hi")),
                empty,
                {"title": 1},
                chat(*FLOWN, conversation_id="c2"),
            ]
        )
    )
    with new_store() as store:
        *outcomes, last = Import(store, [path])
        assert [one.conversation for one in (*outcomes, last) if isinstance(one, Imported)] == [
            "c1",
            "c2",
        ]
        (failed,) = [one for one in outcomes if isinstance(one, Failed)]
        assert "expected a conversation, found an object of another kind" in str(failed.error)


ONE = json.dumps(chat(*FLOWN))


@pytest.mark.parametrize("text", [ONE, f"{ONE}\n{ONE}"])
def test_a_conversation_may_stand_alone_or_on_a_line(tmp_path, text):
    path = tmp_path / ("a.jsonl" if "\n" in text else "a.json")
    path.write_text(text)
    assert [(history.name, history.format) for history in histories_at(path)] == [
        ("c1", NAME),
        *([("c1#2", NAME)] if "\n" in text else []),
    ]
