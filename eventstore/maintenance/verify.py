"""Check by heads and checksums that every event of a store is unchanged, present and in its place.

The store alone cannot reveal that the end of a history was cut off, or that a whole history was
rewritten. ``proof.comparison.verify_against`` detects this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from hashlib import sha256
from operator import attrgetter
from typing import NamedTuple, TypeVar

from foldlog.eventstore import codec
from foldlog.eventstore.codec import ENTRY_KINDS
from foldlog.eventstore.codec_json import (
    BEGINS_WITH_LIST,
    Undecodable,
    attachments_of,
    listed_in,
)
from foldlog.eventstore.errors import (
    ConversationNotFound,
    CorruptEvent,
    KeyUnavailable,
    StoreDamaged,
    count,
)
from foldlog.eventstore.events import Redacted, Redaction, RedactionCopied
from foldlog.eventstore.lists.checking import find_unlisted
from foldlog.eventstore.log.database import Database, start_after
from foldlog.eventstore.log.finding import tombstones_before
from foldlog.eventstore.log.importing import BACKUP
from foldlog.eventstore.log.ledger import decoded_entries
from foldlog.eventstore.log.past import past_of
from foldlog.eventstore.log.redacted import can_be_redacted, without_content
from foldlog.eventstore.log.row import (
    checksum_seed,
    commitment_of,
    first_head,
    is_redacted,
    link,
    stored_event_of,
    unsound,
)
from foldlog.eventstore.log.seal import DAMAGED, RowCodec
from foldlog.eventstore.recorders.base import Columns, Reader, Recorder
from foldlog.eventstore.recorders.sqlite.replacing import is_abandoned
from foldlog.eventstore.recorders.types import (
    HEAD_BYTES,
    Conversation,
    Erasure,
    Row,
    in_columns,
    kind_name,
    unpacked,
)
from foldlog.eventstore.sources.blocks import TextsBetween
from foldlog.eventstore.sources.moving import problems_of
from foldlog.eventstore.store import Store

T = TypeVar("T")

_ATTEMPTS = 5
"""How many times a check is repeated if the conversation changed during the check."""
_state = attrgetter(
    "version", "head", "redactions", "mark", "parent", "erasure", "unmade", "archived"
)


class RedactedEvent(NamedTuple):
    """A redacted event, and what says that its redaction was lawful.

    ``body``      SHA-256 of what is left of the event
    ``mark``      the mark of the redaction, in the event
    ``receipt``   the id of the event that is the receipt, or None
    ``entry``     the number of the ledger's entry that serves as the receipt, or None
    ``is_whole``  whether this receipt or entry has the hash ``body``
    """

    id: int
    body: str
    mark: Redacted
    receipt: int | None
    entry: int | None
    is_whole: bool


class Later(NamedTuple):
    """What came after a checkpoint: numbers of events and source records, of new conversations, and
    of erased conversations. The checkpoint proves nothing about the first three.
    """

    events: int = 0
    records: int = 0
    conversations: int = 0
    erased: int = 0


class Unmade(NamedTuple):
    """What a checkpoint covers of an import: its first ``records`` records and ``version`` events.
    The first ``made`` records had become events; None if the checkpoint does not cover how many.
    """

    made: int | None
    records: int
    version: int


class Verdict(NamedTuple):
    """The findings in one conversation. If ``conversation`` is None, the findings are problems of
    the database itself.

    ``head``        the head of the last event
    ``erasure``     the tombstone of an erased conversation
    ``generation``  if several conversations used this id, one after another, the number of
                    conversations before this one: each has a verdict of its own
    ``unmade``      the number of source records without events
    ``archived``    the number of archived events, which ``check_archived`` checks
    ``redacted``    all redacted events that are stored under the key of the conversation
    ``between``     the texts between the records of its source, as in ``TextsBetween.found``

    The remaining fields are set if the store was compared with a checkpoint:

    ``redactions``        the redactions since the checkpoint
    ``redacted_records``  the source records without events that were redacted since then
    ``later``             what came after the checkpoint, in the verdict about the database
    ``redacted_unread``   if the key of an encrypted conversation is missing, the events that were
                          redacted since then
    ``receipts_unread``   if the key is missing, the events that are receipts and came since then
    ``unmade_then``       for an import that may have had records without events then, what of it
                          the checkpoint covers
    """

    conversation: str | None
    version: int
    head: bytes | None
    erasure: Erasure | None
    findings: tuple[VerifyFinding, ...]
    generation: int = 0
    unmade: int = 0
    archived: int = 0
    redactions: tuple[Redaction, ...] = ()
    redacted: tuple[RedactedEvent, ...] = ()
    redacted_records: tuple[int, ...] = ()
    later: Later | None = None
    between: tuple[tuple[int, bytes], ...] = ()
    redacted_unread: tuple[int, ...] = ()
    receipts_unread: tuple[int, ...] = ()
    unmade_then: Unmade | None = None

    @property
    def events(self) -> int:
        """The number of checked events, without missing and archived events."""
        return self.version - self.archived - sum(finding.missing for finding in self.findings)


def verify(
    store: Store,
    conversation: str | None = None,
    *,
    start: str = "",
) -> Generator[Verdict, None, None]:
    """Check that every event of a store is unchanged, present and in its place. If a conversation
    is named, yield only the verdict on the named conversation. If no conversation is named, yield a
    verdict for each conversation, then a verdict for the database itself.

    The verdicts are sorted by conversation id and begin at ``start``, so an interrupted run can be
    continued.

    Raises ``ConversationNotFound`` or ``StoreUnavailable``. Cost: computing one hash and one
    checksum of every event, with memory for one page of events. If the caller closes the generator,
    the check of the database ends too (on a server, after the running statement).
    """
    database = store.database
    if conversation is not None:
        state = database.recorder.query(lambda reader: reader.conversation(conversation))
        if state is None:
            raise ConversationNotFound(conversation)
        yield from _generations(database, state, with_past=True)
        return
    unlisted: list[VerifyFinding] = []
    is_closed = threading.Event()
    problems = database.recorder.check(is_closed.is_set)
    with ThreadPoolExecutor(1, "check") as beside:
        # The database checks itself outside of Python, so this check takes no extra time.
        database_findings = beside.submit(_findings_in_database, database, problems)
        try:
            last_id = None
            for item in readable_conversations(database.recorder, start):
                if not isinstance(item, Unlisted) and item.id == last_id:
                    yield Verdict(item.id, 0, None, None, (of_all(_HELD_TWICE),))
                elif not isinstance(item, Unlisted):
                    last_id = item.id
                    yield from _generations(database, item)
                elif item.id is None:
                    unlisted.append(of_all(item.problem))
                else:
                    yield Verdict(item.id, 0, None, None, (of_all(item.problem),))
            yield Verdict(None, 0, None, None, (*unlisted, *database_findings.result()))
        finally:
            is_closed.set()


_LEFT_BACKUP = (
    "a backup was interrupted and left {}, a copy of the store; 'foldlog store vacuum' deletes that"
    " file"
)
_UNREADABLE_BACKUP = (
    "a backup still runs, or was interrupted and left {}, a copy of the store that this user cannot"
    " read; run 'foldlog store vacuum' as a user who may, which deletes the file of a killed backup"
)


def _findings_in_database(database: Database, problems: Iterator[str]) -> list[VerifyFinding]:
    """Return what is wrong with the database as a whole, outside of any conversation. ``problems``
    come from ``Recorder.check``.
    """
    recorder = database.recorder
    findings: list[VerifyFinding] = []
    try:
        # If the check ends with an error, ``extend`` has added the findings before it.
        findings.extend(map(of_all, problems))
        findings += [of_all(problem, unproved=True) for problem in recorder.unchecked()]
        backup_paths = [
            operation.state
            for operation in recorder.query(lambda reader: reader.unfinished())
            if operation.operation == BACKUP
        ]
        for path in backup_paths:
            is_left = is_abandoned(path)
            if is_left is None or is_left:
                problem = _LEFT_BACKUP if is_left else _UNREADABLE_BACKUP
                findings.append(of_all(problem.format(path), unfinished=True))
        findings += findings_in_ledger(database, 0, "")
        findings += map(of_all, find_unlisted(database))
    except StoreDamaged as error:
        findings.append(of_all(str(error)))
    return findings


def _generations(
    database: Database, conversation: Conversation, *, with_past: bool = False
) -> Iterator[Verdict]:
    """Yield the verdicts on the erased conversations that had the same id before, then the verdict
    on the conversation. ``with_past`` is true if the events that a fork shares are checked too.
    """
    tombstones: Sequence[Conversation] = ()
    unread: tuple[VerifyFinding, ...] = ()
    if conversation.replaces is not None:
        try:
            tombstones = database.recorder.query(
                lambda reader: tombstones_before(reader, conversation)
            )
        except StoreDamaged as error:
            problem = f"the tombstones of earlier conversations with its id cannot be read: {error}"
            unread = (of_all(problem),)
    for number, tombstone in enumerate(tombstones):
        yield _verdict(database, tombstone, with_past=with_past)._replace(generation=number)
    verdict = _verdict(database, conversation, with_past=with_past)
    yield verdict._replace(findings=(*verdict.findings, *unread), generation=len(tombstones))


def _verdict(
    database: Database, conversation: Conversation, *, with_past: bool, attempts: int = _ATTEMPTS
) -> Verdict:
    """Check a conversation or its tombstone. If ``with_past`` is true, check the events that a fork
    shares with its parent too; a check of the whole store checks them as the parent's. If there are
    findings and the conversation has changed in the meantime, check it again, up to ``attempts``
    times.
    """
    redacted: list[RedactedEvent] = []
    between = TextsBetween()
    try:
        if conversation.erasure:
            checked = _findings_in_tombstone(database, conversation)
        else:
            checked = _findings(database, conversation, with_past, redacted, between)
        # running the check also fills ``redacted`` and ``between``
        findings = list(checked)
    except KeyUnavailable as error:
        not_checked = of_all(f"it could not be checked: {error}", needs_key=True)
        findings = [not_checked, *_findings_without_key(database, conversation)]
    except StoreDamaged as error:
        findings = [of_all(str(error))]
    if findings and conversation.erasure is None and attempts:
        present = _changed_since(database, conversation)
        if present is not None:  # another process may have written between two reads
            return _verdict(database, present, with_past=with_past, attempts=attempts - 1)
    return Verdict(
        conversation.id,
        *conversation.end,
        conversation.erasure,
        tuple(findings),
        unmade=conversation.unmade,
        archived=conversation.archived,
        redacted=tuple(redacted),
        between=tuple(between.found),
    )


def _findings_without_key(
    database: Database, conversation: Conversation
) -> Iterator[VerifyFinding]:
    """Check what is in the clear: the number, the ids, the times and the counts of events, and the
    checksums. After most problems, no later event is checked. The heads cannot be computed without
    the content.
    """
    event_id = conversation.begins
    counts: tuple[int, int] | None = None
    newest_at = 0
    places = _Places()
    while not conversation.archived and event_id < conversation.version:
        read = _readable(
            database.recorder,
            partial(_page, key=conversation.key, start=event_id, stop=conversation.version),
        )
        if isinstance(read, StoreDamaged):
            yield VerifyFinding(event_id, event_id, _unreadable(read))
            return
        page, columns = read
        if not page:
            yield _missing(event_id, conversation.version - 1)
            return
        places.take(columns)
        misfits = _misfits(page, columns)
        unsound_indices = {*unsound(checksum_seed(conversation.id), page)}
        for index, row in enumerate(page):
            _, _, shown_before, structural_before, recorded_at, *_ = unpacked(row.meta)
            before = shown_before, structural_before
            if row.id < event_id:
                yield VerifyFinding(row.id, row.id, _STORED_TWICE)
                return
            if row.id != event_id:
                yield _missing(event_id, row.id - 1)
                return
            if index in unsound_indices:
                yield VerifyFinding(row.id, row.id, "its checksum does not match")
                return
            if index in misfits:
                yield VerifyFinding(row.id, row.id, _MISFIT)
            if row.kind in ENTRY_KINDS:
                yield VerifyFinding(row.id, row.id, _ENTRY)
            if recorded_at < newest_at or counts not in (None, before):
                yield VerifyFinding(row.id, row.id, "it does not follow the event before it")
                return
            counts = (shown_before + row.shown, structural_before + row.structural)
            newest_at = recorded_at
            event_id += 1
    if not places.rises:
        yield of_all(_EXCHANGED)


def _page(
    limit: int, reader: Reader, key: int, start: int, stop: int
) -> tuple[Sequence[Row], Sequence[Columns]]:
    """Return at most ``limit`` rows and their columns."""
    return reader.rows(key, start, stop, limit), reader.columns(key, start, stop, limit)


def _changed_since(database: Database, former: Conversation) -> Conversation | None:
    """Return the present state of a conversation, or None if it has not changed since it was
    read.
    """
    with suppress(StoreDamaged):
        present = database.recorder.query(lambda reader: reader.conversation(former.key))
        return present if present is not None and _state(present) != _state(former) else None
    return None


def _findings_in_tombstone(
    database: Database, conversation: Conversation
) -> Iterator[VerifyFinding]:
    """Check the tombstone of an erased conversation, its ledger and the end of its erasure."""
    yield from findings_in_ledger(database, conversation.key, conversation.id)
    if conversation.lacks_events:
        yield of_all("its tombstone was changed: it counts records or events that are not erased")
    if database.recorder.query(lambda reader: reader.unfinished(conversation.key)):
        yield of_all(
            "its erasure is not complete; run 'foldlog store vacuum' to complete it",
            unfinished=True,
        )


def _findings(
    database: Database,
    conversation: Conversation,
    with_past: bool,
    redacted: list[RedactedEvent],
    between: TextsBetween,
) -> Iterator[VerifyFinding]:
    """Check a conversation that is not erased. Add its redacted events to ``redacted``, and the
    texts between the records of its source to ``between``.
    """
    if conversation.version == 0 and not conversation.lacks_events:
        yield of_all("all of its events are missing")
        return
    if not conversation.visible:
        yield of_all("its row does not say whether its import is complete")
    if conversation.sealed_key is None and conversation.key_id is not None:
        yield of_all(f"its row names the key {conversation.key_id}, but it is not encrypted")
    yield from map(of_all, problems_of(database, conversation, between))
    if conversation.version == 0:
        yield from _findings_in_number(conversation, 0)
        return
    own = Check(database, conversation, conversation.version)
    if not conversation.archived:
        in_rows = [*own.run()]
        yield from in_rows
        redacted += own.redacted()
        if not in_rows:
            yield from _findings_in_number(conversation, own.redacted_rows)
        if not in_rows and not own.rises:  # rows that were moved or doubled have named themselves
            yield of_all(_EXCHANGED)
    if conversation.parent is not None and (with_past or not conversation.head):
        for part in checks_of_past(database, conversation):
            yield from [part] if isinstance(part, VerifyFinding) else part.run()
    yield from findings_beside(database, conversation, own.codec)
    yield from findings_in_ledger(database, conversation.key, conversation.id)


def _findings_in_number(conversation: Conversation, redacted: int) -> Iterator[VerifyFinding]:
    """Compare the number of redactions in the row of a conversation with its redacted events."""
    # A fork counts a redaction of a shared event only if the fork is older.
    if conversation.parent_version is None and redacted != conversation.redactions:
        yield of_all(
            f"its row counts {count(conversation.redactions, 'redacted event')}, not {redacted}"
        )


# -- the rows of one conversation

_PAGE = 250
_MISSING = ("it is missing", "they are missing")
_STORED_TWICE = "it is stored twice"
_ENTRY = "it is an entry of a ledger, which would say that the conversation was changed"
_MISFIT = (
    "the columns of its row contradict its meta: the kind, the flag 'shown' or the flag"
    " 'structural' differs"
)
_EXCHANGED = "its events do not have rising positions: events were exchanged"
_HELD_TWICE = "two of the joined stores have a conversation with this id; readers open one of them"
_STRAY = (
    "it does not follow the event before it: one of the two was changed, or is not in its place"
)


class VerifyFinding(NamedTuple):
    """A problem of the events ``first`` to ``last``, or of the whole conversation if ``first`` and
    ``last`` are None. If ``needs_key`` is true, the content was not checked, because a key is
    missing. If ``unfinished`` is true, nothing is damaged, and the next vacuum finishes an
    operation. If ``unproved`` is true, nothing is known to be changed, but the checkpoint does not
    cover it, or a newer version of foldlog made it.
    """

    first: int | None
    last: int | None
    problem: str
    needs_key: bool = False
    unfinished: bool = False
    unproved: bool = False

    def __str__(self) -> str:
        if self.first is None:
            return self.problem
        if self.last == self.first:
            place = f"event {self.first}"
        else:
            place = f"events {self.first} to {self.last}"
        return f"{place}: {self.problem}"

    @property
    def missing(self) -> int:
        """The number of missing events, 0 if the finding is another problem."""
        is_gap = self.problem in _MISSING and self.first is not None and self.last is not None
        return self.last - self.first + 1 if is_gap else 0  # type: ignore[operator]


def of_all(
    problem: str,
    *,
    needs_key: bool = False,
    unfinished: bool = False,
    unproved: bool = False,
) -> VerifyFinding:
    """Return a finding about the whole conversation or database."""
    return VerifyFinding(None, None, problem, needs_key, unfinished, unproved)


def _unreadable(error: StoreDamaged) -> str:
    return f"it cannot be read: {error.__cause__ or error}"


def _missing(first: int, last: int) -> VerifyFinding:
    singular, plural = _MISSING
    return VerifyFinding(first, last, singular if first == last else plural)


class _Places:
    """Whether each event of a conversation has a higher position than the event before it."""

    def __init__(self) -> None:
        self.rises = True
        self._last = -(2**63)

    def take(self, columns: Sequence[Columns]) -> None:
        for *_, position in columns:
            # On a server, the rows of a staged import have no positions.
            if position is not None:
                self.rises = self.rises and position > self._last
                self._last = position


def _misfits(page: Sequence[Row], columns: Sequence[Columns]) -> set[int]:
    """Return the indices of the rows whose columns contradict their ``meta``."""
    return {
        index
        for index, (row, (event_id, kind, *flags, _)) in enumerate(zip(page, columns, strict=False))
        if event_id == row.id and (kind_name(kind), *flags) != in_columns(row.meta)
    }


def _lacks_bytes(body: bytes) -> bool:
    """Return whether a body lists attachments that were not read with it. No head covers the flag
    in ``meta`` that makes a reader look for them.
    """
    try:
        needed = listed_in(body)
    except Undecodable:
        return True
    return not needed <= {attachment.name for attachment in attachments_of(body)}


class Check:
    """Checks the rows that are stored under the key of a conversation, up to a version. The
    ``archived`` rows come before the rows in the store.
    """

    def __init__(
        self,
        database: Database,
        conversation: Conversation,
        stop: int,
        archived: Sequence[Row] = (),
    ) -> None:
        self.findings: list[VerifyFinding] = []
        self._archived = archived
        try:
            codec = database.codec_of(conversation)
        except CorruptEvent:  # the mark belongs to another state, so accept only encrypted rows
            codec = RowCodec(conversation.id, database.data_key(conversation))
        self.codec = codec
        if codec.data_key is None:
            self._salt = conversation.salt
        else:
            self._salt = codec.data_key.salt
        self._database = database
        self._conversation = conversation
        self._stop = stop
        self._start = conversation.begins
        self._next = self._start
        self._counts: tuple[int, int] | None = (0, 0)
        self._head: bytes | None = first_head(conversation, self._salt)
        self._newest_at = 0
        self._places = _Places()
        if conversation.parent is not None:
            parent = conversation.parent
            first = conversation.begins
            rows = database.recorder.query(lambda reader: reader.rows(parent, first - 1, first))
            self._head = rows[0].head if rows else None
            self._newest_at = rows[0].recorded_at if rows else 0
            counts = [
                (row.shown_before + row.shown, row.structural_before + row.structural)
                for row in rows
            ]
            self._counts = counts[0] if counts else None
        self._redacted: dict[int, tuple[str, str, Redacted | None]] = {}
        self._receipts: dict[int, dict[str, tuple[int, str]]] = {}

    @property
    def rises(self) -> bool:
        """Whether each event has a higher position than the event before it."""
        return self._places.rises

    @property
    def redacted_rows(self) -> int:
        return len(self._redacted)

    def run(self) -> list[VerifyFinding]:
        """Check the rows, and return the findings."""
        for page, columns in self._pages():
            self._places.take(columns)
            misfits = _misfits(page, columns)
            for index, row in enumerate(self.codec.decode_rows(page)):
                self._take(row, is_misfit=index in misfits)
        self._miss(self._stop)
        self.findings = [
            finding
            for finding in self.findings
            if finding.first is None or finding.first < self._stop
        ]
        self._match_receipts()
        return self.findings

    def _pages(self) -> Iterator[tuple[Sequence[Row], Sequence[Columns]]]:
        """Yield the stored rows and their columns in pages, up to the end of the check or further,
        until each redacted event has its receipt. Archived rows have no columns.
        """
        if self._archived:
            yield self._archived, ()
        # While a redacted event has no receipt, pages after ``stop`` are read too.
        key = self._conversation.key
        recorder = self._database.recorder
        end = self._conversation.version
        while self._next < self._stop or (self._next < end and self._without_receipt()):
            start = self._next
            stop = self._stop if self._next < self._stop else end
            page = _readable(recorder, partial(_page, key=key, start=start, stop=stop))
            if isinstance(page, StoreDamaged):
                self._find(start, _unreadable(page))
                self._go_on(start + 1)
                continue
            yield page
            if self._next == start:  # the conversation has no more rows
                self._miss(stop)

    def _take(self, row: Row, *, is_misfit: bool = False) -> None:
        """Check the next decoded row. ``is_misfit`` is true if its columns contradict its meta."""
        fields = unpacked(row.meta)
        _, _, shown_before, structural_before, recorded_at, schema, *rest = fields
        shown, structural, encoding, _ = rest
        event_id = row.id
        kind = row.kind
        proof = row.proof
        if event_id < self._next:
            self._find(event_id, _STORED_TWICE)
            return
        if event_id != self._next:
            self._miss(event_id)
        if encoding == DAMAGED:
            self._find(event_id, row.body.decode())
            self._go_on(event_id + 1)
            return
        head = proof[:HEAD_BYTES]
        columns = event_id, kind, schema, shown, structural, recorded_at
        if self._head is not None and head != link(
            self._head, self._salt, columns, commitment_of(proof, row.body)
        ):
            self._find(event_id, _STRAY)
        elif row.body.startswith(BEGINS_WITH_LIST) and _lacks_bytes(row.body):
            self._find(event_id, "the bytes beside its body are missing, and its row does not say")
        elif is_misfit:
            self._find(event_id, _MISFIT)
        elif self._counts is not None and self._counts != (shown_before, structural_before):
            problem = (
                f"its counts of earlier events are wrong: {shown_before} shown,"
                f" {structural_before} structural"
            )
            self._find(event_id, problem)
        elif recorded_at < self._newest_at:
            self._find(event_id, "it is dated before the event before it")
        elif kind in ENTRY_KINDS:
            self._find(event_id, _ENTRY)
        elif kind == "redaction" or is_redacted(proof):
            problem_of_redaction = self._note_redaction(row)
            if problem_of_redaction is not None:
                self._find(event_id, problem_of_redaction)
        self._next = event_id + 1
        self._counts = (shown_before + shown, structural_before + structural)
        self._newest_at = recorded_at
        self._head = head

    def _miss(self, until: int) -> None:
        """Report that the rows from the next one to ``until`` - 1 are missing."""
        if self._next < until:
            self.findings.append(_missing(self._next, until - 1))
            self._go_on(until)

    def _go_on(self, event_id: int) -> None:
        """Continue with the row ``event_id``, whose head and counts cannot be compared."""
        self._next = event_id
        self._head = None
        self._counts = None

    def _find(self, event_id: int, problem: str) -> None:
        """Report a problem of an event. Equal problems of consecutive events become one finding."""
        before = self.findings[-1] if self.findings else None
        if before is not None and before.last == event_id - 1 and before.problem == problem:
            self.findings[-1] = before._replace(last=event_id)
        else:
            self.findings.append(VerifyFinding(event_id, event_id, problem))

    # -- redactions

    def _note_redaction(self, row: Row) -> str | None:
        """Note a redacted event or a receipt. Return its problem, or None."""
        try:
            event = codec.decode(row.kind, row.schema, row.body, row.id, row.shown, row.structural)
        except Undecodable as error:
            return f"its content was changed: {error}"
        if isinstance(event, Redaction):
            bodies = event.bodies or ("",) * len(event.event_ids)
            for event_id, content, body in zip(event.event_ids, event.hashes, bodies, strict=False):
                self._receipts.setdefault(event_id, {})[content] = (row.id, body)
        if not is_redacted(row.proof):
            return None
        own_hash = row.proof[HEAD_BYTES:].hex()
        body = sha256(row.body).hexdigest()
        self._redacted[row.id] = (own_hash, body, event.redacted)
        if event.redacted is None:
            return "its content was erased or replaced, but no redaction has a receipt for it"
        if event.redacted.hash != own_hash:
            return "its content was erased or replaced, but its receipt is for other content"
        if not can_be_redacted(event) or without_content(event, event.redacted) != event:
            return "its receipt says that it is redacted, but it has content"
        return None

    def _without_receipt(self) -> list[int]:
        """Return the redacted events for which no receipt was read so far."""
        # The receipts of copied events are in the conversation from which the events were copied.
        if self._conversation.parent is not None:
            copied = 0
        else:
            copied = self._conversation.parent_version or 0
        unproved = [
            event_id
            for event_id, (content_hash, *_) in self._redacted.items()
            if copied <= event_id < self._stop
            and content_hash not in self._receipts.get(event_id, ())
        ]
        return [event_id for event_id in unproved if event_id not in self._redacted_by_copies]

    def redacted(self) -> Iterator[RedactedEvent]:
        """Yield the redacted events that ``run`` has found, with their receipts."""
        for event_id, (content, body, mark) in self._redacted.items():
            if mark is None or event_id >= self._stop:
                continue
            receipt, receipt_body = self._receipts.get(event_id, {}).get(content, (None, ""))
            entry, entry_body = self._redacted_by_copies.get(event_id, (None, ""))
            is_whole = body in (receipt_body, entry_body)
            yield RedactedEvent(event_id, body, mark, receipt, entry, is_whole)

    @cached_property
    def _redacted_by_copies(self) -> dict[int, tuple[int, str]]:
        """Maps a redacted event to the number of the ledger's entry that is its receipt, and to the
        hash in the entry.
        """
        conversation = self._conversation
        entries = [
            (row.id, stored_event_of(conversation.id, row))
            for row in self._database.recorder.query(
                partial(decoded_entries, key=conversation.key, conversation=conversation.id)
            )
            if row.kind == "redaction_copied" and row.encoding != DAMAGED
        ]
        copied: dict[int, tuple[int, str]] = {}
        for number, entry in entries:
            if isinstance(entry, RedactionCopied):
                bodies = entry.bodies or ("",) * len(entry.event_ids)
                for event_id, body in zip(entry.event_ids, bodies, strict=False):
                    copied[event_id] = (number, body)
        return copied

    def _match_receipts(self) -> None:
        """Report redacted events without a receipt, and receipts of events that are not redacted.
        Events with another finding are left out.
        """
        intervals = [
            (first, last)
            for first, last, *_ in self.findings
            if first is not None and last is not None
        ]
        for event_id in self._without_receipt():
            self._find(event_id, "it is redacted, but no later event is a receipt with this hash")
        for event in self.redacted():
            receipts = self._receipts.get(event.id, {})
            has_hash = any(body for _, body in receipts.values())
            is_found = any(first <= event.id <= last for first, last in intervals)
            if has_hash and not (event.is_whole or is_found):
                problem = "what is left of it was changed: its receipt is for another redacted form"
                self._find(event.id, problem)
        for event_id in sorted(self._receipts.keys() - self._redacted.keys()):
            if self._start <= event_id < self._stop and not any(
                first <= event_id <= last for first, last in intervals
            ):
                self._find(
                    event_id,
                    "a later event is the receipt of its redaction, but its content is still"
                    " stored",
                )


# -- conversations


class Unlisted(NamedTuple):
    """A conversation whose stored row cannot be read. If ``id`` is None, no further conversation
    can be read.
    """

    id: str | None
    problem: str


def readable_conversations(
    recorder: Recorder, start: str = ""
) -> Iterator[Conversation | Unlisted]:
    """Yield every conversation from ``start`` on, sorted by id. If a conversation is unreadable,
    yield an ``Unlisted`` instead.
    """
    while page := _readable(recorder, lambda limit, reader: reader.conversations(start, limit)):  # noqa: B023
        if isinstance(page, StoreDamaged):
            next_id = None
            with suppress(StoreDamaged):  # an index has the id too, and may be undamaged
                next_id = recorder.query(lambda reader: reader.id_from(start))  # noqa: B023
            if next_id:
                problem = "it cannot be read"
            else:
                problem = "the list of conversations cannot be read to its end"
            yield Unlisted(next_id, f"{problem}: {page.__cause__ or page}")
            if next_id is None:
                return
            start = start_after(next_id)
        else:
            yield from page
            last_id = page[-1].id
            if recorder.store_count > 1:
                # Another store may have the same id, which the next page leaves out.
                keys = {row.key for row in page}
                same = recorder.query(lambda reader: reader.conversations(last_id, 2))  # noqa: B023
                yield from (row for row in same if row.id == last_id and row.key not in keys)
            start = start_after(last_id)


def _readable(
    recorder: Recorder, read: Callable[[int, Reader], T], limit: int = _PAGE
) -> T | StoreDamaged:
    """Read up to ``limit`` rows, or fewer if the database is damaged. Return the error if the first
    row cannot be read.
    """
    try:
        return recorder.query(partial(read, limit))
    except StoreDamaged as error:
        return error if limit == 1 else _readable(recorder, read, max(limit // 10, 1))


def checks_of_past(database: Database, fork: Conversation) -> Iterator[Check | VerifyFinding]:
    """Yield a check of each part of the past that a fork shares, or a finding if the part is
    missing.
    """

    def parts(reader: Reader) -> list[tuple[str, int, int, Conversation | None]]:
        with_lineage = database.find_key(reader, fork.key)  # a listed conversation has no lineage
        past = () if with_lineage is None else past_of(database, reader, with_lineage)
        return [
            (part.id, part.start, part.stop, database.find_key(reader, part.key)) for part in past
        ]

    try:
        past = database.recorder.query(parts)
    except CorruptEvent as error:
        yield VerifyFinding(0, fork.begins - 1, error.problem)
        return
    for name, start, stop, ancestor in past:
        if ancestor is None or ancestor.erasure is not None:
            yield VerifyFinding(
                start, stop - 1, f"the conversation {name!r} that stores these events is missing"
            )
        else:
            yield Check(database, ancestor, stop)


def findings_in_ledger(database: Database, key: int, conversation: str) -> Iterator[VerifyFinding]:
    """Yield the damaged entries of a ledger, and rows that are no entries: followers would read
    them as events of the conversation.
    """
    for row in database.recorder.query(
        partial(decoded_entries, key=key, conversation=conversation)
    ):
        if row.encoding == DAMAGED:
            problem = (
                f"the entry of its ledger {row.kind!r}, number {row.id}, is damaged:"
                f" {row.body.decode()}"
            )
            yield of_all(problem)
        elif row.kind not in ENTRY_KINDS:
            yield of_all(f"its ledger has a row that is no entry, {row.kind!r}, number {row.id}")


def findings_beside(
    database: Database, conversation: Conversation, codec: RowCodec
) -> Iterator[VerifyFinding]:
    """Yield what is wrong with the mark, the records and the streams of a conversation."""
    try:
        database.codec_of(conversation)
    except CorruptEvent:
        yield of_all(
            "its mark does not match: somebody without the key cut events off its end, or changed"
            " its row"
        )
    try:
        yield from database.recorder.query(
            lambda reader: list(_findings_in_records(reader, conversation, codec))
        )
    except StoreDamaged as error:
        yield of_all(str(error))


def _findings_in_records(
    reader: Reader, conversation: Conversation, codec: RowCodec
) -> Iterator[VerifyFinding]:
    """Yield the records of projections that are damaged, or newer than their conversation."""
    for newest in reader.newest_records(conversation.key, _PAGE):
        projection = newest.projection
        version = -1
        while records := reader.records(conversation.key, projection, version, _PAGE):
            for record in records:
                if codec.decoded_record(projection, record) is None:
                    problem = (
                        f"the record of projection {projection!r} for version {record.version} is"
                        " damaged"
                    )
                    yield of_all(f"{problem}; it is rebuilt from the events")
                elif record.version > conversation.version:
                    problem = (
                        f"projection {projection!r} has a record for version {record.version}, but"
                        f" the conversation has {count(conversation.version, 'event')}"
                    )
                    yield of_all(f"{problem}: the newest events may be cut off")
            version = records[-1].version
    yield from _findings_in_streams(reader, conversation, codec)
    proved = 0
    for name, recalled in reader.all_recalled(conversation.key):
        first, length, proof, _ = recalled
        proved += proof is not None
        if first < 0 or length < 1:
            yield of_all("the record of an idempotency key is damaged")
        elif not codec.is_proved(name, recalled):
            yield of_all("an idempotency key was changed by somebody without the encryption key")
        elif first + length > conversation.version:
            problem = f"an idempotency key names events {first} to {first + length - 1}"
            yield of_all(
                f"{problem}, but the conversation has {count(conversation.version, 'event')}: the"
                " newest events may be cut off"
            )
    if codec.is_strict and proved < codec.mark.keys:
        missing = codec.mark.keys - proved
        yield of_all(f"{missing} of its {codec.mark.keys} idempotency keys are missing")


def _findings_in_streams(
    reader: Reader, conversation: Conversation, codec: RowCodec
) -> Iterator[VerifyFinding]:
    """Yield the damaged streams, and streams that became events which no longer exist."""
    for stream in reader.streams(conversation.key):
        end = 0
        while chunks := reader.chunks(conversation.key, stream.number, end, _PAGE):
            for chunk in chunks:
                if chunk.begins != end or codec.decoded_chunk(stream.number, chunk) is None:
                    yield of_all(f"stream {stream.name!r} is damaged at unit {end}")
                end = chunk.ends
        if end != stream.end:
            yield of_all(f"stream {stream.name!r} ends at unit {end}, not at unit {stream.end}")
        if stream.event_ids.stop > conversation.version:
            yield of_all(
                f"stream {stream.name!r} became event {stream.event_ids.stop - 1}, but the"
                f" conversation has {count(conversation.version, 'event')}: the newest events may"
                " be cut off"
            )
