"""The JSON documents of the command and the server are those that ``docs/json-schema.json``
describes.
"""

import json
from pathlib import Path

import msgspec

import foldlog as api
from foldlog import Message, _documents as documents
from foldlog.eventstore import Origin

SCHEMA = Path(__file__).parents[2] / "docs/json-schema.json"
PRINTED = [
    (["attributes", "five"], documents.AttributesDocument),
    (["export", "--to", "audit.db"], documents.AddedDocument),
    (["compare", "five"], documents.ComparisonDocument),
    (["condense", "five", "--dry-run"], documents.CondensedDocument),
    (["condense", "five"], documents.CondensedDocument),
    (["diff", "five", "1", "3"], documents.DifferenceDocument),
    (["export", "five", "--output", "exported.jsonl"], documents.ExportedDocument),
    (
        ["store", "redact", "five", "1", "--yes", "--reason", "asked to"],
        documents.RedactionsDocument,
    ),
    (["store", "rekey"], documents.RekeyDocument),
    (["show", "five", "1"], documents.ShownDocument),
    (["stats"], documents.StatsDocument),
    (["stats", "five"], documents.StatsDocument),
    (["why", "five", "1"], documents.WhyDocument),
    (["show", "five", "--documents"], documents.DocumentsDocument),
    (["search", "message"], documents.HitsDocument),
    (["log", "five"], documents.LogDocument),
    (["view", "five"], documents.ViewDocument),
    (["list"], documents.ListDocument),
    (["list", "--long"], documents.ListDocument),
    (["export", "five"], documents.RecordsDocument),
    (["store", "verify"], documents.VerifiedDocument),
    (["store", "verify", "--views"], documents.VerifiedDocument),
    (["append", "five", "hi"], documents.AppendedDocument),
    (["store", "verify", "--print-heads"], documents.HeadsDocument),
    (["import", "five.jsonl"], documents.ImportDocument),
    (["fork", "five", "six"], documents.ConversationDocument),
    (["retract", "five", "--to", "2"], documents.RetractedDocument),
    (["store", "backup", "copy.db"], documents.BackedUpDocument),
    (["store", "copy", "foldlog.db", "other.db"], documents.CopiedDocument),
    (["store", "vacuum"], documents.VacuumDocument),
    (["report", "five", "--output", "five.html"], documents.ReportDocument),
    (["store", "expire", "--older-than", "90d", "--dry-run"], documents.ErasedDocument),
    (
        ["store", "archive", "--older-than", "90d", "--to", "s3://bucket/x"],
        documents.ArchivedDocument,
    ),
    (["store", "erase", "six", "--yes", "--reason", "asked to"], documents.ErasedDocument),
]


def test_the_schema_is_that_of_the_classes():
    assert json.loads(SCHEMA.read_text()) == json.loads(json.dumps(documents.schema())), (
        "scripts/json-schema makes it again"
    )


def test_each_command_prints_its_document(foldlog, five_messages):
    foldlog("import", five_messages)
    for arguments, kind in PRINTED:
        ran = foldlog(*arguments, "--json")
        assert ran.out, ran
        assert (
            json.loads(msgspec.json.encode(msgspec.convert(ran.document, kind))) == ran.document
        ), arguments
    kept = {path.name for path in Path().iterdir()}
    assert {"audit.db", "copy.db", "exported.jsonl", "five.html", "other.db"} <= kept


def test_a_list_says_what_a_conversation_is_that_begins_with_the_state_of_its_runtime(foldlog):
    with api.open("foldlog.db") as histories:
        histories["langgraph/t"].append((), documents={"checkpoint": {"step": -1}})
        histories["langgraph/t"].append(
            Message(source="user", content="hi", origin=Origin(format="langchain"))
        )
    assert foldlog("list", "--json").document["conversations"][0]["format"] == "langchain"


def test_a_list_has_the_conversations_of_the_schema(foldlog, five_messages):
    foldlog("import", five_messages)
    for length in ("--short", "--long"):
        [printed] = foldlog("list", length, "--json").document["conversations"]
        assert (
            json.loads(
                msgspec.json.encode(msgspec.convert(printed, documents.ConversationDocument))
            )
            == printed
        )
        assert ("title" in printed, "spent" in printed) == (True, length == "--long")


def test_piped_each_cell_of_a_list_has_a_place_also_where_it_is_empty(foldlog):
    Path("c.jsonl").write_text(
        '{"role": "user", "content": "list"}\n{"role": "assistant", "content": "a.py"}\n'
    )
    foldlog("import", "c.jsonl")
    heading, row = foldlog("list", "--short").out.splitlines()
    cells = dict(zip(heading.split("\t"), row.split("\t"), strict=True))
    assert cells == {
        "conversation": "c",
        "last activity": "",
        "events": "2",
        "title": "openai-chat: list",
    }
