"""ChatGPT's exports: the tree of a conversation, what its model was told, and an export that is written again."""

from __future__ import annotations

import json
from functools import partial
from itertools import count

import pytest

from foldlog._formats.registry import FORMATS
from foldlog._importing import import_source
from foldlog.eventstore import Action, Message, Observation, Store, SystemMessage
from foldlog.eventstore.recorders.sqlite.memory import MemoryRecorder
from foldlog.formats import NotAHistory, encode, open_sources
from foldlog.projections import View
from tests.foldlog.formats.reading import opened, read_export

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
        "message": {**message, "status": "finished_successfully", "weight": 1.0, "metadata": metadata},
        "parent": parent,
        "children": list(children),
    }


def chat(*nodes, newest=None, **about):
    """A conversation whose nodes follow each other if they name no parent; each parent names its children."""
    mapping = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    before = "root"
    for each in nodes:
        name, parent, role, content = each[:4]
        more = each[4] if len(each) > 4 else {}
        mapping[name] = node(name, parent or before, role, content, **more)
        mapping[mapping[name]["parent"]]["children"].append(name)
        before = name
    return {
        **{"title": "Kites", "create_time": 1767225600.0, "update_time": 1767225900.0, "mapping": mapping},
        **{"moderation_results": [], "current_node": newest or before, "conversation_id": "c1", "id": "c1", **about},
    }


def code(text, language="python"):
    return {"content_type": "code", "language": language, "text": text}


PYTHON, BROWSER, WEB = {"author": "python"}, {"author": "browser"}, {"author": "web"}
PROFILE = {"content_type": "user_editable_context", "user_profile": "I sew.", "user_instructions": "Be brief."}
FLOWN = [
    ("s", None, "system", ""),
    ("c", None, "user", PROFILE),
    ("m", None, "system", {"content_type": "model_editable_context", "model_set_context": "", "repository": None}),
    ("u1", None, "user", {"content_type": "multimodal_text", "parts": [
        {"content_type": "image_asset_pointer", "asset_pointer": "sediment://f1", "width": 2},
        {"content_type": "audio_transcription", "text": "how far?", "direction": "in"}, "really",
    ]}),
    ("t1", None, "assistant", {"content_type": "thoughts", "thoughts": [{"summary": "far", "content": "far"}]}),
    ("t2", None, "assistant", {"content_type": "reasoning_recap", "content": "Thought for 3 seconds"}),
    ("a1", None, "assistant", code("1 + 1"), {"recipient": "python", "model_slug": "gpt-5"}),
    ("o1", None, "tool", {"content_type": "execution_output", "text": "2"}, PYTHON),
    ("a2", None, "assistant", code('search("wind")', "unknown"), {"recipient": "browser"}),
    ("o2", None, "tool", {"content_type": "tether_browsing_display", "result": "calm", "summary": ""}, BROWSER),
    ("o3", None, "tool", {"content_type": "tether_quote", "url": "u", "title": "Wind", "text": "calm"}, BROWSER),
    ("o4", None, "tool", {"content_type": "sonic_webpage", "url": "v", "title": "Sea", "text": "wet"}, WEB),
    ("a3", None, "assistant", code("x"), {"recipient": "python"}),
    ("o5", None, "tool", {"content_type": "system_error", "name": "Error", "text": "no x"}, PYTHON),
    ("a4", None, "assistant", "9 km", {"model_slug": "gpt-5"}),
    ("x", None, "assistant", {"content_type": "of a later year", "new": 1}),
]  # fmt: skip


read = partial(read_export, NAME)


def shown(events):
    return [(message["role"], message["content"]) for message in View.from_events(events).to_messages()]


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
    with Store(MemoryRecorder()) as store:
        for export, now in zip(exports, said, strict=True):
            for again in (False, True):
                (source,) = opened(tmp_path, export)
                imported = import_source(store, source)
                assert imported.conversation == "c1"
                assert imported.added == 0 or not again
                events = list(store.events("c1"))
                assert [content for _, content in shown(events)] == now
                (document,) = FORMATS[NAME].document(encode(events, NAME))
                assert (document, list(document)) == (export, list(export))
        assert sum(isinstance(each, Message) for each in events) == 6  # none of them twice


@pytest.mark.parametrize("author", [5, None])
def test_a_message_with_a_damaged_author_leaves_the_stored_one_in_its_place(tmp_path, author):
    whole = chat(("u", None, "user", "hi"), ("a", None, "assistant", "one"))
    torn = json.loads(json.dumps({**whole, "update_time": whole["update_time"] + 60}))
    torn["mapping"]["u"]["message"]["author"] = author
    with Store(MemoryRecorder()) as store:
        for export, findings in ((whole, 0), (torn, 1)):
            (source,) = opened(tmp_path, export)
            import_source(store, source)
            assert source.findings_count == findings
            assert shown(store.events("c1")) == [("user", "hi"), ("assistant", "one")]


def test_one_file_has_many_conversations_and_those_without_a_message_are_left_out(tmp_path):
    empty = chat(id="c0", conversation_id="c0")
    path = tmp_path / "conversations.json"
    path.write_text(
        json.dumps([chat(("u", None, "user", "hi")), empty, {"title": 1}, chat(*FLOWN, conversation_id="c2")])
    )
    sources = list(open_sources([path]))
    assert [source.name for source in sources if not source.findings and list(source.events())] == ["c1", "c2"]
    (found,) = [finding for source in sources for finding in source.findings if "nothing of it" not in str(finding)]
    assert "expected a conversation, found an object of another kind" in str(found)


ONE = json.dumps(chat(*FLOWN))


@pytest.mark.parametrize("text", [ONE, f"{ONE}\n{ONE}"])
def test_a_conversation_may_stand_alone_or_on_a_line(tmp_path, text):
    path = tmp_path / ("a.jsonl" if "\n" in text else "a.json")
    path.write_text(text)
    assert [(source.name, source.format) for source in open_sources([path])] == [
        ("c1", NAME),
        *([("c1#2", NAME)] if "\n" in text else []),
    ]


def test_what_was_not_imported_is_written_as_nodes(tmp_path):
    events = [
        SystemMessage(id=0, content="Be brief."),
        Message(id=1, source="user", content="how far?"),
        Action(id=2, tool="measure", arguments={"what": "sea"}, call_id="k", thought="I look."),
        Observation(id=3, tool="measure", call_id="k", cause=2, content="no sea", is_error=True),
        Message(id=4, source="agent", content="Nowhere."),
    ]
    (conversation,) = FORMATS[NAME].document(encode(events, NAME))
    again = read(tmp_path, {**conversation, "title": "t"})
    assert [content for _, content in shown(again)][:2] == ["Be brief.", "how far?"]
    assert [each.content for each in again if isinstance(each, Observation) and each.is_error] == ["no sea"]
    assert shown(again)[-1] == ("assistant", "Nowhere.")


@pytest.mark.parametrize(
    "value",
    [
        {"title": "t", "mapping": {"a": {"type": "keyword"}}},
        {"mapping": {"a": {"message": {}}}},
        {"title": "t", "mapping": []},
    ],
)
def test_what_only_looks_like_it_is_not_read(tmp_path, value):
    for name in ("a.json", "b.jsonl"):
        (tmp_path / name).write_text(json.dumps(value))
        with pytest.raises(NotAHistory):
            open_sources([tmp_path / name])
