"""Compare a store with a checkpoint: what was changed since, and what was lawfully redacted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from foldlog.eventstore.errors import CorruptEvent, KeyUnavailable, StoreDamaged, count
from foldlog.eventstore.events import Detached, Redaction
from foldlog.eventstore.log.finding import tombstones_before
from foldlog.eventstore.log.ledger import decoded_entries, entries
from foldlog.eventstore.log.row import first_head, stored_event_of
from foldlog.eventstore.log.seal import DAMAGED
from foldlog.eventstore.maintenance.archive import check_archived
from foldlog.eventstore.maintenance.archive_objects import address_of_object, read_archived
from foldlog.eventstore.maintenance.copy import OF_THE_STORE
from foldlog.eventstore.maintenance.verify import (
    Later,
    RedactedEvent,
    Unmade,
    Verdict,
    VerifyFinding,
    of_all,
    verify,
)
from foldlog.eventstore.proof.leaves import (
    NO_HEAD,
    Extent,
    Leaf,
    hash_in_clear,
    hash_of_texts,
    ledger_hashes,
    origin_of_fork,
    receipt_of,
    redacted_pages,
)
from foldlog.eventstore.proof.merkle import root_of
from foldlog.eventstore.proof.signed_note import StoreCheckpoint
from foldlog.eventstore.proof.stored_leaves import leaves_of, origin_of
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.errors import FAILURES
from foldlog.eventstore.recorders.types import Conversation, Row, as_text, utf8
from foldlog.eventstore.sources.blocks import GENESIS, chain_head
from foldlog.eventstore.sources.reading import stored_blocks_of
from foldlog.eventstore.sources.tables import Source, Sources, query_sources
from foldlog.eventstore.store import Store

_EARLIER: Final = "the checkpoint of an earlier version does not cover"
_BEFORE: Final = f"it was not proved, because {_EARLIER}"
_LEDGER_OF_A_COPY: Final = (
    "its ledger was not compared: this is a copy of the store of the checkpoint, or its id was"
    " changed"
)
_NOT_FOUND: Final = (
    "no reader finds it by its id: joined stores lack the fact that says where it is"
)
_ATTEMPTS: Final = 5
"""How many times a comparison is repeated if the conversation changed during the comparison."""


def verify_against(store: Store, checkpoint: StoreCheckpoint) -> Iterator[Verdict]:
    """Check every event as ``verify`` does, and compare every conversation with the leaves of a
    checkpoint. Without the key of an encrypted conversation, compare the stored heads. Erasures
    and redactions since the checkpoint are lawful: the verdicts have their receipts. A copy has a
    ledger of its own, which is not compared.

    The last verdict is about the store. Raises the errors of ``verify``, and ``StoreDamaged`` if
    the list of checkpoints is damaged.
    """
    comparison = _Comparison(store, checkpoint)
    for verdict in verify(store):
        if verdict.conversation is not None:
            yield comparison.compare(check_archived(store, verdict))
            continue
        yield from comparison.missing()
        findings = (*verdict.findings, *map(of_all, comparison.problems()))
        findings += tuple(of_all(text, unproved=True) for text in comparison.unproved())
        yield verdict._replace(findings=findings, later=comparison.later)


class _Comparison:
    """The comparison of a store with a checkpoint. ``compare`` extends the verdict of ``verify``
    about one conversation. Call ``missing``, ``problems`` and ``unproved``
    after the last conversation.
    """

    def __init__(self, store: Store, checkpoint: StoreCheckpoint) -> None:
        self._database = store.database
        self._recorder = store.database.recorder
        self._checkpoint = checkpoint
        # A copy has a ledger of its own.
        self.is_copy = checkpoint.origin != origin_of(store.database)
        self._leaves = self._recorder.query(partial(leaves_of, checkpoint=checkpoint))
        self._receipts = set[tuple[bytes, int, bytes, int]]()
        self._newest = {leaf.name: leaf for leaf in self._leaves}
        self._left: dict[bytes, set[tuple[int, str]]] = {}
        """Maps a conversation to the ids of its redacted events in all leaves, with the hashes of
        what is left of them.
        """
        for leaf in self._leaves:
            if leaf.extent is not None and leaf.extent.redacted:
                self._left.setdefault(leaf.name, set()).update(leaf.extent.redacted)
        self._with_source = {
            key for (key,) in self._recorder.query(lambda reader: reader.ask_all("source_keys"))
        }
        self.later = Later()
        self._compared = set[tuple[bytes, int]]()
        self._of_place: dict[tuple[bytes, int], list[Leaf]] = {}
        for leaf in self._leaves:
            self._of_place.setdefault((leaf.name, leaf.generation), []).append(leaf)

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the list of checkpoints and with the ledger of the store."""
        if len(self._leaves) < self._checkpoint.size:
            yield (
                f"its list of checkpoints has {len(self._leaves):,} of the"
                f" {self._checkpoint.size:,} leaves of the checkpoint: the list was shortened, or"
                " the store is older than the checkpoint"
            )
        elif root_of([leaf.hash for leaf in self._leaves]) != self._checkpoint.root:
            yield (
                "its list of checkpoints was changed: its root is not the root of the checkpoint,"
                " so conversations may be changed that are not named"
            )
        # Fields of other lengths can have the same hash as other fields of a leaf.
        elif not all(leaf.has_right_lengths for leaf in self._leaves):
            yield (
                "its list of checkpoints was changed: the fields of a leaf do not have their"
                " lengths, so conversations may be changed that are not named"
            )
        if not self._has_ledger(OF_THE_STORE, self._of_place.get((b"", 0), ())):
            yield "the ledger of the store was changed since the checkpoint"

    def unproved(self) -> Iterator[str]:
        """Yield what about the whole store was not compared."""
        if self.is_copy:
            yield _LEDGER_OF_A_COPY
        if not all(map(_covers_beginning, self._newest.values())):
            yield f"{_EARLIER} when conversations began"

    def missing(self) -> Iterator[Verdict]:
        """Yield verdicts about the tombstones and conversations that are not in the store."""
        for place, leaves in self._of_place.items():
            newest = leaves[-1]
            problem = ""
            receipt = (newest.name, newest.generation, newest.head, newest.version)
            if newest.erased and receipt not in self._receipts:
                problem = "its tombstone was changed or removed since the checkpoint"
            elif newest.name and not newest.erased and place not in self._compared:
                records = 0 if newest.extent is None else newest.extent.records
                had = count(newest.version, "event") if newest.version else count(records, "record")
                problem = f"it is missing, and had {had} at the checkpoint"
            if problem:
                findings = (of_all(problem),)
                name = as_text(newest.name)
                yield Verdict(name, 0, None, None, findings, generation=newest.generation)

    def compare(self, verdict: Verdict) -> Verdict:
        """Return the verdict about a conversation, with the findings of its comparison. If what a
        comparison needs is damaged, or is in an object that cannot be read, a finding says so.
        """
        try:
            return self._compare(verdict, _ATTEMPTS)
        except (CorruptEvent, *FAILURES) as error:
            if not (verdict.archived or isinstance(error, CorruptEvent | StoreDamaged)):
                raise
            name = utf8(verdict.conversation or "")
            self._compared.update(place for place in self._of_place if place[0] == name)
            problem = f"it was not compared with the checkpoint: {error}"
            return verdict._replace(findings=(*verdict.findings, of_all(problem)))

    def _compare(self, verdict: Verdict, attempts: int) -> Verdict:
        """See ``compare``. If the conversation changes during the comparison, compare again, up to
        ``attempts`` times.
        """
        name = utf8(verdict.conversation or "")
        if verdict.erasure is not None:
            erasure = verdict.erasure
            self._receipts.add((name, verdict.generation, receipt_of(erasure), erasure.events))
        self._compared.add((name, verdict.generation))
        leaves = self._of_place.get((name, verdict.generation), [])
        state, ledgers = self._recorder.query(partial(_state_and_ledgers, verdict=verdict))
        if state is not None and attempts == _ATTEMPTS:
            self._count(state, leaves)
        if state is None:
            return verdict._replace(findings=(*verdict.findings, of_all(_NOT_FOUND)))
        if not leaves:
            return verdict
        findings = [*verdict.findings]
        has_heads = all(finding.needs_key for finding in findings)
        if not (self.is_copy or ledgers.issuperset(leaf.ledger for leaf in leaves)):
            findings.append(of_all("its ledger was changed since the checkpoint"))
        changes = [*self._changes(state, leaves, has_heads)]
        if changes and attempts:  # another process may have archived it between two reads
            present = self._recorder.query(partial(_state_of, verdict=verdict))
            if present != state:
                return self._compare(verdict, attempts - 1)
        findings += map(of_all, changes)
        if leaves[-1].extent is None and not leaves[-1].erased and state.erasure is not None:
            findings.append(of_all(f"{_BEFORE} the time of its last event", unproved=True))
        if state.erasure is None:
            if any(finding.needs_key for finding in findings):
                verdict = self._with_unread_redactions(state, leaves[-1], verdict)
            findings += self._changes_beside(state, leaves, verdict)
        if state.erasure is not None or any(not finding.unproved for finding in findings):
            return verdict._replace(findings=tuple(findings))
        redactions = (
            *self._redactions(state, leaves[-1].version),
            *self._copied_redactions(leaves[-1], verdict),
        )
        return verdict._replace(
            findings=tuple(findings),
            redactions=redactions,
            redacted_records=self._redacted_since(state, leaves[-1]),
            unmade_then=_unmade(state, leaves[-1]),
        )

    def _count(self, state: Conversation, leaves: Sequence[Leaf]) -> None:
        """Count what came after the checkpoint."""
        events, records, conversations, erased = self.later
        if state.erasure is not None:
            erased += not any(leaf.erased for leaf in leaves)
        else:
            extents = (leaf.extent for leaf in leaves if leaf.extent is not None)
            source = None
            with suppress(KeyUnavailable):  # the number of its records is encrypted
                source = self._source_of(state)
            version = max((leaf.version for leaf in leaves), default=state.begins)
            events += max(state.version - version, 0)
            if source is not None:
                covered = max((extent.records for extent in extents), default=0)
                records += max(source.records - covered, 0)
            conversations += not leaves
        self.later = Later(events, records, conversations, erased)

    def _redacted_since(self, state: Conversation, leaf: Leaf) -> tuple[int, ...]:
        """Return the records that were redacted since the checkpoint and have no events of their
        own, so no event is a receipt for them.
        """
        source = self._source_of(state)
        if source is None or leaf.extent is None:
            return ()
        made = query_sources(self._database, Sources.made, source)
        return tuple(
            number
            for number in sorted({*source.redacted}.difference(leaf.extent.redacted_records))
            if number < leaf.extent.records and not self._own_events(state, made.get(number))
        )

    def _own_events(self, state: Conversation, made: tuple[int, int] | None) -> set[int]:
        """Return the ids of the events that were made from a record and are stored under the key of
        the conversation. ``made`` is the first id and the number of the events, or None.
        """
        first, events = made or (0, 0)
        return {*range(first, first + events)} if first >= state.begins else set()

    # -- beside the events

    def _changes_beside(
        self, state: Conversation, leaves: Sequence[Leaf], verdict: Verdict
    ) -> Iterator[VerifyFinding]:
        """Compare what a leaf covers beside the heads: redacted events, and the source of an
        import. Without the key of the conversation, compare what its rows show.
        """
        leaf = leaves[-1]
        for event in verdict.redacted:
            if event.id < leaf.version:
                yield from self._changes_of_redacted(leaf, event)
        is_read = not any(finding.needs_key for finding in verdict.findings)
        has_source = state.key in self._with_source
        for uncovered in _not_covered(state, leaf.extent, has_source=has_source, is_read=is_read):
            yield of_all(f"{_BEFORE} {uncovered}", unproved=True)
        if leaf.extent is None:
            return
        if not is_read:
            yield from self._changes_in_clear(state, leaves)
            # A copy of a redacted event has its receipt in the ledger.
            copied = bool(self._recorder.query(partial(_copied_receipts, state=state)))
            if not (verdict.receipts_unread or copied):
                for event_id in verdict.redacted_unread:
                    problem = "its content was erased since the checkpoint, and no receipt followed"
                    yield VerifyFinding(event_id, event_id, problem)
        else:
            now_redacted = {event.id for event in verdict.redacted}
            for event_id, _ in leaf.extent.redacted:
                if event_id not in now_redacted and not _is_unread(verdict, event_id):
                    problem = "it was redacted at the checkpoint, and has content again"
                    yield VerifyFinding(event_id, event_id, problem)
        try:
            yield from map(of_all, self._changes_of_source(state, leaves, verdict))
        except KeyUnavailable as error:
            problem = f"the records of its source could not be checked: {error}"
            yield of_all(problem, needs_key=True)

    def _with_unread_redactions(self, state: Conversation, leaf: Leaf, verdict: Verdict) -> Verdict:
        """Return the verdict with the events that were redacted since the checkpoint, and with the
        events since then that are receipts. Its rows show both even without the key of the
        conversation, but not which event a receipt is for.
        """
        if leaf.extent is None:
            return verdict
        former = {event_id for event_id, _ in leaf.extent.redacted}

        def read(reader: Reader) -> tuple[list[int], list[int]]:
            pages = redacted_pages(reader, state)
            columns = reader.columns(state.key, leaf.version, state.version)
            redacted = [row.id for page in pages for row in page]
            return redacted, [event_id for event_id, kind, *_ in columns if kind == b"redaction"]

        redacted, receipts = self._recorder.query(read)
        return verdict._replace(
            redacted_unread=tuple(
                event_id
                for event_id in redacted
                if event_id < leaf.version and event_id not in former
            ),
            receipts_unread=tuple(receipts),
        )

    def _changes_in_clear(
        self, state: Conversation, leaves: Sequence[Leaf]
    ) -> Iterator[VerifyFinding]:
        """Compare the ids, kinds, times and heads of the events of an encrypted conversation.

        The hash in each leaf covers the events from its ``clear_from`` up to its version, so the
        ranges of the leaves must join. ``proved`` is the end of the joined ranges. Events after it
        were not encrypted at the checkpoint, and are reported as not proved.
        """
        proved = min((leaf.extent.clear_from for leaf in leaves if leaf.extent), default=0)
        for leaf in leaves:
            extent = leaf.extent
            if extent is None or not extent.clear or leaf.version > state.version:
                continue
            first, stop = extent.clear_from, leaf.version
            if first > proved:
                break  # no hash covers the events in between
            now = self._recorder.query(partial(hash_in_clear, state=state, first=first, stop=stop))
            if now != extent.clear:
                problem = "their order, kinds or times were changed since the checkpoint"
                yield VerifyFinding(first, stop - 1, problem)
            proved = stop
        # If the end was cut off, the hash covers missing events; another finding reports that.
        if proved < leaves[-1].version <= state.version:
            problem = "their order was not proved: they were not encrypted at the checkpoint"
            yield VerifyFinding(proved, leaves[-1].version - 1, problem, unproved=True)

    def _changes_of_redacted(self, leaf: Leaf, event: RedactedEvent) -> Iterator[VerifyFinding]:
        """Compare what is left of a redacted event with the leaf. If the event was redacted since
        the checkpoint, a receipt must say by whom.
        """

        def find(problem: str, *, unproved: bool = False) -> VerifyFinding:
            return VerifyFinding(event.id, event.id, problem, unproved=unproved)

        is_later = event.receipt is not None and event.receipt >= leaf.version
        if self._is_covered(leaf, event):
            return
        if leaf.extent is None:
            if not (is_later or event.is_whole):
                yield find(f"{_BEFORE} what is left of redacted events", unproved=True)
            return
        left = dict(leaf.extent.redacted)
        if left.get(event.id) == "":
            problem = "what is left of it was not proved: the checkpoint was made without the key"
            yield find(problem, unproved=True)
        elif event.id in left:
            yield find("what is left of this redacted event was changed since the checkpoint")
        elif not event.is_whole or not (is_later or event.entry is not None):
            yield find("its content was erased since the checkpoint, and no receipt says by whom")

    def _is_covered(self, leaf: Leaf, event: RedactedEvent) -> bool:
        """Return whether a leaf has what is left of an event: a leaf of its conversation, or, if
        this is a fork that shared the event at the checkpoint and has copied it since, a leaf of
        the conversation that stored the event. Another copy of the event proves nothing.
        """
        newest: Leaf | None = leaf
        while newest is not None:
            if (event.id, event.body) in self._left.get(newest.name, ()):
                return True
            extent = newest.extent
            if extent is None or not extent.parent or event.id >= extent.parent_version:
                return False
            parent = self._newest.get(utf8(extent.parent))
            is_lower = parent is not None and (
                parent.extent is None or parent.extent.parent_version < extent.parent_version
            )
            newest = parent if is_lower else None
        return False

    def _copied_redactions(self, leaf: Leaf, verdict: Verdict) -> Iterator[Redaction]:
        """Yield redactions since the checkpoint whose receipt is an entry of the ledger."""
        for event in verdict.redacted:
            is_old = event.id >= leaf.version or self._is_covered(leaf, event)
            if not is_old and leaf.extent is not None and event.receipt is None:
                yield Redaction(
                    event_ids=(event.id,),
                    hashes=(event.mark.hash,),
                    by=event.mark.by,
                    reason=event.mark.reason,
                )

    def _changes_of_source(
        self, state: Conversation, leaves: Sequence[Leaf], verdict: Verdict
    ) -> Iterator[str]:
        """Compare the source of an import: its number of records, its format, the hashes of its
        records, their redactions, and the texts between the records.
        """
        extent = leaves[-1].extent
        if extent is None or not extent.records:
            return
        source = self._source_of(state)
        had = count(extent.records, "record")
        if source is None:
            if state.key not in self._with_source:
                yield f"its source is missing, and had {had} at the checkpoint"
        elif source.records < extent.records:
            yield f"its source had {had} at the checkpoint, and has {source.records:,}"
        elif source.made < extent.made:
            yield (
                f"{extent.made:,} records of its source had become events at the checkpoint, and"
                f" {source.made:,} have now"
            )
        elif source.format != extent.format:
            yield f"its source had the format {extent.format!r} at the checkpoint"
        elif self._head_of_source(source, extent.records) != extent.source_head:
            yield "the records of its source were changed since the checkpoint"
        else:
            yield from self._redacted_records(state, source, extent, verdict)
            # A redaction removes all texts between records.
            if verdict.between and not all(
                hash_of_texts(verdict.between, past.between_from, past.records) == past.between
                for past in (past_leaf.extent for past_leaf in leaves)
                if past is not None and past.form and past.records <= extent.records
            ):
                yield "the texts between records of its source were changed since the checkpoint"

    def _source_of(self, state: Conversation) -> Source | None:
        """Return the source of a conversation, or None if it has none or its row is damaged. Raises
        ``KeyUnavailable``.
        """
        if state.key not in self._with_source:
            return None
        with suppress(CorruptEvent, StoreDamaged):  # ``verify`` has named the damage
            return query_sources(
                self._database, lambda sources: sources.find_by_key(state.key, texts=())
            )
        return None

    def _head_of_source(self, source: Source, records: int) -> bytes:
        """Return the head of the chain of a source's hashes after its first ``records`` records."""
        # ``verify`` has compared the head of all records with their hashes.
        if records == source.records:
            return source.head
        head = GENESIS
        for block in stored_blocks_of(self._database, source):
            if block.stop > records:
                return chain_head(head, block.before(records).hashes)
            head = chain_head(head, block.hashes)
        return head

    def _redacted_records(
        self, state: Conversation, source: Source, extent: Extent, verdict: Verdict
    ) -> Iterator[str]:
        """Compare which records of a source are redacted. A record that was redacted since the
        checkpoint needs a receipt: a redacted event that was made from it.
        """
        before = {*extent.redacted_records}
        for number in sorted(before.difference(source.redacted)):
            yield f"record {number} of its source was redacted at the checkpoint, and is not now"
        if any(finding.needs_key for finding in verdict.findings):
            return  # the receipts cannot be read
        redacted_ids = {event.id for event in verdict.redacted}
        made = query_sources(self._database, Sources.made, source)
        family = query_sources(self._database, Sources.family, source.root)
        for number in sorted({*source.redacted} - before):
            own = self._own_events(state, made.get(number))
            # A redaction makes the events of an import, but not the events of its relatives, which
            # have the same records.
            has_no_receipt = own.isdisjoint(redacted_ids) if own else number >= source.made
            if number < extent.records and has_no_receipt and (own or len(family) == 1):
                yield f"record {number} of its source was erased without a receipt"

    def _changes(
        self, state: Conversation, leaves: Sequence[Leaf], has_heads: bool
    ) -> Iterator[str]:
        """Compare stored heads, unless ``verify`` has found damage. ``verify`` has also found that
        the heads belong to the events, unless the key of the conversation is missing.
        """
        version, _ = state.end
        yield from self._changes_of_origin(state, leaves)
        newest_at = max((leaf.extent.recorded_at for leaf in leaves if leaf.extent), default=0)
        if state.erasure is not None and state.erasure.erased_at < newest_at:
            yield "its erasure is dated before its last event"
        for leaf in leaves:
            if leaf.erased or not leaf.version:
                if state.version == 0 and not self._has_first_head(state, leaf):
                    yield "the salt or the seed in its row was changed since the checkpoint"
                continue
            if leaf.version > version:
                had = count(leaf.version, "event")
                yield f"its end is cut off: it had {had} at the checkpoint, and has {version:,}"
            elif has_heads and not self._has_head(state, leaf):
                yield (
                    f"at version {leaf.version} its head differs from the checkpoint: its history"
                    " was rewritten"
                )

    def _changes_of_origin(self, state: Conversation, leaves: Sequence[Leaf]) -> Iterator[str]:
        """Compare when a conversation began, and from where a fork comes."""
        covered = [leaf.extent for leaf in leaves if leaf.extent is not None]
        if any(extent.created_at not in (0, state.created_at) for extent in covered):
            yield "the time when it began was changed since the checkpoint"
        # A fork may have copied its past, and a copy of a tombstone has no parent.
        extent = covered[-1] if covered else Extent(0)
        if extent.form and extent.parent and not self._may_have_no_parent(state, extent):
            yield (
                f"it was a fork of {extent.parent!r} at the checkpoint, and no erasure of that"
                " conversation detached it"
            )
        if state.erasure is None:
            is_comparable = state.parent is not None or state.version == 0
        else:
            is_comparable = leaves[-1].erased and not self.is_copy
        if not (extent.form and is_comparable):
            return
        now = Extent(0, **origin_of_fork(state))
        if (now.parent, now.parent_version) != (extent.parent, extent.parent_version):
            had = f"shared {count(extent.parent_version, 'event')} with {extent.parent!r}"
            was = had if extent.parent else "was no fork"
            yield f"its parent differs from the checkpoint, at which it {was}"

    def _may_have_no_parent(self, state: Conversation, extent: Extent) -> bool:
        """Return whether a fork still has a parent, or was detached when its parent was erased: an
        entry of its ledger says from where. A copy of a fork alone has neither.
        """
        if state.parent is not None or state.erasure is not None or self.is_copy:
            return True
        rows = self._recorder.query(partial(decoded_entries, key=state.key, conversation=state.id))
        entries_of_fork = (
            stored_event_of(state.id, row) for row in rows if row.encoding != DAMAGED
        )
        has_entry = any(
            isinstance(entry, Detached)
            and (entry.parent, entry.version) == (extent.parent, extent.parent_version)
            for entry in entries_of_fork
        )
        return has_entry and self._recorder.query(partial(_was_erased, name=extent.parent))

    def _has_ledger(self, key: int, leaves: Sequence[Leaf]) -> bool:
        """Return whether a ledger continues the ledger of each leaf. A copy has another ledger."""
        if self.is_copy:
            return True
        ledgers = self._recorder.query(lambda reader: {*ledger_hashes(reader, key)})
        return ledgers.issuperset(leaf.ledger for leaf in leaves)

    def _has_first_head(self, state: Conversation, leaf: Leaf) -> bool:
        """Return whether the first event of an import without events will continue the chain that
        the leaf began.
        """
        if leaf.erased or leaf.head == NO_HEAD or state.sealed_key is not None:
            return True
        return state.erasure is not None or first_head(state, state.salt) == leaf.head

    def _has_head(self, state: Conversation, leaf: Leaf) -> bool:
        """Return whether the conversation had the head of the leaf at the version of the leaf."""
        if state.erasure is not None:  # the rows of earlier versions are gone
            return leaf.version < state.erasure.events or leaf.head == state.erasure.head
        if (leaf.version, leaf.head) == state.end:  # which was read from its last row
            return True

        def read(reader: Reader) -> Sequence[bytes]:
            last = leaf.version - 1
            if state.begins <= last and leaf.version < state.version and state.archived:
                archived = read_archived(state.id, address_of_object(reader, state.key))
                return [row.head for row, _ in archived if row.id == last]
            past = (part.key for part in state.lineage if leaf.version <= part.stop)
            *_, key = (state.key, *past)
            return [row.head for row in reader.rows(key, last, leaf.version)]

        return leaf.head in self._recorder.query(read)

    def _redactions(self, state: Conversation, version: int) -> tuple[Redaction, ...]:
        """Return the receipts among the events from ``version`` on."""
        if version >= state.version:
            return ()

        # Not ``Store.events``, because it restores an archived conversation.
        def read(reader: Reader) -> list[Row]:
            columns = reader.columns(state.key, version, state.version)
            ids = [event_id for event_id, kind, *_ in columns if kind == b"redaction"]
            return [row for n in ids for row in reader.rows(state.key, n, n + 1)]

        rows = self._database.codec_of(state).decode_rows(self._recorder.query(read))
        events = (stored_event_of(state.id, row) for row in rows)
        return tuple(event for event in events if isinstance(event, Redaction))


