"""Redaction in a SQLite file: what verification accepts, and what other processes show."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from foldlog import Histories
from foldlog.eventstore import (
    CannotRedact,
    CondensationAction,
    Origin,
    Redacted,
    UnknownEvent,
    open_store,
)
from foldlog.eventstore.codec import encode
from foldlog.eventstore.log import row as hash_chain
from foldlog.eventstore.log.redacted import without_content
from foldlog.eventstore.log.row import stored_event_of
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.types import HEAD_BYTES, as_rows
from foldlog.projections import Views
from tests import stored_rows
from tests.golden.rows import made_events, rows
from tests.privacy import redacted
from tests.said import said, say
from tests.stored_rows import with_fields

WHEN = datetime(2026, 1, 1, tzinfo=UTC)


# -- what verification accepts
# -----------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "store.db"
    with open_store(f"sqlite:///{path}") as store:
        say(store, "c", *[f"text {n}" for n in range(6)])
    return path


def row_of(path, event_id):
    with open_store(f"sqlite:///{path}") as store, store.database.recorder.read() as reader:
        (row,) = as_rows(reader.rows(1, event_id, event_id + 1, 1))
    return row


def put(path, row):
    """Write a row as somebody does who knows how checksums and commitments are made."""
    stored_rows.replace(path, "c", row)


def redacted_by_hand(row, receipt=lambda receipt: receipt):
    """Return a row in the form that a redaction gives it. ``receipt`` may change the receipt."""
    event = stored_event_of("c", row)
    commitment = hash_chain.commitment_of(row.proof, row.body)
    redaction = receipt(
        Redacted(at=WHEN, by="me", reason="mine", hash=commitment.hex(), bytes=len(row.body))
    )
    return with_fields(
        row,
        body=encode(without_content(event, redaction), ours=True).body,
        proof=row.head + commitment,
    )


def findings(path):
    """Return the texts of what verify finds."""
    with open_store(f"sqlite:///{path}") as store:
        return [str(finding) for verdict in verify(store) for finding in verdict.findings]


def redact_at(path, event_id):
    with open_store(f"sqlite:///{path}") as store:
        redacted(store, "c", event_id)


NO_RECEIPT = "it is redacted, but no later event is a receipt with this hash"


def test_redacted_row_without_its_receipt_is_found(path):
    sound = row_of(path, 2)
    put(path, redacted_by_hand(sound))
    assert findings(path) == [f"event 2: {NO_RECEIPT}"]
    redact_at(path, 3)  # This is the receipt of another event.
    assert findings(path) == [f"event 2: {NO_RECEIPT}"]
    put(path, redacted_by_hand(sound, lambda receipt: replace(receipt, hash="00" * 32)))
    assert findings(path) == [
        "event 2: its content was erased or replaced, but its receipt is for other content",
        f"event 2: {NO_RECEIPT}",
    ]
    put(
        path,
        redacted_by_hand(sound)._replace(
            body=b'{"kind":"message","content":"mine","source":"user"}'
        ),
    )
    assert (
        findings(path)[0]
        == "event 2: its content was erased or replaced, but no redaction has a receipt for it"
    )
    put(path, sound)
    assert findings(path) == []


def test_redacted_row_with_content_is_found(path):
    redact_at(path, 2)
    row = row_of(path, 2)
    assert findings(path) == []
    put(path, row._replace(body=row.body.replace(b"[redacted]", b"[mine]")))
    assert findings(path) == ["event 2: its receipt says that it is redacted, but it has content"]
    put(path, row._replace(body=row.body.replace(b'"message"', b'"annotation"')))
    [found] = findings(path)
    assert found.startswith("event 2: its content was changed")


def test_content_that_was_put_back(path):
    sound = row_of(path, 2)
    redact_at(path, 2)
    put(path, sound)
    assert findings(path) == [
        "event 2: a later event is the receipt of its redaction, but its content is still stored"
    ]


def test_other_commitment_breaks_the_chain(path):
    redact_at(path, 2)
    row = row_of(path, 2)
    put(path, with_fields(row, proof=row.proof[:HEAD_BYTES] + bytes(32)))
    assert any(line.startswith("event 2: ") for line in findings(path))


def test_receipt_that_was_cut_off(path):
    redact_at(path, 2)
    stored_rows.execute(path, "DELETE FROM events WHERE conversation = 1 AND id = 6")
    assert f"event 2: {NO_RECEIPT}" in findings(path)


def test_event_of_a_later_version_stays(path):
    later = UnknownEvent(stored_kind="pin", stored_schema=1, body=b'{"kind":"pin"}')
    with open_store(f"sqlite:///{path}") as store:
        store.append("c", later, expected_version=6)
        with pytest.raises(CannotRedact, match="a later version of foldlog"):
            redacted(store, "c", 6)
        assert [*store.events("c", 6)] == [replace(later, id=6)]


# -- redacted events
# --------------------------------------------------------------------------------------------------

REDACTED_EVENTS = rows("places_of_texts.json", "the stored form of a redacted event")


@pytest.mark.parametrize("kind", REDACTED_EVENTS)
def test_redacted_event_has_place_and_usage(kind):
    before, stripped = made_events(REDACTED_EVENTS[kind])
    receipt = Redacted(at=WHEN, by="me", reason="mine", hash="", bytes=0)
    expected = encode(replace(stripped, redacted=receipt), ours=True)
    assert encode(without_content(before, receipt), ours=True).body == expected.body


# -- other readers
# --------------------------------------------------------------------------------------------------


def test_views_of_another_process_are_redacted(path):
    with open_store(f"sqlite:///{path}") as ours, open_store(f"sqlite:///{path}") as other:
        views = Views(other)
        ours.fork("c", 3, "f")
        for name in ("c", "f"):
            assert views.current(name).events[2].content == "text 2"
        say(ours, "f", "on")
        views.current("f")
        redacted(ours, "c", 2)
        for view in (
            views.at("c", 6),
            views.current("c"),
            views.current("f"),
            views.at("f", 4),
            views.at("f", 3),
        ):
            assert view.events[2].content == "[redacted]"


def test_summary_quotes_only_its_own_view(path):
    """The fork's next condensation names event 6, the condensation itself, which is in no View. So
    its summary does not quote the redacted event.
    """
    with open_store(f"sqlite:///{path}") as store:
        store.append(
            "c",
            CondensationAction(forgotten_event_ids=[1], summary="sum", summary_offset=1),
            expected_version=6,
        )
        store.fork("c", 7, "f")
        for number, ids in enumerate(([6], [-8]), 7):
            forgets = CondensationAction(forgotten_event_ids=ids, summary="more", summary_offset=1)
            store.append("f", forgets, expected_version=number)
        receipt = Histories(store)["c"].redact(1, reason="asked to", by="me", with_summaries=True)
        assert [quote[:2] for quote in receipt.quotes] == [("c", 6), ("f", 8)]


def test_short_source_id_stays(path):
    """A redaction keeps an id of the source that can be no private text, because other records name
    the event by this id.
    """
    words = (7, "u2", "0b0c4a2e-9b7e-4d1c-8f5a-1c2d3e4f5a6b", "lc_run--01-0", "msg_01:a.b")
    with open_store(f"sqlite:///{path}") as store:
        for number, source_id in enumerate(
            ({"a": 1}, [2], "of Ana", "ana@example.org", "", "a" * 65, *words)
        ):
            origin = Origin(format="openhands-v0", id=source_id)
            forgets = CondensationAction(
                forgotten_event_ids=[0], summary="sum", summary_offset=1, origin=origin
            )
            name = f"v0 {number}"
            store.ingest(name, [said("secret", origin=origin), forgets])
            assert redacted(store, name, 0).quotes == ()
            first = next(store.events(name))
            assert first.origin == Origin(
                format="openhands-v0", id=source_id if source_id in words else None
            )
            assert first.content == "[redacted]"
