"""A damaged record of a document: it is named, all others of its history are imported, and so are
other histories.
"""

import json
from functools import partial, reduce
from itertools import product
from operator import getitem

import pytest

from foldlog.formats import decode
from tests.foldlog.formats.reading import records_in
from tests.foldlog.imports.imports import Failed, Import, new_store
from tests.foldlog.records import GOLDEN, records_of

DOCUMENTS = json.loads((GOLDEN / "documents_to_damage.json").read_text("utf-8"))
"""Maps each format whose files are whole JSON documents to an example:

``document``      a sound document
``histories in``  the field with the list of histories; without it, a list has a history in each
                  element, and any other document is one history
``records in``    the path to the records in a history
``field``         the field without which an object is not a record, or None
"""


def records_in_histories(row, document):
    """Return the records of each history of a document."""
    histories = document
    if row["histories in"] is not None:
        histories = document[row["histories in"]]
    elif not isinstance(document, list):
        histories = [document]
    return [reduce(getitem, row["records in"], history) for history in histories]


def read(path, document, begin=""):
    """Return the texts of the records of each history by its name, and the findings."""
    path.write_text(begin + json.dumps(document))
    histories = {}
    findings = []
    with new_store() as store:
        imports = Import(store, [path])
        for outcome in imports:
            if isinstance(outcome, Failed):
                findings.append(f"{outcome.path}: {outcome.error}")
            else:
                histories[outcome.conversation] = [
                    json.dumps(record) for record in records_in(store, outcome.conversation)
                ]
                findings += map(str, outcome.findings)
        return histories, [*findings, *map(str, imports.findings)]


@pytest.mark.parametrize("format", DOCUMENTS)
def test_byte_order_mark_of_a_document_is_no_damage(format, tmp_path):
    path = tmp_path / "a.json"
    document = DOCUMENTS[format]["document"]
    assert read(path, document, "\ufeff") == read(path, document)


def test_node_of_chatgpt_with_another_id_is_named_and_moves_no_record(tmp_path):
    """A used import of the export grows only if its records stay where they are."""
    path = tmp_path / "a.json"
    document = [DOCUMENTS["chatgpt"]["document"][0]]
    before, _ = read(path, document)
    document = json.loads(json.dumps(document))
    document[0]["mapping"]["c"]["id"] = "c-2"
    after, findings = read(path, document)
    names = [
        [json.loads(record).get("id") for record in records["c0"]] for records in (before, after)
    ]
    assert names[1] == [name for name in names[0] if name != "c"]
    assert findings == [f"{path}:1: node 'c' has another id, so it was left out"]


def test_export_of_chatgpt_with_only_left_out_messages_is_named(tmp_path):
    path = tmp_path / "a.json"
    document = [json.loads(json.dumps(DOCUMENTS["chatgpt"]["document"][0]))]
    for name, node in document[0]["mapping"].items():
        if node["message"]:
            node["id"] = f"{name}-2"
    histories, findings = read(path, document)
    assert histories == {}
    assert "node 's' has another id, so it was left out" in "".join(findings)


@pytest.mark.parametrize("format", DOCUMENTS)
def test_damaged_record_is_named_and_others_imported(format, tmp_path):
    row = DOCUMENTS[format]
    sound = row["document"]
    field = row["field"]
    records_of = partial(records_in_histories, row)
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
            assert all(finding.startswith(str(path)) for finding in findings)
            assert histories.keys() == whole.keys()
            (damaged,) = (name for name in whole if histories[name] != whole[name])
            assert damaged == [*whole][number]
            *earlier, _ = whole[damaged]  # the last one may tell of the damaged one
            assert len(set(earlier) - set(histories[damaged])) <= 1


@pytest.mark.parametrize("format, array", [("chatgpt", "mapping"), ("claude-ai", "chat_messages")])
def test_a_conversation_whose_messages_are_lost_is_named(format, array, tmp_path):
    for number, lost in product((0, 1), (None, "x", [])):
        document = json.loads(json.dumps(DOCUMENTS[format]["document"]))
        whole, _ = read(tmp_path / "a.json", document)
        for damaged in ({**document[number], array: lost}, lost):
            histories, findings = read(
                tmp_path / "a.json", [*document[:number], damaged, *document[number + 1 :]]
            )
            assert {
                name: records for name, records in histories.items() if name != f"c{number}"
            } == {name: records for name, records in whole.items() if name != f"c{number}"}
            # A conversation without messages is sound.
            assert findings or damaged == {**document[number], "chat_messages": []}


def test_record_nested_too_deep_is_a_finding():
    first, *_ = records_of("atif")
    deep = None
    for _ in range(5_000):
        deep = [deep]
    findings = []
    assert list(decode([{**first, "message": deep}], "atif", findings=findings.append)) == []
    (finding,) = findings
    assert "nested deeper than" in finding.problem
