"""Check by heads and checksums that every event is unchanged, that none is missing, and that each is in its place.

Heads that were published earlier show two changes that the store alone cannot: a history whose end was cut off, and a
history that was rewritten as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import NamedTuple

from foldlog.eventstore.errors import ConversationNotFound, CorruptEvent, KeyUnavailable
from foldlog.eventstore.log.database import Database, paged, start_after, translated
from foldlog.eventstore.log.generation import tombstones_before
from foldlog.eventstore.log.past import Link, Segment, decode_past, past_of
from foldlog.eventstore.log.row import PLAIN, NotAsWritten, is_redacted
from foldlog.eventstore.log.seal import RowCodec
from foldlog.eventstore.log.staging import BACKUP
from foldlog.eventstore.maintenance.damage import Unlisted, raise_unless_damage, readable_conversations
from foldlog.eventstore.maintenance.new_file import is_abandoned
from foldlog.eventstore.maintenance.redaction_receipts import KIND, Receipts
from foldlog.eventstore.maintenance.row_checks import MISSING, Pass, of_all, salt_of, start_of
from foldlog.eventstore.maintenance.row_checks import VerifyFinding as VerifyFinding
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.errors import RecorderError
from foldlog.eventstore.recorders.types import Conversation, Erasure, RecalledKey
from foldlog.eventstore.store import Store

_PAGE = 1_000


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
        missing = [each for each in self.findings if each.problem in MISSING]
        return self.version - sum(
            each.last - each.first + 1 for each in missing if each.first is not None and each.last is not None
        )


def verify(
    store: Store, conversation: str | None = None, published: Mapping[str, Sequence[Published]] | None = None
) -> Iterator[Verdict]:
    """Check that every event of a store is unchanged, that none is missing, and that each is in its place. Yield a
    verdict for each conversation or for the named one; last, without a name, a verdict for the database itself.

    Raises ``ConversationNotFound``, ``StoreUnavailable``. Cost: see ``verdicts``.
    """
    with translated():
        yield from verdicts(store.database, conversation, published)


def verdicts(
    database: Database, conversation: str | None = None, published: Mapping[str, Sequence[Published]] | None = None
) -> Iterator[Verdict]:
    """Yield a verdict for each conversation or for the named one; last, without a name, a verdict for the database
    itself.

    Raises ``ConversationNotFound``, and what the recorder raises where it cannot be read at all. Cost: one hash and one
    checksum of every event; memory for one page.
    """
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
        for each in readable_conversations(database.recorder):
            if isinstance(each, Unlisted) and each.id is None:
                unlisted.append(of_all(each.problem))
                continue
            if isinstance(each, Unlisted):
                yield Verdict(each.id, 0, None, None, (of_all(each.problem),))
            else:
                yield from _generations(database, each, heads)
            heads.pop(each.id or "", None)
        for missing, kept in heads.items():
            yield _absent(missing, kept, is_list_whole=not unlisted)
        yield Verdict(None, 0, None, None, (*unlisted, *of_the_database.result()))


def _of_the_database(database: Database) -> list[VerifyFinding]:
    recorder = database.recorder
    try:
        left = [each.state for each in recorder.query(lambda reader: reader.unfinished()) if each.operation == BACKUP]
        return [of_all(problem) for problem in (*recorder.check(), *map(_of_a_part, filter(is_abandoned, left)))]
    except RecorderError as error:
        raise_unless_damage(error)
        return [of_all(str(error))]


def _of_a_part(path: str) -> str:
    return f"a backup was interrupted, and {path} is a copy of what the store held then; 'foldlog vacuum' deletes it"


def _absent(conversation: str, kept: Sequence[Published], *, is_list_whole: bool = True) -> Verdict:
    version = max(each.version for each in kept)
    problem = "it is missing" if is_list_whole else "it is missing, or cannot be read"
    problem += f", and had {version:,} events when its head was published"
    return Verdict(conversation, 0, None, None, (of_all(problem)._replace(of_head=True),))


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
    database: Database, found: Conversation, kept: Sequence[tuple[int, bytes]], *, past: bool = False
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
    if findings and found.erasure is None:
        erased = _erased_since(database, found)
        if erased is not None:
            return _verdict(database, erased, kept)
    return Verdict(found.id, *found.end, found.erasure, tuple(findings))


def _erased_since(database: Database, found: Conversation) -> Conversation | None:
    """Return the conversation if it was erased while its events were read: then its events are not missing."""
    try:
        now = database.recorder.query(lambda reader: reader.conversation(found.key))
    except RecorderError as error:
        raise_unless_damage(error)
        return None
    return now if now is not None and now.erasure is not None else None


def _of_an_erased(
    database: Database, found: Conversation, kept: Iterable[tuple[int, bytes]]
) -> Iterator[VerifyFinding]:
    assert found.erasure is not None
    if database.recorder.query(lambda reader: reader.unfinished(found.key)):
        yield of_all("its erasure is not complete; run 'foldlog vacuum' to complete it")
    for version, head in kept:
        if version > found.erasure.events or (version == found.erasure.events and head != found.erasure.head):
            yield of_all(f"its tombstone is of another history than the published head at version {version}")


def _findings(
    database: Database, found: Conversation, kept: Sequence[tuple[int, bytes]], past: bool
) -> Iterator[VerifyFinding]:
    if found.version == 0:
        yield of_all("all of its events are missing")
        return
    codec = database.codec_of_damaged(found)
    try:
        database.codec_of(found)
    except CorruptEvent:
        yield of_all("its mark does not fit: its end was cut off, or its row was changed, without its key")
    salt = salt_of(found, codec)
    if not salt:
        yield of_all("its salt is lost, so nothing proves its heads")
    wanted = {version: head for version, head in kept if version > found.begins}
    over = _pass_over(database, found, codec, salt, found.version, wanted)
    if over.chain.stray and not over.chain.follow:
        yield of_all("its salt was changed, or all of its events were: nothing proves its heads")
        over = _pass_over(database, found, codec, b"", found.version, wanted)
    yield from over.findings
    copied = found.begins if found.parent is not None else (found.parent_version or 0)
    yield from _of_receipts(database, found.key, over.receipts, copied)
    for version, _ in kept:
        if version > found.version:
            problem = f"its end is cut off: it had {version:,} events when its head was published, and has"
            yield of_all(f"{problem} {found.version:,}")._replace(of_head=True)
    yield from _of_heads(over, found.version)
    if found.parent is not None and (past or any(version <= found.begins for version, _ in kept)):
        yield from _of_its_past(database, found, kept)
    yield from database.recorder.query(lambda reader: list(_beside(reader, found, codec)))


def _pass_over(
    database: Database, found: Conversation, codec: RowCodec, salt: bytes, stop: int, heads: Mapping[int, bytes]
) -> Pass:
    """Check the rows of a conversation up to ``stop``."""
    links = _copied(database, found)
    start = database.recorder.query(lambda reader: start_of(reader, found, salt, links))
    over = Pass(codec, salt, dict(heads), start, links)
    over.over(database.recorder, found.key, stop)
    return over


def _of_heads(over: Pass, stop: int) -> Iterator[VerifyFinding]:
    """Yield the published heads up to a version that were not found, unless another finding explains it."""
    for version, head in over.wanted.items():
        if version <= stop and not over.findings:
            problem = f"at version {version} its head is not the one that was published: its history was rewritten"
            yield of_all(f"{problem} ({head.hex()} was)")._replace(of_head=True)


def _of_receipts(database: Database, key: int, receipts: Receipts, start: int) -> Iterator[VerifyFinding]:
    """Yield redacted events without a receipt, and receipts without a redacted event, from event ``start`` on. The
    receipts of copied events before it are in the conversation from which the events were copied.
    """
    for each in receipts.without_receipt():
        if each >= start:
            yield VerifyFinding(each, each, "it is redacted, and no later event is a receipt with this hash")
    for each in receipts.without_redaction():
        rows = database.recorder.query(lambda reader, each=each: reader.rows(key, each, each + 1, 1))  # type: ignore[misc]
        if rows and not is_redacted(rows[0].proof):
            yield VerifyFinding(
                each, each, "a later event is the receipt of its redaction, but its content is still stored"
            )


def _later_receipts(database: Database, part: Segment, version: int, receipts: Receipts) -> None:
    """Take the receipts of an ancestor that were recorded after a fork left it."""
    if not receipts.without_receipt():
        return
    for start in range(part.stop, version, _PAGE):
        bare = database.recorder.query(lambda reader, start=start: reader.rows(part.key, start, version, _PAGE))  # type: ignore[misc]
        some = [row for row in bare if row.kind == KIND]
        for row in part.codec.decoded(some):
            if row.encoding == PLAIN:
                receipts.take(row)


def _copied(database: Database, found: Conversation) -> tuple[Link, ...]:
    """Return the names and salts under which copied events were recorded; none where these are damaged."""
    try:
        return decode_past(found.past, database.data_key(found))
    except NotAsWritten:
        return ()


def _of_its_past(database: Database, found: Conversation, kept: Sequence[tuple[int, bytes]]) -> Iterator[VerifyFinding]:
    """Yield findings in the events that a fork shares: those of each ancestor up to where the fork leaves it."""

    def past_and_ancestors(reader: Reader) -> tuple[Sequence[Segment], list[Conversation | None]]:
        whole = database.find_key(reader, found.key)  # a list leaves out the ancestors
        past = () if whole is None else past_of(database, reader, whole)
        return past, [database.find_key(reader, part.key) for part in past]

    try:
        past, ancestors = database.recorder.query(past_and_ancestors)
    except CorruptEvent as error:
        yield VerifyFinding(0, found.begins - 1, error.problem)
        return
    wanted = {version: head for version, head in kept if version <= found.begins}
    for part, ancestor in zip(past, ancestors, strict=True):
        if ancestor is None or ancestor.erasure is not None:
            yield VerifyFinding(part.start, part.stop - 1, f"conversation {part.id!r}, which holds them, is missing")
            continue
        heads = {version: head for version, head in wanted.items() if part.start < version <= part.stop}
        over = _pass_over(database, ancestor, part.codec, salt_of(ancestor, part.codec), part.stop, heads)
        yield from over.findings
        _later_receipts(database, part, ancestor.version, over.receipts)
        copied = 0 if ancestor.parent is not None else ancestor.parent_version or 0
        yield from _of_receipts(database, part.key, over.receipts, max(part.start, copied))
        yield from _of_heads(over, part.stop)


def _beside(reader: Reader, found: Conversation, codec: RowCodec) -> Iterator[VerifyFinding]:
    """Yield findings in records and idempotency keys: they may be damaged, or name events that were cut off."""
    for newest in reader.records(found.key, None, 0, 1_000):
        projection, version = newest.projection, -1
        while records := reader.records(found.key, projection, version, 1_000):
            for record in records:
                if codec.decoded_record(projection, record) is None:
                    problem = f"the record of projection {projection!r} for version {record.version} is damaged"
                    yield of_all(f"{problem}; it is rebuilt from the events", sound=True)
                elif record.version > found.version:
                    problem = f"projection {projection!r} knows version {record.version}, and there are only"
                    yield of_all(f"{problem} {found.version:,} events: its end may be cut off")
            if type(records[-1].version) is not int:
                break
            version = max(version + 1, records[-1].version)
    proved = 0

    def page(after: str | None) -> Sequence[tuple[str, RecalledKey]]:
        return reader.recalled(found.key, start_after(after), _PAGE)

    for name, recalled in paged(page, itemgetter(0), _PAGE):
        first, count, proof, _ = recalled
        proved += proof is not None
        if type(first) is not int or type(count) is not int or first < 0 or count < 1:
            yield of_all("the record of an idempotency key is damaged")
        elif not codec.is_proved(name, recalled):
            yield of_all("an idempotency key was changed without the key of the conversation")
        elif first + count > found.version:
            problem = f"an idempotency key stands for events {first} to {first + count - 1}"
            yield of_all(f"{problem}, and there are only {found.version:,}: its end may be cut off")
    if codec.is_strict and proved < codec.mark.keys:
        missing = codec.mark.keys - proved
        yield of_all(f"{missing} of its {codec.mark.keys} idempotency keys are missing")
