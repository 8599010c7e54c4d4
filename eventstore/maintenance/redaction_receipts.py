"""Match redacted events with the receipts of redactions in a verification: each must have the other. Pure."""

from __future__ import annotations

from foldlog.eventstore import codec
from foldlog.eventstore.events import Redaction
from foldlog.eventstore.log.redacted import can_be_redacted, without_content
from foldlog.eventstore.log.row import is_redacted
from foldlog.eventstore.recorders.types import HEAD_BYTES, Row

KIND = "redaction"
"""The stored kind of a receipt."""


class Receipts:
    """What the rows of one conversation say about redactions. The caller passes it each sound row that may matter."""

    def __init__(self) -> None:
        self._redacted: dict[int, str] = {}
        self._receipts: dict[int, set[str]] = {}

    def take(self, row: Row) -> str | None:
        """Take a plain row whose head is right. Return its problem, if it is not what a redaction leaves."""
        if row.kind == KIND:
            self.take_receipt(row)
        if not is_redacted(row.proof):
            return None
        own = row.proof[HEAD_BYTES:].hex()
        self._redacted[row.id] = own
        try:
            event = codec.decode(row.kind, row.schema, row.body, row.id, row.shown, row.structural)
        except codec.Undecodable as error:
            return f"its content was changed: {error}"
        if event.redacted is None:
            return "its content was erased or replaced, and no redaction has a receipt for it"
        if event.redacted.hash != own:
            return "its content was erased or replaced, and its receipt is for another content"
        if not can_be_redacted(event) or without_content(event, event.redacted) != event:
            return "its receipt says that it is redacted, and it has content"
        return None

    def take_receipt(self, row: Row) -> None:
        """Take a plain row of a receipt."""
        try:
            event = codec.decode(row.kind, row.schema, row.body, row.id)
        except codec.Undecodable:
            return  # the reader of the event reports it
        if isinstance(event, Redaction):
            for event_id, its_hash in zip(event.event_ids, event.hashes, strict=False):
                if event_id < row.id:
                    self._receipts.setdefault(event_id, set()).add(its_hash)

    def without_receipt(self) -> list[int]:
        """Return the redacted events that no later receipt names."""
        return [each for each, its_hash in self._redacted.items() if its_hash not in self._receipts.get(each, ())]

    def without_redaction(self) -> list[int]:
        """Return the events that a later receipt names, and that are not redacted."""
        return sorted(self._receipts.keys() - self._redacted.keys())
