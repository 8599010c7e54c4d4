"""The JSON documents of the command and the server fit the schemas in ``docs/json-schema.json``."""

import json
import shlex
from pathlib import Path

import msgspec

from foldlog._reports.answers.schema import documents, schema
from foldlog.eventstore import Origin
from tests.said import said

SCHEMA = Path(__file__).parents[3] / "docs/json-schema.json"
PRINTED = """
AttributesDocument    attributes five
AddedDocument         export --to audit.db
ComparisonDocument    compare five
CondensedDocument     condense five --dry-run
CondensedDocument     condense five
DifferenceDocument    diff five 1 3
ExportedDocument      export five --output exported.jsonl
RedactionsDocument    store redact five 1 --yes --reason "asked to"
RekeyDocument         store rekey
ShownDocument         show five 1
StatsDocument         stats
StatsDocument         stats five
WhyDocument           why five 1
DocumentsDocument     show five --documents
HitsDocument          search message
LogDocument           log five
ViewDocument          view five
ListDocument          list
ListDocument          list --long
RecordsDocument       export five
VerifiedDocument      store verify
VerifiedDocument      store verify --views
AppendedDocument      append five hi --role assistant
ReplayedDocument      replay five
ImportDocument        import five.jsonl
ConversationDocument  fork five six
RetractedDocument     retract five --to 2
BackedUpDocument      store backup copy.db
CopiedDocument        store copy foldlog.db other.db
VacuumDocument        store vacuum
StoreInfoDocument     store info
ReportDocument        report five --output five.html
ErasedDocument        store expire --older-than 90d --dry-run
ArchivedDocument      store archive --older-than 90d --to s3://bucket/x
ErasedDocument        store erase six --yes --reason "asked to"
"""
"""The class of the document that each command prints, in the order of a session."""


def test_schema_is_that_of_the_classes():
    assert json.loads(SCHEMA.read_text()) == json.loads(json.dumps(schema())), (
        "scripts/json-schema makes it again"
    )


def test_each_command_prints_its_document(foldlog, five_messages):
    foldlog("import", five_messages)
    for row in PRINTED.strip().splitlines():
        kind, typed = row.split(maxsplit=1)
        ran = foldlog(*shlex.split(typed), "--json")
        document = msgspec.convert(ran.document, documents()[kind])
        assert json.loads(msgspec.json.encode(document)) == ran.document, typed
    names = {path.name for path in Path().iterdir()}
    assert {"audit.db", "copy.db", "exported.jsonl", "five.html", "other.db"} <= names


def test_list_shows_the_format_after_documents(foldlog, stored):
    stored["langgraph/t"].append((), documents={"checkpoint": {"step": -1}})
    stored["langgraph/t"].append(said("hi", origin=Origin(format="langchain")))
    assert foldlog("list --json").rows("format") == ["langchain"]


def test_show_takes_an_event_or_documents(foldlog):
    foldlog("append c hi --new")
    for option in ("--documents", "--at 1"):
        ran = foldlog(f"show c 0 {option}")
        assert (ran.status, "name an event" in ran.err) == (2, True)
