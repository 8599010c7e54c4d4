"""What a recorder keeps and is given: rows, conversations, records, idempotency keys, changes of a conversation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple

__all__ = [
    "DIGEST_BYTES",
    "HEAD_BYTES",
    "HIDDEN_KEYS",
    "SOURCE_KEYS",
    "Ancestor",
    "BareRow",
    "Change",
    "Conversation",
    "Erasure",
    "ForgottenKey",
    "Fork",
    "Grown",
    "ListedConversation",
    "MoreRedactions",
    "NewContent",
    "NewForm",
    "NewKey",
    "NewMark",
    "NewPast",
    "Only",
    "PastRows",
    "Place",
    "PlacedRow",
    "RecalledKey",
    "Record",
    "Row",
    "as_rows",
    "head_of",
    "kind_name",
]

SOURCE_KEYS: Final = "foldlog:source:"
"""How idempotency keys begin that can be found over all conversations."""

HEAD_BYTES: Final = 32
"""The size of a head, with which the proof of a row begins."""

HIDDEN_KEYS: Final = "foldlog:redacted:"
"""How idempotency keys begin that were replaced by a keyed hash, since an event that they stand for was redacted."""

DIGEST_BYTES: Final = 16
"""The size of a digest that stands for an attribute in lists."""


class Row(NamedTuple):
    """One event as stored. ``recorded_at`` is in microseconds since 1970, UTC. ``encoding`` 0 is plain JSON text.

    ``proof`` is the head, and after it the salt of the body, or the commitment to a body that was redacted; see
    ``stored.hash_chain``. ``shown_before`` and ``structural_before`` count such events before this one, so that a
    reader who walks an index sees where one is missing. ``checksum`` is that of the row (``hash_chain.checksum``). A
    recorder only keeps them.
    """

    id: int
    kind: str
    schema: int
    shown: bool
    structural: bool
    recorded_at: int
    encoding: int
    body: bytes
    proof: bytes
    shown_before: int = 0
    structural_before: int = 0
    checksum: int = 0

    @property
    def head(self) -> bytes:
        """The head after this event. In a damaged row it may be of any type."""
        return head_of(self.proof)


BareRow = tuple[Any, ...]
"""The columns of a ``Row``, whatever a database has in them, the kind as UTF-8 bytes. ``as_rows`` makes rows of them.
"""


Place = Callable[[], int]
"""A position that is known when its transaction has been committed. Not to be asked for before."""


class PlacedRow(NamedTuple):
    """A row with its place in the whole store."""

    position: int
    conversation: str
    row: BareRow


class Erasure(NamedTuple):
    """What is left of an erased conversation: when, why, how many events it had, and its last head."""

    erased_at: int
    reason: str
    events: int
    head: bytes


class Ancestor(NamedTuple):
    """A conversation that a fork's past belongs to, and the version at which the past leaves it. ``parent`` is its own
    parent. ``has_records``: projections keep records of it.
    """

    key: int
    stop: int
    id: str
    encrypted: bool
    parent: int | None
    has_records: bool = True


class Conversation(NamedTuple):
    """A conversation as one read found it. ``version``, ``head`` and ``updated_at`` are those of its last event; an
    empty conversation has version 0, no head and ``updated_at`` None. ``shown`` and ``structural`` are how many such
    events it has: what its last event says was before it, and that event itself. ``astray``: the database contradicts
    itself about which event is the last. ``visible``: it is not staged. ``mark`` is the row codec's (``stored.marks``).

    A fork has a ``parent``, whose id is ``parent_id``: events below ``parent_version`` are read there. While it has no
    event of its own, the last one is its parent's. ``lineage`` holds its ancestors, its parent first; a list leaves it
    out. ``past`` is there where a fork has copied its past instead, see ``stored.past``: then it has a
    ``parent_version`` and no parent. ``replaces`` is the key of the erased
    conversation whose id it uses again. ``redactions`` counts the events that were redacted here, of a
    fork also those that it shares and that were redacted since it began: a copy of the events in memory is right while
    it stays.
    """

    key: int
    id: str
    created_at: int
    salt: bytes
    version: int
    updated_at: int | None
    head: bytes | None
    shown: int = 0
    structural: int = 0
    parent: int | None = None
    parent_version: int | None = None
    key_id: str | None = None
    sealed_key: bytes | None = None
    erasure: Erasure | None = None
    astray: bool = False
    visible: bool = True
    mark: bytes | None = None
    parent_id: str | None = None
    lineage: tuple[Ancestor, ...] = ()
    past: bytes | None = None
    replaces: int | None = None
    redactions: int = 0

    @property
    def begins(self) -> int:
        """The id of the first event that is stored under its own key."""
        return 0 if self.parent is None else self.parent_version or 0

    def grown(self, last: Row) -> Conversation:
        """Return the conversation with ``last`` as its newest row."""
        return self._replace(
            version=last.id + 1,
            updated_at=last.recorded_at,
            head=last.head,
            shown=last.shown_before + last.shown,
            structural=last.structural_before + last.structural,
        )


class Record(NamedTuple):
    """What a projection keeps for one version of a conversation. ``code`` is the version of the projection's code;
    ``base`` is the version of the record that this one builds on, if it does not stand alone. ``encoding`` and
    ``checksum`` are what they are in a ``Row``.
    """

    version: int
    code: int
    base: int | None
    body: bytes
    encoding: int = 0
    checksum: int = 0
    projection: str = ""


class RecalledKey(NamedTuple):
    """What an idempotency key stands for: the first id and the number of the events that were appended under it.
    ``proof`` is the row codec's.
    """

    first_id: int
    events: int
    proof: bytes | None = None
    position: int | None = None


def head_of(proof: bytes) -> bytes:
    """Return the head with which the proof of a row begins; another value as it is."""
    return proof[:HEAD_BYTES] if type(proof) is bytes else proof


_KINDS_MAX: Final = 1_000
_KINDS: Final[dict[bytes, str]] = {}
"""Texts of the kinds met so far: there are few, and rows are many."""
_new: Final = tuple.__new__  # what Row(...) calls, without the call around it


def as_rows(bare: Iterable[BareRow]) -> list[Row]:
    """Return rows as a recorder has read them. A column that cannot be one is given a value that no check accepts."""
    rows = []
    for event_id, kind, schema, shown, structural, at, encoding, body, proof, before, turns, check in bare:
        if type(event_id) is not int:
            event_id = -1
        name = kind_name(kind)
        rows.append(
            _new(Row, (event_id, name, schema, shown == 1, structural == 1, at, encoding, body, proof, before, turns,
                       check))
        )  # fmt: skip
    return rows


def kind_name(kind: bytes) -> str:
    """Return the text of a kind; of what cannot be a kind, an empty one."""
    name = _KINDS.get(kind)
    if name is None:
        name = str(kind, "utf-8", "replace") if type(kind) is bytes else ""
        if name and len(_KINDS) < _KINDS_MAX:
            _KINDS[kind] = name
    return name


class ListedConversation(NamedTuple):
    """A conversation in a list: when it was active last, and its version, as it was when it was listed. ``attributes``
    is the record that holds these, if it has any.
    """

    key: int
    id: str
    created_at: int
    is_encrypted: bool
    at: int
    version: int
    attributes: Record | None


class NewKey(NamedTuple):
    """Another salt and another wrapped data key for a conversation. ``replaces`` is the wrapped key that was found.

    Lists find the conversation again once it is listed again.
    """

    salt: bytes
    key_id: str | None
    sealed_key: bytes | None
    replaces: bytes | None


class NewMark(NamedTuple):
    """Another mark for a conversation."""

    mark: bytes | None


class Grown(NamedTuple):
    """A fork gets its first event: from now on it is damaged if it has none."""


class NewPast(NamedTuple):
    """What is known of copied events (``stored.past``), and the version up to which they are copied. A fork has no
    parent any more.
    """

    past: bytes
    version: int


class PastRows(NamedTuple):
    """Rows below the first own event of a fork, which get no positions: no follower meets them."""

    rows: Sequence[Row]


class NewForm(NamedTuple):
    """Existing rows in another form: their encoding, body and checksum change, and nothing else."""

    rows: Sequence[Row]


class NewContent(NamedTuple):
    """Existing rows with another content, since they are redacted: encoding, body, checksum, and what follows the head
    in their proof.
    """

    rows: Sequence[Row]


class ForgottenKey(NamedTuple):
    """An idempotency key is deleted, if it is there."""

    idempotency_key: str


class MoreRedactions(NamedTuple):
    """This number of events were redacted that the conversation shows."""

    events: int


class Fork(NamedTuple):
    """Where a fork begins: in ``parent``, after ``border``, one of the rows stored under the parent's own key."""

    parent: Conversation
    border: Row

    def begun(self, empty: Conversation) -> Conversation:
        """Return a new fork as a read finds it."""
        parent, border = self
        stop = border.id + 1
        ancestor = Ancestor(parent.key, stop, parent.id, parent.sealed_key is not None, parent.parent)
        forked = empty._replace(parent=parent.key, parent_version=stop, parent_id=parent.id)
        return forked._replace(lineage=(ancestor, *parent.lineage)).grown(border)


Change = NewKey | NewMark | NewForm | NewContent | MoreRedactions | NewPast | PastRows | Grown | ForgottenKey | Erasure
"""What can be changed of a conversation that exists. An ``Erasure`` replaces it: its rows cannot be read any more, salt
and key are gone at once, and ``delete`` removes the rest.
"""


Only = Literal["all", "structural", "documents"]
"""Which rows are read: those of kind ``document_changes`` are ``documents``."""