def _is_unread(verdict: Verdict, event_id: int) -> bool:
    """Return whether ``verify`` could not read an event: it is damaged or missing, or the object of
    its archive is.
    """
    return any(
        verdict.archived > event_id
        if finding.first is None or finding.last is None
        else finding.first <= event_id <= finding.last
        for finding in verdict.findings
    )


def _not_covered(
    state: Conversation, extent: Extent | None, *, has_source: bool, is_read: bool
) -> Iterator[str]:
    """Yield what a leaf without an extent, or an extent of an earlier form, does not cover."""
    is_first_form = extent is None or not extent.form
    if is_first_form and state.parent is not None:
        yield "from where a fork comes"
    if extent is None:
        if has_source:
            yield "the source of an import"
        if not is_read:
            yield "the order, kinds and times of events without their key"
        return
    if is_first_form and extent.records:
        yield "the texts between the records of its source"
    if extent.form < 2 and extent.records:
        yield "how many records of its source had become events"


def _covers_beginning(leaf: Leaf) -> bool:
    """Return whether a leaf covers when its conversation began. The store itself has a leaf too."""
    extent = leaf.extent
    return not leaf.name or (extent is not None and bool(extent.form or extent.created_at))


def _unmade(state: Conversation, leaf: Leaf) -> Unmade | None:
    """Return ``Verdict.unmade_then``."""
    extent = leaf.extent
    if extent is None or not extent.records:
        return None
    if extent.form > 1:
        made = extent.made
        return Unmade(made, extent.records, leaf.version) if made < extent.records else None
    # Earlier checkpoints do not cover how many records had become events.
    return Unmade(None, extent.records, leaf.version) if state.version > leaf.version else None


def _copied_receipts(reader: Reader, state: Conversation) -> list[Row]:
    """Return the entries of a ledger that are the receipts of copied redactions."""
    return [row for row in entries(reader, state.key) if row.kind == "redaction_copied"]


def _state_of(reader: Reader, verdict: Verdict) -> Conversation | None:
    """Return the conversation of a verdict as it is now, or None if its id is unknown."""
    newest = reader.conversation(verdict.conversation or "")
    if newest is None:
        return None
    return [*tombstones_before(reader, newest), newest][verdict.generation]


def _was_erased(reader: Reader, name: str) -> bool:
    """Return whether a conversation with this id was erased."""
    newest = reader.conversation(name)
    if newest is None:
        return False
    return any(state.erasure is not None for state in (newest, *tombstones_before(reader, newest)))


def _state_and_ledgers(reader: Reader, verdict: Verdict) -> tuple[Conversation | None, set[bytes]]:
    """Return a conversation, and the hashes of its ledger after each entry. One query costs less
    than two.
    """
    state = _state_of(reader, verdict)
    return state, set() if state is None else {*ledger_hashes(reader, state.key)}
