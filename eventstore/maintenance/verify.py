"""Check by heads and checksums that every event is unchanged, that none is missing, and that each is in its place.

Heads that were published earlier show two changes that the store alone cannot: a history whose end was cut off, and a
history that was rewritten as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import attrgetter
from typing import NamedTuple

from foldlog.eventstore.errors import ConversationNotFound, KeyUnavailable
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.finding import tombstones_before
from foldlog.eventstore.log.importing import BACKUP
from foldlog.eventstore.maintenance.check import (
    Check,
    Unlisted,
    checks_of_past,
    findings_beside,
    findings_in_ledger,
    of_all,
    raise_unless_damage,
    readable_conversations,
)
from foldlog.eventstore.maintenance.check import VerifyFinding as VerifyFinding
from foldlog.eventstore.maintenance.new_file import is_abandoned
from foldlog.eventstore.recorders.errors import RecorderError
from foldlog.eventstore.recorders.types import Conversation, Erasure, utf8
from foldlog.eventstore.store import Store

_ATTEMPTS = 5
"""How often a conversation with findings is checked again because it has changed since it was found."""
_state = attrgetter("version", "head", "redactions", "mark", "parent", "erasure")


class Published(NamedTuple):
    """The published head of a conversation at a version. ``generation``: how many erased ones had its id before."""

    version: int
    head: bytes
    generation: int = 0
    store: str | None = None
    """The uuid of the store that published it."""


class Verdict(NamedTuple):
    """The findings in one conversation, or in the database where ``conversation`` is None.

    ``head`` is that of its last event, ``erasure`` its tombstone if it was erased. If its id was used again, each
    ``generation`` has a verdict.
    """

    conversation: str | None
    version: int
    head: bytes | None
    erasure: Erasure | None
    findings: tuple[VerifyFinding, ...]
    generation: int = 0

    @property
    def events(self) -> int:
        """The number of events that were checked: less than the version where events are missing."""
        return self.version - sum(each.missing for each in self.findings)


def verify(
    store: Store,
    conversation: str | None = None,
    published: Mapping[str, Sequence[Published]] | None = None,
    *,
    start: str = "",
) -> Iterator[Verdict]:
    """Check that every event of a store is unchanged, that none is missing, and that each is in its place. Yield a
    verdict for each conversation or for the named one; last, without a name, a verdict for the database itself.

    Conversations come in the order of their ids, from ``start`` on: so an interrupted run can go on.

    Raises ``ConversationNotFound``, ``StoreUnavailable``. Cost: one hash and one checksum of every event; memory for
    one page.
    """
    database, heads = store.database, dict(published or {})
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
            if isinstance(each, Unlisted) and each.id is None:
                unlisted.append(of_all(each.problem))
                continue
            if isinstance(each, Unlisted):
                yield Verdict(each.id, 0, None, None, (of_all(each.problem),))
            else:
                yield from _generations(database, each, heads)
            heads.pop(each.id or "", None)
        for missing, kept in heads.items():
            if utf8(missing) >= utf8(start):
                yield _absent(missing, kept, is_list_whole=not unlisted)
        yield Verdict(None, 0, None, None, (*unlisted, *of_the_database.result()))


def _of_the_database(database: Database) -> list[VerifyFinding]:
    recorder = database.recorder
    try:
        left = [each.state for each in recorder.query(lambda reader: reader.unfinished()) if each.operation == BACKUP]
        parts = [
            f"a backup was interrupted, and {path} is a copy of what the store held then; 'foldlog vacuum' deletes it"
            for path in filter(is_abandoned, left)
        ]
        return [*map(of_all, (*recorder.check(), *parts)), *findings_in_ledger(database, 0, "")]
    except RecorderError as error:
        raise_unless_damage(error)
        return [of_all(str(error))]


def _absent(conversation: str, kept: Sequence[Published], *, is_list_whole: bool = True) -> Verdict:
    version = max(each.version for each in kept)
    problem = "it is missing" if is_list_whole else "it is missing, or cannot be read"
    problem += f", and had {version:,} events when its head was published"
    return Verdict(conversation, 0, None, None, (of_all(problem),))


def _generations(
    database: Database, found: Conversation, heads: Mapping[str, Sequence[Published]], *, past: bool = False
) -> Iterator[Verdict]:
    """Yield a verdict for each erased conversation that had the id before, and one for the conversation; with ``past``
    also on the events that a fork shares.
    """
    kept = heads.get(found.id, ())
    try:
        with database.recorder.read() as reader:
            tombstones = tombstones_before(reader, found)
    except RecorderError as error:
        raise_unless_damage(error)
        tombstones = ()  # the check of the database names what is damaged
    for number, each in enumerate((*tombstones, found)):
        # A copy may lack earlier tombstones, so heads of later generations are those of the newest.
        own = [(one.version, one.head) for one in kept if min(one.generation, len(tombstones)) == number]
        yield _verdict(database, each, own, past=past)._replace(generation=number)


def _verdict(
    database: Database, found: Conversation, kept: Sequence[tuple[int, bytes]], *, past: bool, attempts: int = _ATTEMPTS
) -> Verdict:
    """Return the verdict on a conversation; with ``past`` also on the events that a fork shares."""
    try:
        findings = list(
            _of_an_erased(database, found, kept) if found.erasure else _findings(database, found, kept, past)
        )
    except KeyUnavailable as error:
        findings = [of_all(f"it could not be checked: {error}", needs_key=True)]
    except RecorderError as error:
        raise_unless_damage(error)
        findings = [of_all(str(error))]
    if findings and found.erasure is None and attempts:
        now = _changed_since(database, found)
        if now is not None:  # a finding may be of what another process wrote between two reads
            return _verdict(database, now, kept, past=past, attempts=attempts - 1)
    return Verdict(found.id, *found.end, found.erasure, tuple(findings))


def _changed_since(database: Database, found: Conversation) -> Conversation | None:
    """Return the conversation as it is now, if it has changed since it was found."""
    try:
        now = database.recorder.query(lambda reader: reader.conversation(found.key))
    except RecorderError as error:
        raise_unless_damage(error)
        return None
    return now if now is not None and _state(now) != _state(found) else None


def _of_an_erased(
    database: Database, found: Conversation, kept: Iterable[tuple[int, bytes]]
) -> Iterator[VerifyFinding]:
    assert found.erasure is not None
    yield from findings_in_ledger(database, found.key, found.id)
    if database.recorder.query(lambda reader: reader.unfinished(found.key)):
        yield of_all("its erasure is not complete; run 'foldlog vacuum' to complete it", unfinished=True)
    for version, head in kept:
        if version > found.erasure.events or (version == found.erasure.events and head != found.erasure.head):
            yield of_all(f"its tombstone is of another history than the published head at version {version}")


def _findings(
    database: Database, found: Conversation, kept: Sequence[tuple[int, bytes]], past: bool
) -> Iterator[VerifyFinding]:
    if found.version == 0:
        yield of_all("all of its events are missing")
        return
    own = Check(database, found, found.version, dict(kept))
    yield from _of_rows(own)
    for version, _ in kept:
        if version > found.version:
            problem = f"its end is cut off: it had {version:,} events when its head was published, and has"
            yield of_all(f"{problem} {found.version:,}")
    if found.parent is not None and (past or any(version <= found.begins for version, _ in kept)):
        for part in checks_of_past(database, found, dict(kept)):
            yield from [part] if isinstance(part, VerifyFinding) else _of_rows(part)
    yield from findings_beside(database, found, own.codec)
    yield from findings_in_ledger(database, found.key, found.id)


def _of_rows(check: Check) -> Iterator[VerifyFinding]:
    """Yield the findings of a check; where it has none, also the published heads that were not found."""
    for _ in check.rows():
        pass
    yield from check.findings
    for version, head in check.published.items() if not check.findings else ():
        problem = f"at version {version} its head is not the one that was published: its history was rewritten"
        yield of_all(f"{problem} ({head.hex()} was)")
