"""Answers of the commands ``foldlog store``, and of followers."""

from __future__ import annotations

from foldlog._reports.answers.conversations import ConversationDocument
from foldlog._reports.answers.document import Document, OfConversation, ProblemDocument
from foldlog._reports.store_info import StoreInfo


class BackedUpDocument(Document):
    """The output of ``foldlog store backup``. ``records`` is the number of source records whose
    events are not made yet.
    """

    file: str
    bytes: int
    conversations: int
    events: int
    records: int
    findings: tuple[ProblemDocument, ...]


class CopiedDocument(Document):
    """The output of ``foldlog store copy``. ``grown_since`` lists the conversations to which events
    were appended while the copy was made. ``records`` is the number of records whose events are not
    made yet.
    """

    conversations: int
    already_there: int
    events: int
    tombstones: int
    records: int
    grown_since: tuple[str, ...]
    findings: tuple[ProblemDocument, ...]


class VacuumDocument(Document):
    """The output of ``foldlog store vacuum``."""

    imports_discarded: int
    bytes_before: int | None
    bytes_after: int | None
    bytes_pending: bool
    space_returned: bool


class IndexDocument(Document):
    """The output of ``foldlog store index``: the number of events and records that were added, and
    whether the index was removed.
    """

    added: int
    dropped: bool


class KeptUpDocument(Document):
    """The output of ``foldlog store keep-up``, once everything is up to date."""

    db: str


class SearchIndexDocument(Document):
    """The search index of a store. A search uses it if it ``is_complete``, and reads the
    ``events_left`` after its events, and ``unread`` other conversations. ``bytes`` is its size on
    disk, which is an estimate in SQLite.
    """

    is_complete: bool
    with_encrypted: bool
    events_left: int
    unread: int
    bytes: int


class StoreInfoDocument(StoreInfo, Document, kw_only=True):
    __doc__ = StoreInfo.__doc__  # The JSON Schema describes the same fields.

    db: str
    search_index: SearchIndexDocument | None = None


class RestoredDocument(Document):
    """The output of ``foldlog store restore``. ``former_file`` is the new path of the file that the
    restore replaced, or null if there was no file. Events that were erased or redacted after the
    backup exist again. The fields ``erased_since`` and ``redacted_since`` name the conversations of
    these events.
    """

    file: str
    former_file: str | None
    conversations: int
    events: int
    records: int
    erased_since: tuple[str, ...]
    redacted_since: tuple[str, ...]


class HolderDocument(Document):
    """The open transaction that delays the followers of a store on a PostgreSQL server."""

    pid: int | None
    application: str | None
    state: str
    age_s: float


class FollowerDocument(Document):
    """How far a follower is behind."""

    follower: str
    position: str
    events: int
    seconds: float


class FollowersDocument(Document):
    """The output of ``foldlog list --followers``. Positions are texts, because they may be too
    large for a JSON number.
    """

    horizon: str
    horizon_age: int
    last_position: str
    held_back: int
    held_by: HolderDocument | None
    synchronous_commit: str
    synchronous_standby_names: str
    followers: tuple[FollowerDocument, ...]


class UnfinishedDocument(Document):
    """An operation that a command began and did not finish. Run the command again."""

    outcome: str
    problem: str


class CheckpointDocument(Document):
    """The output of ``foldlog store checkpoint``. ``note`` is the text to keep, with signatures."""

    origin: str
    leaves: int
    root: str
    note: str


class ErasedDocument(Document):
    """The output of ``foldlog store erase``: the tombstones of the erased conversations, and the
    conversations that were not erased, with the reasons. With ``--dry-run``, the document lists the
    conversations that would be erased. ``holders`` are the files and read models that may still
    contain the content.
    """

    conversations: tuple[ConversationDocument, ...]
    events: int
    stay: tuple[ProblemDocument, ...]
    holders: tuple[str, ...]


class ArchivedConversationDocument(OfConversation):
    """A conversation that was archived as one object. ``events`` is the number of events in the
    object, and ``bytes`` is its size.
    """

    events: int
    bytes: int


class ArchivedDocument(Document):
    """The output of ``foldlog store archive``: the archived conversations, and the conversations
    that were not archived, with the reasons.
    """

    conversations: tuple[ArchivedConversationDocument, ...]
    stay: tuple[ProblemDocument, ...]


class RekeyedDocument(OfConversation):
    """A conversation that was rekeyed. ``key`` is true if the data key of the conversation changed.
    ``rows`` is the number of changed rows. ``damaged`` are the rows that could not be changed,
    because they are damaged.
    """

    key: bool
    rows: int
    damaged: tuple[int, ...]
    problem: str | None


class RekeyDocument(Document):
    """The output of ``foldlog store rekey``."""

    db: str
    conversations: tuple[RekeyedDocument, ...]
    bytes_pending: bool
