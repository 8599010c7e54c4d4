"""The changes of a conversation that exists, as values that a recorder gets: see ``Transaction.change``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from foldlog.eventstore.recorders.types import Erasure, RecalledKey, Record, Row


class NewKey(NamedTuple):
    """Another salt and another wrapped data key for a conversation. Lists find it again once it is listed again."""

    salt: bytes
    key_id: str | None
    sealed_key: bytes | None


class FirstKey(NewKey):
    """The same for a conversation under which nothing is stored yet."""


class NewMark(NamedTuple):
    """Another mark for a conversation."""

    mark: bytes | None


class PastRows(NamedTuple):
    """Rows below the first own event of a fork. No follower reads them before they get positions (``PlacedPast``)."""

    rows: Sequence[Row]


class PlacedPast(NamedTuple):
    """The copied rows of a fork, which are this many, get the next positions: followers read them. The fork has no
    parent any more.
    """

    events: int


class Visible(NamedTuple):
    """Make a staged conversation of this many events visible, in constant time, with the next positions."""

    events: int


class NewForm(NamedTuple):
    """Existing rows in another form, or with redacted content: their encoding, body, checksum and proof change."""

    rows: Sequence[Row]


class RememberedKey(NamedTuple):
    """Store what a new idempotency key stands for. With ``again``, store a new proof for a key that exists; without it,
    such a key raises ``taken``.
    """

    idempotency_key: str
    recalled: RecalledKey
    again: bool = False


class NewRecords(NamedTuple):
    """Keep records of a projection. One of the same version is replaced; with ``replace_all``, all others are deleted.
    Those of no conversation have the key 0, and those of all conversations together the key ``OF_ALL``.
    """

    projection: str
    records: Sequence[Record]
    replace_all: bool = False


class NewListing(NamedTuple):
    """When the conversation was active last, the version at which it is listed, and the digests of its attributes; None
    for those that it had. An ``Erasure`` removes the conversation from the lists.
    """

    at: int
    version: int
    digests: Sequence[bytes] | None


class MoreRedactions(NamedTuple):
    """Add this number of redacted events to the count of the conversation."""

    events: int


DISCARDED: Final = "discarded"
"""The state of a detachment whose copies are being deleted, in several transactions: none is added then."""


class Left(NamedTuple):
    """The transaction leaves this operation on the conversation unfinished, in the place of any other one."""

    operation: str
    state: str = ""


class Finished(NamedTuple):
    """No operation on the conversation is unfinished."""


STATEMENTS: Final[Mapping[type, str]] = {
    NewKey: "set_key",
    FirstKey: "set_key",
    NewMark: "set_mark",
    MoreRedactions: "count_redactions",
    Left: "leave_unfinished",
    Finished: "finish",
}
"""The changes that are one statement, of which the key of the conversation and the fields are the parameters."""

LEAVE_BYTES: Final = (NewKey, NewForm, Erasure)
"""The changes that replace or delete what was stored: its bytes stay in the files, until ``Recorder.compact``. They
delete the records of all conversations together, which may repeat it.
"""

OF_ALL: Final = -1

Change = (
    NewKey | NewMark | NewForm | MoreRedactions | PastRows | PlacedPast | Visible | RememberedKey
    | NewRecords | NewListing | Left | Finished | Erasure
)  # fmt: skip
"""A change of a conversation that exists. An ``Erasure`` makes it a tombstone: its rows cannot be read any more, its
salt and key are deleted at once, and ``delete`` removes the rest.
"""
