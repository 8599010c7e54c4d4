"""Check by heads and checksums that every event is unchanged, that none is missing, and that each
is in its place.

Heads that were published earlier show two changes that the store alone cannot: a history whose end
was cut off, and a history that was rewritten as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cached_property, partial
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeVar

from foldlog.eventstore import codec
from foldlog.eventstore.codec_json import Undecodable
from foldlog.eventstore.errors import (
    ConversationNotFound,
    CorruptEvent,
    KeyUnavailable,
    StoreDamaged,
)
from foldlog.eventstore.events import Redaction, RedactionCopied
from foldlog.eventstore.log.database import Database, paged, start_after
from foldlog.eventstore.log.finding import tombstones_before
from foldlog.eventstore.log.importing import BACKUP
from foldlog.eventstore.log.past import past_of
from foldlog.eventstore.log.redacted import can_be_redacted, without_content
from foldlog.eventstore.log.row import first_head, is_redacted, link_of, stored_event_of
from foldlog.eventstore.log.seal import DAMAGED, RowCodec
from foldlog.eventstore.recorders.base import Reader, Recorder
from foldlog.eventstore.recorders.sqlite.replacing import is_abandoned
from foldlog.eventstore.recorders.types import (
    HEAD_BYTES,
    Conversation,
    Erasure,
    RecalledKey,
    Row,
    in_columns,
    kind_name,
    unpacked,
    utf8,
)
from foldlog.eventstore.sources.moving import problems_of
from foldlog.eventstore.store import Store

T = TypeVar("T")

_ATTEMPTS = 5
"""How often a conversation with findings is checked again because it has changed since it was
found.
"""
_state = attrgetter("version", "head", "redactions", "mark", "parent", "erasure")


class Published(NamedTuple):
    """The published head of a conversation at a version. ``generation``: how many erased ones had
    its id before.
    """

    version: int
    head: bytes
    generation: int = 0
    store: str | None = None
    """The uuid of the store that published it."""


class Verdict(NamedTuple):
    """The findings in one conversation; in the database if ``conversation`` is None.

    ``head`` is that of its last event, ``erasure`` its tombstone if it was erased. If its id was
    used again, each ``generation`` has a verdict. ``pending`` is how many records of its source are
    no events yet. ``archived`` is how many of its events are in an object, and were not checked.
    """

    conversation: str | None
    version: int
    head: bytes | None
    erasure: Erasure | None
    findings: tuple[VerifyFinding, ...]
    generation: int = 0
    pending: int = 0
    archived: int = 0

    @property
    def events(self) -> int:
        """The number of events that were checked: less than the version if events are missing or
        archived.
        """
        return self.version - self.archived - sum(each.missing for each in self.findings)


def verify(
    store: Store,
    conversation: str | None = None,
    published: Mapping[str, Sequence[Published]] | None = None,
    *,
    start: str = "",
) -> Generator[Verdict, None, None]:
    """Check that every event of a store is unchanged, that none is missing, and that each is in its
    place. Yield a verdict for each conversation or for the named one; last, without a name, a
    verdict for the database itself.

    Conversations come in the order of their ids, from ``start`` on: so an interrupted run can go
    on.

    Raises ``ConversationNotFound``, ``StoreUnavailable``. Cost: one hash and one checksum of every
    event; memory for one page.
    """
    database = store.database
    heads = dict(published or {})
    if conversation is not None:
        found = database.recorder.query(lambda reader: reader.conversation(conversation))
        if found is None and conversation not in heads:
            raise ConversationNotFound(conversation)
        if found is None:
            yield _absent(conversation, heads[conversation])
        else:
            yield from _generations(database, found, heads, past=True)
        return
    unlisted: list[VerifyFinding] = []
    with ThreadPoolExecutor(1, "check") as beside:
        # The database does it outside of Python, so it takes no extra time.
        of_the_database = beside.submit(_of_the_database, database)
        for each in readable_conversations(database.recorder, start):
            if not isinstance(each, Unlisted):
                yield from _generations(database, each, heads)
            elif each.id is None:
                unlisted.append(of_all(each.problem))
            else:
                yield Verdict(each.id, 0, None, None, (of_all(each.problem),))
            heads.pop(each.id or "", None)
        for missing, kept in heads.items():
            if utf8(missing) >= utf8(start):
                yield _absent(missing, kept, is_list_whole=not unlisted)
        yield Verdict(None, 0, None, None, (*unlisted, *of_the_database.result()))


def _of_the_database(database: Database) -> list[VerifyFinding]:
    recorder = database.recorder
    findings: list[VerifyFinding] = []
    try:
        findings.extend(map(of_all, recorder.check()))  # those before an error stay
        left = [
            each.state
            for each in recorder.query(lambda reader: reader.unfinished())
            if each.operation == BACKUP
        ]
        copy = (
            "a backup was interrupted, and {} is a copy of what the store held then; 'foldlog store"
            " vacuum' deletes it"
        )
        findings += [
            of_all(copy.format(path), unfinished=True) for path in filter(is_abandoned, left)
        ]
        findings += findings_in_ledger(database, 0, "")
    except StoreDamaged as error:
        findings.append(of_all(str(error)))
    return findings


def _absent(conversation: str, kept: Sequence[Published], *, is_list_whole: bool = True) -> Verdict:
    version = max(each.version for each in kept)
    if is_list_whole:
        problem = "it is missing"
    else:
        problem = "it is missing, or cannot be read"
    problem += f", and had {version:,} events when its head was published"
    return Verdict(conversation, 0, None, None, (of_all(problem),))


def _generations(
    database: Database,
    found: Conversation,
    heads: Mapping[str, Sequence[Published]],
    *,
    past: bool = False,
) -> Iterator[Verdict]:
    """Yield a verdict for each erased conversation that had the id before, and one for the
    conversation; with ``past`` also on the events that a fork shares.
    """
    kept = heads.get(found.id, ())
    try:
        tombstones = database.recorder.query(lambda reader: tombstones_before(reader, found))
    except StoreDamaged:
        tombstones = ()  # the check of the database names what is damaged
    for number, each in enumerate((*tombstones, found)):
        # A copy may lack earlier tombstones, so heads of later generations are those of the newest.
        own = [
            (one.version, one.head)
            for one in kept
            if min(one.generation, len(tombstones)) == number
        ]
        yield _verdict(database, each, own, past=past)._replace(generation=number)


def _verdict(
    database: Database,
    found: Conversation,
    kept: Sequence[tuple[int, bytes]],
    *,
    past: bool,
    attempts: int = _ATTEMPTS,
) -> Verdict:
    """Return the verdict on a conversation; with ``past`` also on the events that a fork shares."""
    try:
        if found.erasure:
            found_by = _of_an_erased(database, found, kept)
        else:
            found_by = _findings(database, found, kept, past)
        findings = list(found_by)
    except KeyUnavailable as error:
        findings = [of_all(f"it could not be checked: {error}", needs_key=True)]
    except StoreDamaged as error:
        findings = [of_all(str(error))]
    if findings and found.erasure is None and attempts:
        now = _changed_since(database, found)
        if now is not None:  # a finding may be of what another process wrote between two reads
            return _verdict(database, now, kept, past=past, attempts=attempts - 1)
    return Verdict(
        found.id,
        *found.end,
        found.erasure,
        tuple(findings),
        pending=max(found.pending, 0),
        archived=max(-found.pending, 0),
    )


def _changed_since(database: Database, found: Conversation) -> Conversation | None:
    """Return the conversation as it is now, if it has changed since it was found."""
    with suppress(StoreDamaged):
        now = database.recorder.query(lambda reader: reader.conversation(found.key))
        return now if now is not None and _state(now) != _state(found) else None
    return None


def _of_an_erased(
    database: Database, found: Conversation, kept: Iterable[tuple[int, bytes]]
) -> Iterator[VerifyFinding]:
    assert found.erasure is not None
    yield from findings_in_ledger(database, found.key, found.id)
    if database.recorder.query(lambda reader: reader.unfinished(found.key)):
        yield of_all(
            "its erasure is not complete; run 'foldlog store vacuum' to complete it",
            unfinished=True,
        )
    for version, head in kept:
        if version > found.erasure.events or (
            version == found.erasure.events and head != found.erasure.head
        ):
            yield of_all(
                f"its tombstone is of another history than the published head at version {version}"
            )


def _findings(
    database: Database, found: Conversation, kept: Sequence[tuple[int, bytes]], past: bool
) -> Iterator[VerifyFinding]:
    if found.version == 0 and not found.pending:
        yield of_all("all of its events are missing")
        return
    yield from map(of_all, problems_of(database, found))
    if found.version == 0:
        return
    own = Check(database, found, found.version, dict(kept))
    if found.pending == 0:
        yield from _of_rows(own)
    for version, _ in kept:
        if version > found.version:
            problem = (
                f"its end is cut off: it had {version:,} events when its head was published,"
                " and has"
            )
            yield of_all(f"{problem} {found.version:,}")
    if found.parent is not None and (
        past or not found.head or any(version <= found.begins for version, _ in kept)
    ):
        for part in checks_of_past(database, found, dict(kept)):
            yield from [part] if isinstance(part, VerifyFinding) else _of_rows(part)
    yield from findings_beside(database, found, own.codec)
    yield from findings_in_ledger(database, found.key, found.id)


def _of_rows(check: Check) -> Iterator[VerifyFinding]:
    """Yield the findings of a check; where it has none, also the published heads that were not
    found.
    """
    check.run()
    yield from check.findings
    for version, head in check.published.items() if not check.findings else ():
        problem = (
            f"at version {version} its head is not the one that was published: its history was"
            " rewritten"
        )
        yield of_all(f"{problem} ({head.hex()} was)")


# -- the rows of one conversation
# --------------------------------------------------------------------------------------

_PAGE = 250
_MISSING = ("it is missing", "they are missing")
_MISFIT = (
    "its kind, or whether it is shown or structural, is otherwise in the columns of its row than in"
    " its meta"
)
_STRAY = (
    "it does not follow the event before it: one of the two was changed, or is not in its place"
)


class VerifyFinding(NamedTuple):
    """A problem of events ``first`` to ``last``; without them, a problem of the whole conversation.
    ``sound``: the content of the events is unchanged. ``needs_key``: nothing was checked, because a
    key is missing. ``unfinished``: nothing is damaged, and the next vacuum finishes it.
    """

    first: int | None
    last: int | None
    problem: str
    sound: bool = False
    needs_key: bool = False
    unfinished: bool = False

    def __str__(self) -> str:
        if self.first is None:
            return self.problem
        if self.last == self.first:
            where = f"event {self.first}"
        else:
            where = f"events {self.first} to {self.last}"
        return f"{where}: {self.problem}"

    @property
    def missing(self) -> int:
        """The number of events that are not there."""
        is_gap = self.problem in _MISSING and self.first is not None and self.last is not None
        return self.last - self.first + 1 if is_gap else 0  # type: ignore[operator]


def of_all(
    problem: str, *, sound: bool = False, needs_key: bool = False, unfinished: bool = False
) -> VerifyFinding:
    """Return a problem of the whole conversation."""
    return VerifyFinding(None, None, problem, sound, needs_key, unfinished)


class Check:
    """The check of the rows that are stored under the key of a conversation, up to the version
    ``stop``.

    After ``run``, ``findings`` are complete, and ``published`` are those of the published heads, by
    version, that no row has.
    """

    def __init__(
        self, database: Database, found: Conversation, stop: int, published: Mapping[int, bytes]
    ) -> None:
        self.findings: list[VerifyFinding] = []
        self.published = {
            version: head for version, head in published.items() if found.begins < version <= stop
        }
        try:
            codec = database.codec_of(found)
        except CorruptEvent:  # its mark is of another state: then only encrypted rows are read
            codec = RowCodec(found.id, database.data_key(found))
        self.codec = codec
        if codec.data_key is None:
            self._salt = found.salt
        else:
            self._salt = codec.data_key.salt
        self._database = database
        self._found = found
        self._stop = stop
        self._next = self._start = found.begins
        self._counts: tuple[int, int] | None = (0, 0)
        self._head: bytes | None = first_head(found, self._salt)
        """The head before the next row. None if it is unknown."""
        if found.parent is not None:
            parent = found.parent
            first = found.begins
            rows = database.recorder.query(lambda reader: reader.rows(parent, first - 1, first, 1))
            self._head = rows[0].head if rows else None
            counts = [
                (row.shown_before + row.shown, row.structural_before + row.structural)
                for row in rows
            ]
            self._counts = counts[0] if counts else None
        self._redacted: dict[int, str] = {}
        self._receipts: dict[int, set[str]] = {}
        """What receipts say: the hashes by redacted event."""

    def run(self) -> None:
        """Check the rows. Cost: one hash and one checksum each; a page of memory. Raises
        ``StoreUnavailable`` if they cannot be read now.
        """
        for page in self._pages():
            decoded = self.codec.decoded(page)
            misfits = self._misfits(page)
            for place, row in enumerate(decoded):
                self._take(row, is_misfit=place in misfits)
        self._miss(self._stop)
        self.findings = [
            each for each in self.findings if each.first is None or each.first < self._stop
        ]
        self._match_receipts()

    def _pages(self) -> Iterator[Sequence[Row]]:
        """Yield the rows in pages, without unreadable rows. They go on behind the version to stop
        at while a redacted event has no receipt.
        """
        key = self._found.key
        recorder = self._database.recorder
        end = self._found.version
        while self._next < self._stop or (self._next < end and self._without_receipt()):
            start = self._next
            stop = self._stop if self._next < self._stop else end
            page = _readable(recorder, lambda limit, reader: reader.rows(key, start, stop, limit))  # noqa: B023
            if isinstance(page, StoreDamaged):
                self._find(start, f"it cannot be read: {page.__cause__ or page}")
                self._go_on(start + 1)
                continue
            yield page
            if self._next == start:  # there are no more rows
                self._miss(stop)

    def _misfits(self, page: Sequence[Row]) -> set[int]:
        """Return the places of stored rows whose columns, which indices need, are not what ``meta``
        says.
        """
        if not page:
            return set()
        key = self._found.key
        start = page[0].id
        stop = page[-1].id + 1
        size = len(page)
        columns = self._database.recorder.query(
            lambda reader: reader.columns(key, start, stop, size)
        )
        return {
            place
            for place, (row, (event_id, kind, *flags)) in enumerate(
                zip(page, columns, strict=False)
            )
            if event_id == row.id and (kind_name(kind), *flags) != in_columns(row.meta)
        }

    def _take(self, row: Row, *, is_misfit: bool = False) -> None:
        """Check the next row, plain. ``is_misfit``: its columns say something else than its
        ``meta``.
        """
        _, _, before, turns, _, _, shown, structural, encoding, _ = unpacked(row.meta)
        event_id = row.id
        kind = row.kind
        proof = row.proof
        if event_id < self._next:
            self._find(event_id, "it is stored twice", sound=True)
            return
        if event_id != self._next:
            self._miss(event_id)
        if encoding == DAMAGED:
            self._find(event_id, row.body.decode())
            self._go_on(event_id + 1)
            return
        head = proof[:HEAD_BYTES]
        if self.published and self.published.get(event_id + 1) == head:
            del self.published[event_id + 1]
        if self._head is not None and link_of(self._head, self._salt, row) != head:
            self._find(event_id, _STRAY)
        elif is_misfit:
            self._find(event_id, _MISFIT, sound=True)
        elif self._counts is not None and self._counts != (before, turns):
            problem = f"it counts {before} shown and {turns} structural events before it"
            self._find(event_id, problem, sound=True)
        elif kind == "redaction" or is_redacted(proof):
            problem_of_redaction = self._note_redaction(row)
            if problem_of_redaction is not None:
                self._find(event_id, problem_of_redaction)
        self._next = event_id + 1
        self._counts = (before + shown, turns + structural)
        self._head = head

    def _miss(self, until: int) -> None:
        """Find the rows from the next one on missing."""
        first = self._next
        if first >= until:
            return
        before = self.findings[-1] if self.findings else None
        if before is not None and before.missing and before.last == first - 1:
            first = self.findings.pop().first or 0
        self.findings.append(VerifyFinding(first, until - 1, _MISSING[first < until - 1]))
        self._go_on(until)

    def _go_on(self, event_id: int) -> None:
        """Continue at an event whose predecessor is unknown."""
        self._next = event_id
        self._head = None
        self._counts = None

    def _find(self, event_id: int, problem: str, *, sound: bool = False) -> None:
        before = self.findings[-1] if self.findings else None
        if before is not None and before.last == event_id - 1 and before[2:4] == (problem, sound):
            self.findings[-1] = before._replace(last=event_id)
        else:
            self.findings.append(VerifyFinding(event_id, event_id, problem, sound))

    # -- redactions
    # ----------------------------------------------------------------------------------------------

    def _note_redaction(self, row: Row) -> str | None:
        """Note what a plain row with a right head says of redactions. Return its problem, if it is
        not what a redaction leaves.
        """
        try:
            event = codec.decode(row.kind, row.schema, row.body, row.id, row.shown, row.structural)
        except Undecodable as error:
            return f"its content was changed: {error}"
        if isinstance(event, Redaction):
            for event_id, its_hash in zip(event.event_ids, event.hashes, strict=False):
                self._receipts.setdefault(event_id, set()).add(its_hash)
        if not is_redacted(row.proof):
            return None
        own = self._redacted[row.id] = row.proof[HEAD_BYTES:].hex()
        if event.redacted is None:
            return "its content was erased or replaced, and no redaction has a receipt for it"
        if event.redacted.hash != own:
            return "its content was erased or replaced, and its receipt is for another content"
        if not can_be_redacted(event) or without_content(event, event.redacted) != event:
            return "its receipt says that it is redacted, and it has content"
        return None

    def _without_receipt(self) -> list[int]:
        """Return the redacted events that no receipt names. The receipts of copied events are in
        the conversation from which these were copied.
        """
        if self._found.parent is not None:
            copied = 0
        else:
            copied = self._found.parent_version or 0
        redacted = (
            (each, its_hash)
            for each, its_hash in self._redacted.items()
            if copied <= each < self._stop
        )
        left = [each for each, its_hash in redacted if its_hash not in self._receipts.get(each, ())]
        return [each for each in left if each not in self._redacted_by_copies]

    @cached_property
    def _redacted_by_copies(self) -> frozenset[int]:
        """The events that a copy from another store redacted, as the ledger says."""
        found = self._found
        entries = (
            stored_event_of(found.id, row)
            for row in _entries(self._database, found.key, found.id)
            if row.kind == "redaction_copied" and row.encoding != DAMAGED
        )
        copied = (entry for entry in entries if isinstance(entry, RedactionCopied))
        return frozenset(event_id for entry in copied for event_id in entry.event_ids)

    def _match_receipts(self) -> None:
        """Find redacted events without a receipt, and receipts without a redacted event."""
        found = [
            (first, last)
            for first, last, *_ in self.findings
            if first is not None and last is not None
        ]
        for each in self._without_receipt():
            self._find(each, "it is redacted, and no later event is a receipt with this hash")
        for each in sorted(self._receipts.keys() - self._redacted.keys()):
            if self._start <= each < self._stop and not any(
                first <= each <= last for first, last in found
            ):
                self._find(
                    each,
                    "a later event is the receipt of its redaction, but its content is still"
                    " stored",
                )


# -- conversations
# --------------------------------------------------------------------------------------------------


class Unlisted(NamedTuple):
    """A conversation that a list cannot show. Without ``id``, the list cannot be read from there
    on.
    """

    id: str | None
    problem: str


def readable_conversations(
    recorder: Recorder, start: str = ""
) -> Iterator[Conversation | Unlisted]:
    """Yield every conversation from ``start`` on, in the order of ids, and in the place of each
    that cannot be read its name. Cost: the conversations, and dozens of queries for each that
    cannot be read.
    """
    while page := _readable(recorder, lambda limit, reader: reader.conversations(start, limit)):  # noqa: B023
        if isinstance(page, StoreDamaged):
            after = None
            with suppress(StoreDamaged):  # an index alone has the names too
                after = recorder.query(lambda reader: reader.id_from(start))  # noqa: B023
            if after:
                what = "it cannot be read"
            else:
                what = "the list of conversations cannot be read to its end"
            yield Unlisted(after, f"{what}: {page.__cause__ or page}")
            if after is None:
                return
            start = start_after(after)
        else:
            yield from page
            start = start_after(page[-1].id)


def _readable(
    recorder: Recorder, read: Callable[[int, Reader], Sequence[T]], limit: int = _PAGE
) -> Sequence[T] | StoreDamaged:
    """Return the next items, fewer where one behind them cannot be read; or the error of the
    first.
    """
    try:
        return recorder.query(partial(read, limit))
    except StoreDamaged as error:
        return error if limit == 1 else _readable(recorder, read, max(limit // 10, 1))


def checks_of_past(
    database: Database, found: Conversation, published: Mapping[int, bytes]
) -> Iterator[Check | VerifyFinding]:
    """Yield the checks of the events that a fork shares: those of each ancestor up to where the
    fork leaves it, the oldest first. A finding stands in the place of events whose ancestor is
    missing.
    """

    def parts(reader: Reader) -> list[tuple[str, int, int, Conversation | None]]:
        whole = database.find_key(reader, found.key)  # a list leaves out the ancestors
        past = () if whole is None else past_of(database, reader, whole)
        return [
            (part.id, part.start, part.stop, database.find_key(reader, part.key)) for part in past
        ]

    try:
        past = database.recorder.query(parts)
    except CorruptEvent as error:
        yield VerifyFinding(0, found.begins - 1, error.problem)
        return
    for name, start, stop, ancestor in past:
        if ancestor is None or ancestor.erasure is not None:
            yield VerifyFinding(
                start, stop - 1, f"conversation {name!r}, which holds them, is missing"
            )
        else:
            yield Check(database, ancestor, stop, published)


def findings_in_ledger(database: Database, key: int, conversation: str) -> Iterator[VerifyFinding]:
    """Yield findings in the ledger of a conversation, or in that of the store, which has the key
    0.
    """
    for row in _entries(database, key, conversation):
        if row.encoding == DAMAGED:
            problem = (
                f"the entry of its ledger {row.kind!r}, number {row.id}, is damaged:"
                f" {row.body.decode()}"
            )
            yield of_all(problem, sound=True)


def _entries(database: Database, key: int, conversation: str) -> Iterator[Row]:
    """Yield the rows of a ledger, plain; see ``RowCodec.decoded``."""
    number = 0
    codec = RowCodec(conversation)
    while page := database.recorder.query(lambda reader: reader.rows(-key, number, 2**62, _PAGE)):  # noqa: B023
        yield from codec.decoded(page)
        number = page[-1].id + 1


def findings_beside(
    database: Database, found: Conversation, codec: RowCodec
) -> Iterator[VerifyFinding]:
    """Yield findings in mark, records and idempotency keys: damaged ones, and those of events that
    were cut off.
    """
    try:
        database.codec_of(found)
    except CorruptEvent:
        yield of_all(
            "its mark does not fit: its end was cut off, or its row was changed, without its key"
        )
    try:
        yield from database.recorder.query(lambda reader: list(_beside(reader, found, codec)))
    except StoreDamaged as error:
        yield of_all(str(error))


def _beside(reader: Reader, found: Conversation, codec: RowCodec) -> Iterator[VerifyFinding]:
    for newest in reader.records(found.key, None, 0, _PAGE):
        projection = newest.projection
        version = -1
        while records := reader.records(found.key, projection, version, _PAGE):
            for record in records:
                if codec.decoded_record(projection, record) is None:
                    problem = (
                        f"the record of projection {projection!r} for version {record.version} is"
                        " damaged"
                    )
                    yield of_all(f"{problem}; it is rebuilt from the events", sound=True)
                elif record.version > found.version:
                    problem = (
                        f"projection {projection!r} knows version {record.version}, and there are"
                        " only"
                    )
                    yield of_all(f"{problem} {found.version:,} events: its end may be cut off")
            version = records[-1].version
    proved = 0

    def page(after: str | None) -> Sequence[tuple[str, RecalledKey]]:
        return reader.recalled(found.key, start_after(after), _PAGE)

    for name, recalled in paged(page, itemgetter(0), _PAGE):
        first, count, proof, _ = recalled
        proved += proof is not None
        if first < 0 or count < 1:
            yield of_all("the record of an idempotency key is damaged")
        elif not codec.is_proved(name, recalled):
            yield of_all("an idempotency key was changed without the key of the conversation")
        elif first + count > found.version:
            problem = f"an idempotency key stands for events {first} to {first + count - 1}"
            yield of_all(f"{problem}, and there are only {found.version:,}: its end may be cut off")
    if codec.is_strict and proved < codec.mark.keys:
        missing = codec.mark.keys - proved
        yield of_all(f"{missing} of its {codec.mark.keys} idempotency keys are missing")
