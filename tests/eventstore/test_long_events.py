"""Events of many bytes, which must not stop other threads and other writers."""

import pytest

from foldlog.eventstore import open_store
from foldlog.eventstore.codec import decode_all, encode
from foldlog.eventstore.log import row
from foldlog.eventstore.maintenance.verify import verify
from foldlog.eventstore.recorders.writers import INSIDE
from tests.said import said

LONG = "long " * 300_000


def test_long_bodies_are_decoded_as_short_ones():
    encoded = [encode(said(text)) for text in (LONG, "short", LONG)]
    kinds = [stored.kind for stored in encoded]
    schemas = [stored.schema for stored in encoded]
    bodies = [stored.body for stored in encoded]
    events = decode_all(kinds, schemas, bodies, [4, 5, 6])
    assert [(event.id, event.content) for event in events] == [(4, LONG), (5, "short"), (6, LONG)]
    cut_off = [bodies[0], bodies[0][:-1], bodies[2]]
    assert decode_all(kinds, schemas, cut_off, [4, 5, 6]) is None


@pytest.mark.parametrize("compression", ["none", "zlib"])
def test_a_long_event_is_hashed_before_the_transaction(tmp_path, monkeypatch, compression):
    commitment = row.commitment
    sha256 = row.sha256
    are_inside = []
    """For each long body that is hashed, whether a transaction waits for it."""

    def note(salt, body):
        are_inside.append(bool(INSIDE))
        return commitment(salt, body)

    def note_long(hashed):
        if len(hashed) > len(LONG):
            are_inside.append(bool(INSIDE))
        return sha256(hashed)

    with open_store(tmp_path / "history.db", compression=compression) as store:
        monkeypatch.setattr(row, "commitment", note)
        monkeypatch.setattr(row, "sha256", note_long)
        store.append("c1", [said(LONG), said("short")], expected_version=0)
        monkeypatch.undo()
        assert are_inside == [False]
        assert [event.content for event in store.events("c1")] == [LONG, "short"]
        assert not any(verdict.findings for verdict in verify(store))
