"""A damaged record of a document: it is named, all others of its history are imported, and so are
other histories.
"""

from __future__ import annotations

import json
from itertools import product

import pytest

from foldlog._archive.importing import Failed, Import
from foldlog._formats.json_text import TOO_DEEP
from foldlog._formats.registry import format_named
from foldlog.formats import decode
from tests.foldlog.archive.imports import new_store
from tests.foldlog.formats.reading import records_in
from tests.foldlog.records import records_of


def corpus(name):
    return records_of(name)


def chats():
    *nodes, about = corpus("chatgpt")
    mapping = {node["id"]: {**node, "children": []} for node in nodes}
    return [{**about, "mapping": mapping, "conversation_id": f"c{number}"} for number in range(3)]


def conversations():
    *messages, about = corpus("claude-ai")
    return [{**about, "chat_messages": messages, "uuid": f"c{number}"} for number in range(3)]


def samples():
    messages = [each for each in corpus("inspect-eval") if "role" in each]
    end = {"epoch": 1, "target": "9", "scores": {}}
    about = {"version": 2, "status": "success", "eval": {"eval_id": "E", "task": "t", "model": "m"}}
    return {
        **about,
        "samples": [{"id": number, **end, "messages": messages} for number in range(3)],
    }


def containers(name, key, **more):
    return [{"instance_id": f"i{number}", key: corpus(name), **more} for number in range(3)]


def gemini():
    session = {"sessionId": "s", "projectHash": "h", "startTime": "2026-01-01T00:00:00Z"}
    told = [each for each in corpus("gemini-cli") if type(each.get("id")) is str]
    return {**session, "messages": list({each["id"]: each for each in told}.values())}


def spans():
    found = [each["resourceSpans"][0]["scopeSpans"][0]["spans"][0] for each in corpus("otlp-genai")]
    return {"resourceSpans": [{"scopeSpans": [{"spans": found}]}]}


def of_each(document, key):
    """Return the records of each history in an array."""
    return [each[key] for each in document]


DOCUMENTS = {
    "chatgpt": (chats(), lambda it: of_each(it, "mapping"), "message"),
    "claude-ai": (conversations(), lambda it: of_each(it, "chat_messages"), "sender"),
    "inspect-eval": (samples(), lambda it: of_each(it["samples"], "messages"), "role"),
    "openai-chat": (
        containers("openai-chat", "messages"),
        lambda it: of_each(it, "messages"),
        "role",
    ),
    "openhands-v0": (
        containers("openhands-v0", "history"),
        lambda it: of_each(it, "history"),
        "action",
    ),
    "swe-agent": ({"history": corpus("swe-agent"), "info": {}}, lambda it: [it["history"]], "role"),
    "atif": (format_named("atif").document(corpus("atif")), lambda it: [it["steps"]], "source"),
    "gemini-cli": (gemini(), lambda it: [it["messages"]], "type"),
    "otlp-genai": (spans(), lambda it: [it["resourceSpans"][0]["scopeSpans"][0]["spans"]], None),
}
"""A document of each format whose files hold more than a line for each record: the records of its
histories, and the field without which an object is no record.
"""


def read(path, document):
    """Return the texts of the records of each history by its name, and the findings."""
    path.write_text(json.dumps(document))
    histories, findings = {}, []
    with new_store() as store:
        imports = Import(store, [path])
        for one in imports:
            if isinstance(one, Failed):
                findings.append(f"{one.path}: {one.error}")
            else:
                histories[one.conversation] = [
                    json.dumps(record) for record in records_in(store, one.conversation)
                ]
                findings += map(str, one.findings)
        return histories, [*findings, *map(str, imports.findings)]


@pytest.mark.parametrize("format", DOCUMENTS)
def test_a_damaged_record_is_named_and_all_others_are_imported(format, tmp_path):
    sound, records_of, field = DOCUMENTS[format]
    path = tmp_path / f"{format}.json"
    whole, silent = read(path, sound)
    assert (len(whole), silent) == (len(records_of(sound)), [])
    for number, damage in product((0, len(whole) // 2), (None, "x", [], {})):
        keys = records_of(sound)[number]
        keys = list(keys) if isinstance(keys, dict) else list(range(len(keys)))
        for key in (keys[0], keys[len(keys) // 2]):
            document = json.loads(json.dumps(sound))
            records = records_of(document)[number]
            if damage != {}:
                records[key] = damage
            elif records[key].pop(field, None) is None:
                continue  # another field says what this one is
            histories, findings = read(path, document)
            assert findings
            assert all(each.startswith(str(path)) for each in findings)
            assert histories.keys() == whole.keys()
            (damaged,) = (name for name in whole if histories[name] != whole[name])
            assert damaged == [*whole][number]
            *told, _ = whole[damaged]  # the last one may tell of the damaged one
            assert len(set(told) - set(histories[damaged])) <= 1


@pytest.mark.parametrize("format, array", [("chatgpt", "mapping"), ("claude-ai", "chat_messages")])
def test_a_conversation_whose_messages_are_lost_is_named(format, array, tmp_path):
    for number, lost in product((0, 1), (None, "x", [])):
        document = json.loads(json.dumps(DOCUMENTS[format][0]))
        whole, _ = read(tmp_path / "a.json", document)
        for damaged in ({**document[number], array: lost}, lost):
            histories, findings = read(
                tmp_path / "a.json", [*document[:number], damaged, *document[number + 1 :]]
            )
            assert {name: told for name, told in histories.items() if name != f"c{number}"} == {
                name: told for name, told in whole.items() if name != f"c{number}"
            }
            # in which nothing was said
            assert findings or damaged == {**document[number], "chat_messages": []}


def test_a_record_that_is_nested_too_deep_is_a_finding():
    (first, *_), deep = corpus("atif"), None
    for _ in range(5_000):
        deep = [deep]
    findings = []
    assert list(decode([{**first, "message": deep}], "atif", findings=findings.append)) == []
    assert [finding.problem for finding in findings] == [TOO_DEEP]
