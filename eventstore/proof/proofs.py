"""Proofs that a verifier checks without the store: ``clients/verify`` has such a verifier."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.errors import InvalidArgument, count
from foldlog.eventstore.log.finding import find_existing, tombstones_before
from foldlog.eventstore.log.reading import ReadTransaction
from foldlog.eventstore.log.row import commitment_of, dense_rows, first_head, is_redacted, sound
from foldlog.eventstore.maintenance.verify import Verdict
from foldlog.eventstore.proof.comparison import verify_against
from foldlog.eventstore.proof.merkle import consistency_path, inclusion_path, root_of
from foldlog.eventstore.proof.signed_note import StoreCheckpoint
from foldlog.eventstore.proof.stored_leaves import leaves_of
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import HEAD_BYTES, Row, unpacked, utf8
from foldlog.eventstore.store import Store


class EventProof(msgspec.Struct, frozen=True):
    """A proof that a checkpoint covers an event: docs/PROOF.md says how to check it. Hashes and
    salts are in hexadecimal.

    ``event``       the id of the event, in the conversation with this id and ``generation``
    ``body``        the event as JSON, and ``event_salt`` the salt of its commitment, which is None
                    for a redacted event
    ``salt``        the salt of the conversation's heads, and ``before`` the head before the event
    ``links``       the hashed fields and the commitment of the event, and of each later event up to
                    the version of the leaf
    ``ledger``      the hash of the conversation's ledger in the leaf, and ``extent`` what else it
                    covers
    ``leaf``        the number of the leaf, and ``path`` the hashes from the leaf to the root
    ``checkpoint``  the signed text of the checkpoint
    """

    conversation: str
    generation: int
    event: int
    body: str
    event_salt: str | None
    salt: str
    before: str
    links: tuple[tuple[str, str], ...]
    ledger: str
    extent: str | None
    leaf: int
    path: tuple[str, ...]
    checkpoint: str


class ConsistencyProof(msgspec.Struct, frozen=True):
    """A proof that a checkpoint contains all leaves of an earlier one."""

    earlier: str
    checkpoint: str
    path: tuple[str, ...]


def prove_event(
    store: Store, checkpoint: StoreCheckpoint, conversation: str, event_id: int
) -> EventProof:
    """Prove that a checkpoint covers an event. Size: 120 bytes for each event between this event
    and the next checkpoint. Cost: reading all leaves, and these events.

    Raises ``InvalidArgument`` if the checkpoint does not cover the event, or if the store has other
    leaves than the checkpoint. Raises ``CorruptEvent`` if one of these events is missing or
    damaged. Also raises ``ConversationNotFound``, ``ConversationErased`` and ``KeyUnavailable``.
    """
    check_whole("event_id", event_id)
    database = store.database

    def prove(reader: Reader) -> EventProof:
        # Comes first, because joined stores read only the store of a conversation once it is found.
        leaves = leaves_of(reader, checkpoint)
        hashes = [leaf.hash for leaf in leaves]
        _check_leaves(hashes, checkpoint)
        state = find_existing(database, reader, conversation)
        reading = ReadTransaction(reader, state, database)
        generation = len(tombstones_before(reader, state))
        covering = [
            (leaf.version, number)
            for number, leaf in enumerate(leaves)
            if (leaf.name, leaf.generation, leaf.erased) == (utf8(conversation), generation, False)
            and leaf.version > event_id >= 0
        ]
        if not covering:
            raise InvalidArgument(
                f"the checkpoint does not cover event {event_id} of conversation {conversation!r},"
                f" which has {count(state.version, 'event')} now; 'foldlog store checkpoint' makes"
                " a checkpoint of the present state"
            )
        version, number = min(covering)
        stored = reading.rows(event_id, version)
        rows = [
            sound(conversation, row) for row in dense_rows(conversation, stored, event_id, version)
        ]
        event = rows[0]
        covered = leaves[number].extent
        extent = None if covered is None else covered.hash.hex()
        before = reading.head_at(event_id) or first_head(state, reading.salt)
        return EventProof(
            conversation,
            generation,
            event_id,
            event.body.decode(),
            None if is_redacted(event.proof) else event.proof[HEAD_BYTES:].hex(),
            reading.salt.hex(),
            before.hex(),
            tuple(map(_link, rows)),
            leaves[number].ledger.hex(),
            extent,
            number,
            _in_hex(inclusion_path(number, hashes)),
            str(checkpoint),
        )

    return database.recorder.query(prove)


def prove_consistency(
    store: Store,
    earlier: StoreCheckpoint,
    checkpoint: StoreCheckpoint,
    *,
    verify: Callable[[Store, StoreCheckpoint], Iterable[Verdict]] = verify_against,
) -> ConsistencyProof:
    """Prove that the list of checkpoints was continued from an earlier checkpoint to another one.
    Nothing else is proved to somebody without the store.

    Raises ``InvalidArgument`` if the list was changed, if ``verify`` finds a change since the
    earlier checkpoint, or if ``earlier`` has no leaves. Cost: checking every event, as
    ``verify_against`` does. ``verify_against`` does not compare the events of imports that were
    opened since; ``verify`` may do more.
    """
    if not earlier.size:
        raise InvalidArgument(
            "the earlier checkpoint has no leaves, so every checkpoint continues it; pass a"
            " checkpoint of a store that had events"
        )
    leaves = store.database.recorder.query(partial(leaves_of, checkpoint=checkpoint))
    hashes = [leaf.hash for leaf in leaves]
    if earlier.root != root_of(hashes[: earlier.size]):
        raise InvalidArgument(
            f"the checkpoint with {count(checkpoint.size, 'leaf', 'leaves')} does not continue the"
            f" checkpoint with {earlier.size:,}: the list of checkpoints was changed, or the"
            " checkpoints belong to two stores, or the first is the earlier one"
        )
    _check_leaves(hashes, checkpoint)
    for verdict in verify(store, earlier):
        for finding in verdict.findings:
            if not (finding.needs_key or finding.unfinished or finding.unproved):
                name = verdict.conversation
                place = "" if name is None else f"conversation {name!r}: "
                raise InvalidArgument(
                    "the store does not match the earlier checkpoint, so nothing was proved:"
                    f" {place}{finding}; 'foldlog store verify --against FILE' lists all findings"
                )
    path = consistency_path(earlier.size, hashes)
    return ConsistencyProof(str(earlier), str(checkpoint), _in_hex(path))


def _check_leaves(hashes: Sequence[bytes], checkpoint: StoreCheckpoint) -> None:
    """Raise ``InvalidArgument`` if the leaves in the store are not the leaves of the checkpoint,
    because no verifier would accept a proof from them.
    """
    if (len(hashes), root_of(hashes)) != (checkpoint.size, checkpoint.root):
        raise InvalidArgument(
            f"the store does not have the {count(checkpoint.size, 'leaf', 'leaves')} of the"
            " checkpoint, so nothing was proved: the list of checkpoints was changed, or the"
            " checkpoint belongs to another store; 'foldlog store verify --against FILE' says more"
        )


def _in_hex(hashes: list[bytes]) -> tuple[str, ...]:
    return tuple(digest.hex() for digest in hashes)


def _link(row: Row) -> tuple[str, str]:
    """Return the fields of an event that are hashed into its head, and its commitment."""
    _, event_id, _, _, recorded_at, schema, shown, structural, _, _ = unpacked(row.meta)
    size = len(row.kind.encode())
    fields = f"{event_id} {schema} {shown:d} {structural:d} {recorded_at} {size} {row.kind}"
    return fields, commitment_of(row.proof, row.body).hex()
