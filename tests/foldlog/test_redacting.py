"""Redaction as people use it: the Python face, the command, the search index, an audit database, exports."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import foldlog
from eventstore import CannotRedact, InvalidArgument, Message
from foldlog import aio
from foldlog.formats import decode, encode
from foldlog.maintenance import Maintenance
from foldlog.reports.audit_database import open_database, update
from tests.crash.bytes_left import bytes_left


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    with foldlog.open(path) as histories:
        history = histories["c"]
        history.append(
            [Message(source="user", content=f"word{n} marigold" if n == 2 else f"word{n}") for n in range(6)]
        )
    return path


def test_a_history_redacts_its_events(path: Path):
    with foldlog.open(path) as histories:
        history = histories["c"]
        (event,) = [event for event in history.view if event.id == 2]
        receipt = history.redact(event, reason="asked to")
        assert (receipt.event_ids, receipt.bytes_pending, receipt.unconfirmed) == ((2,), False, ())
        assert receipt.by
        assert history.redact(2, reason="again").hashes == receipt.hashes
        assert history.view[2].content == "[redacted]"
        with pytest.raises(CannotRedact):
            history.redact(6, reason="asked to")
        with pytest.raises(InvalidArgument):
            history.redact(99, reason="asked to")
    assert bytes_left(path.parent, ["marigold"]) == []


def test_the_async_face_redacts(path: Path):
    async def redact() -> None:
        async with aio.open(path) as histories:
            receipt = await histories["c"].redact(2, reason="asked to", by="me")
            assert receipt.by == "me"

    asyncio.run(redact())
    assert bytes_left(path.parent, ["marigold"]) == []


def test_the_search_index_finds_it_no_more_and_holds_none_of_its_bytes(path: Path):
    with foldlog.open(path) as histories:
        assert len(histories.search("marigold")) == 1
        histories["c"].append([Message(source="user", content="later")])
        histories["c"].redact(2, reason="asked to")
        assert bytes_left(path.parent, ["marigold"]) == []
        assert histories.search("marigold") == ()
        assert len(histories.search("word1")) == len(histories.search("later")) == 1


def test_an_index_that_is_behind_never_takes_it_in(path: Path):
    with foldlog.open(path) as histories, foldlog.open(path) as other:
        assert len(histories.search("word1")) == 1
        other["c"].append([Message(source="user", content="secondary marigold")])
        other["c"].redact(6, reason="asked to")
        other["c"].redact(2, reason="asked to")
        assert histories.search("marigold") == ()
        assert bytes_left(path.parent, ["marigold"]) == []


def test_an_audit_database_holds_it_no_more(path: Path):
    audit = path.with_name("audit.db")
    with foldlog.open(path) as histories:
        histories.store.fork("c", 3, "f")
        for conversations in (None, ["c", "f"]):
            update(histories.store, audit, conversations)
        histories["c"].redact(2, reason="asked to")
        update(histories.store, audit)
        database = open_database(histories.store, audit)
        rows = list(database["events"].rows_where("id = 2", order_by="conversation"))
        assert [(row["conversation"], row["text"]) for row in rows] == [("c", "[redacted]"), ("f", "[redacted]")]
        database.close()
    assert bytes_left(path.parent, ["marigold"]) == []


def test_a_search_index_that_cannot_be_changed_is_named(path: Path):
    with foldlog.open(path) as histories:
        histories.search("marigold")
    path.with_name("store.db.search").write_bytes(b"another program's file" * 100)
    with foldlog.open(path) as histories:
        (unconfirmed,) = Maintenance(histories.store).redact("c", 2, reason="asked to").unconfirmed
        assert unconfirmed.startswith("search index: ")


GOLDEN = Path(__file__).parents[1] / "golden" / "imports"
FORMATS = [file.stem for file in sorted(GOLDEN.glob("*.jsonl"))]


@pytest.mark.parametrize("format", FORMATS)
def test_a_history_with_any_redacted_event_can_be_exported(format: str):
    for line in (GOLDEN / f"{format}.jsonl").read_text("utf-8").splitlines():
        events = list(decode(json.loads(line)["records"], format))
        with foldlog.open("memory:") as histories:
            for event_id in range(len(events)):
                history = histories[f"{event_id}"]
                histories.store.ingest(history.id, events)
                history.redact(event_id, reason="asked to")
                for written in (format, "openai-chat"):
                    assert json.dumps(list(encode(histories.store.events(history.id), written)))
                history.view.to_messages()
                history.stats()
