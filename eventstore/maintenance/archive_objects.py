"""Restore archived conversations. The events of an archived conversation are in one object of an
object store.

The store keeps the row and the last event of an archived conversation, its idempotency keys and its
source. Lists of conversations, the version and the head can therefore be read without the object.
Any other read or write of the conversation restores its events first: ``ReadTransaction`` raises
``EventsNotMade``, and the recorder's ``on_missing`` calls ``restore``.

A row of ``unfinished`` contains the address of an object. The row is written before the object is
made, and stays until the object is deleted. So every object has a row, even after an interruption.
A row of ``unfinished`` names one of these operations:

``archive``: archiving has begun, and the object may exist. A vacuum deletes the object.
``archived``: only the object has the events.
``restored``: both the store and the object have the events. Older backups need the object, so it
stays until the conversation is redacted, rekeyed, erased or archived again.
``discard``: the object is being deleted.
``erase``: the object is being deleted together with the rows.

An address is the SHA-256 of the object, a space and the object's URL. Each attempt to archive uses
a new URL. An object is deleted only when its row can no longer change to ``archived``, because an
archived object is the only copy of its events.

A second row, a *reminder*, has the conversation's key times -1. Its operation is stored as
``discard`` too, and its state is one address in each line. A reminder names objects that a vacuum
has to deal with later:

- An attempt to archive was taken back, but the archiver may still be alive and write its object.
  For an hour, every vacuum deletes the object again.
- The object was made before the file of the store was copied, or before the server was restored or
  promoted. Another store may need it, so only a vacuum with ``copied_objects`` deletes it.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from foldlog._base.json_types import JsonObject
from foldlog.eventstore.codec_json import Attachment, Body, attachments_of
from foldlog.eventstore.errors import (
    InvalidArgument,
    StoreRefused,
    StoreUnavailable,
    install_command,
)
from foldlog.eventstore.log.database import Database
from foldlog.eventstore.log.importing import (
    ARCHIVE,
    ARCHIVED,
    CHUNK,
    DELETE_OBJECT,
    REMINDER,
    RESTORED,
)
from foldlog.eventstore.recorders.base import Reader, Recorder, Transaction
from foldlog.eventstore.recorders.sqlite.replacing import sync
from foldlog.eventstore.recorders.types import Conversation, Row, Unfinished
from foldlog.eventstore.sources.blocks import pack, unpack

if TYPE_CHECKING:
    from obstore.store import ObjectStore, RetryConfig

_HEAD: Final = 8
"""The name of an object begins with the first ``_HEAD`` bytes of the conversation's head."""
_RETRY: Final[RetryConfig] = {"retry_timeout": timedelta(minutes=1), "max_retries": 1_000}
"""After this time, a request is not tried again, however fast it fails. One request may take 30
seconds.
"""
_TIME: Final = "%Y%m%dT%H%M%S"
_LATE: Final = timedelta(hours=1)
"""An archiver that was not killed has written its object after this time."""

Placed = tuple[Row, int | None]
"""A stored row and its position. A staged row on a server has no position."""


class _Object(msgspec.Struct, array_like=True):
    """The content of an object. A row names its attachments by their indices in ``attachments``,
    because rows may share an attachment.
    """

    rows: list[tuple[int, bytes, bytes, int | None, list[int]]]
    attachments: list[tuple[bytes, int, bytes]]


def pack_rows(placed: Sequence[Placed]) -> bytes:
    """Return the bytes of an object with these rows."""
    places: dict[Attachment, int] = {}
    rows = [
        (
            row.id,
            row.meta,
            bytes(row.body),
            position,
            [places.setdefault(item, len(places)) for item in attachments_of(row.body)],
        )
        for row, position in placed
    ]
    return pack(msgspec.msgpack.encode(_Object(rows, [*map(tuple, places)])))  # type: ignore[list-item]


def unpack_rows(data: bytes) -> list[Placed]:
    """Return the rows in the bytes of an object. Raises ``ValueError`` or ``IndexError``."""
    contents = msgspec.msgpack.decode(unpack(data), type=_Object)
    attachments = [Attachment(*fields) for fields in contents.attachments]
    placed: list[Placed] = []
    for event_id, meta, text, position, beside in contents.rows:
        body = Body.of(text, [attachments[place] for place in beside]) if beside else text
        placed.append((Row(event_id, meta, body), position))
    return placed


# -- objects
# --------------------------------------------------------------------------------------------------


def check_url(recorder: Recorder, to: str) -> None:
    """Raise ``InvalidArgument`` unless ``to`` is the URL of an object store that lasts as long as
    the store.
    """
    is_in_memory = recorder.path is None and not recorder.on_server
    if "://" not in to or (to.startswith("memory:") and not is_in_memory):
        raise InvalidArgument(
            f"{to!r} is not the URL of an object store; use a URL such as s3://bucket/prefix or"
            " file:///mnt/archive"
        )


def new_address(to: str, head: bytes, data: bytes, owner: str) -> str:
    """Return the address of a new object in the object store ``to``. ``head`` is the head of the
    conversation, and ``owner`` comes from ``owner_of_objects``.
    """
    made_at = datetime.now(UTC).strftime(_TIME)
    name = f"{head[:_HEAD].hex()}-{made_at}-{owner}-{secrets.token_hex(8)}"
    return f"{sha256(data).hexdigest()} {to.rstrip('/')}/{name}"


def owner_of_objects(recorder: Recorder) -> str:
    """Return the part of an object's name that tells the stores apart which may use the object. A
    copied file, or a restored or promoted server, has a new owner from its first write on.
    """
    uuid, file = recorder.transact(lambda reader: (reader.value("uuid"), reader.value("file")))
    # A copy on another file system may have the inode of the original.
    system = os.statvfs(recorder.path).f_fsid if recorder.path else ""
    identity = f"{uuid} {file} {system}"
    return sha256(identity.encode()).hexdigest()[: 2 * _HEAD]


def _made_by(address: str) -> list[str]:
    """Return the time and the owner in the name of an object. Names of older objects have none."""
    return _url(address).rpartition("/")[2].split("-")[1:-1]


def _may_be_needed(address: str, owner: str) -> bool:
    """Return whether another store may need an object, because this store did not make it."""
    made_by = _made_by(address)
    return bool(made_by) and made_by[1] != owner


def _may_be_written(address: str) -> bool:
    """Return whether the archiver that chose the address may still write the object."""
    made_by = _made_by(address)
    if not made_by:
        return False
    made_at = datetime.strptime(made_by[0], _TIME).replace(tzinfo=UTC)
    return datetime.now(UTC) - made_at < _LATE


def check_reachable(address: str) -> None:
    """Raise ``StoreUnavailable`` if the object store does not answer. Call ``check_reachable``
    before writing an object. If the object store stopped answering after the write, the object
    could not be deleted.
    """
    with (
        suppress(FileNotFoundError, StoreRefused),
        _reaching(address, "look for") as (store, name),
    ):
        store.head(name)


def write_object(address: str, data: bytes) -> None:
    """Write a new object. After ``StoreUnavailable``, the object may or may not exist."""
    with _reaching(address, "write") as (store, name):
        _create(store, name, data, address)
        path = _path(address)
        if path is not None:  # obstore does not sync the files that it writes
            sync(path)
            sync(path.parent)


def _create(store: ObjectStore, name: str, data: bytes, address: str) -> None:
    """Write an object that does not exist yet."""
    from obstore.exceptions import AlreadyExistsError

    # No other archiver uses this name. If the answer to a request is lost, obstore sends the
    # request again, and the object exists. The caller reads the object and compares its hash.
    try:
        with suppress(AlreadyExistsError):
            store.put(name, data, mode="create")
    except FileNotFoundError as error:
        raise StoreRefused(
            f"cannot write the object {_url(address)}: its bucket does not exist; make the bucket,"
            " or name another one",
            kind="refused",
        ) from error


def read_object(address: str) -> bytes:
    """Return the bytes of an object. Raises ``FileNotFoundError`` if it does not exist."""
    with _reaching(address, "read") as (store, name):
        return bytes(store.get(name).bytes())


def delete_object(address: str) -> None:
    """Delete an object, if it exists, and the parts of it that an interrupted write has left."""
    path = _path(address)
    with suppress(FileNotFoundError), _reaching(address, "delete") as (store, name):
        if path is not None:
            for part in path.parent.glob(f"{name}#*"):
                part.unlink(missing_ok=True)
        store.delete(name)


def _url(address: str) -> str:
    return address.partition(" ")[2]


def _path(address: str) -> Path | None:
    """Return the file of an object, or None if the object store is not a folder."""
    url = urlsplit(_url(address))
    return Path(unquote(url.path)) if url.scheme == "file" else None


@contextmanager
def _reaching(address: str, doing: str) -> Iterator[tuple[ObjectStore, str]]:
    """Yield the object store and the name of an object, and translate the errors of the block.
    ``doing`` is the verb for their messages. ``FileNotFoundError`` passes through.
    """
    url = _url(address)
    base, _, name = url.rpartition("/")
    try:
        from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
    except ImportError as error:
        raise StoreRefused(
            f"cannot {doing} the object {url}: {install_command('archive')}", kind="refused"
        ) from error
    if _first_process() != os.getpid():
        raise StoreRefused(
            f"cannot {doing} the object {url}: this process was forked after its parent had used an"
            " object store, and a fork does not have the threads of the object store; fork earlier,"
            " or start the process with the method 'spawn' of multiprocessing",
            kind="refused",
        )
    try:
        store = _store(base)
    except (BaseError, OSError, ValueError) as error:
        raise StoreRefused(
            f"cannot {doing} the object {url}: {_first_line(error)}; check the URL of the object"
            " store, and its settings in the environment",
            kind="refused",
        ) from error
    try:
        yield store, name
    except FileNotFoundError:
        raise
    except (BaseError, OSError, ValueError) as error:
        problem = f"cannot {doing} the object {url}: {_first_line(error)}"
        is_refused = isinstance(error, PermissionDeniedError | UnauthenticatedError)
        # S3 answers some refused deletions with 200, and obstore then raises a general error.
        if is_refused or "AccessDenied" in problem:
            raise StoreRefused(
                f"{problem}; give these credentials the right to do so", kind="refused"
            ) from error
        raise StoreUnavailable(
            f"{problem}; try again when the object store answers", kind="away"
        ) from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


@cache
def _first_process() -> int:
    # obstore starts its threads at its first use. A forked process does not have these threads, and
    # obstore would wait for them forever.
    return os.getpid()


@cache
def _store(url: str) -> ObjectStore:
    """Return the object store with this URL. A folder is made if it does not exist."""
    from obstore.store import from_url

    options: JsonObject = {}
    if url.startswith("file:"):
        options["mkdir"] = True
    elif not url.startswith("memory:"):
        options["retry_config"] = _RETRY
    return from_url(f"{url}/", **options)


# -- conversations
# --------------------------------------------------------------------------------------------------


def address_of_object(reader: Reader, key: int) -> str:
    """Return the address of a conversation's object, or an empty text if it has none."""
    operations = (ARCHIVE, ARCHIVED, RESTORED, DELETE_OBJECT)
    for interrupted in reader.unfinished(key):
        if interrupted.operation in operations:
            return interrupted.state
    return ""


def restore(database: Database, conversation: str) -> None:
    """Put the events of an archived conversation back at their positions. The object stays in the
    object store.

    Raises ``StoreRefused`` with ``kind`` ``archive`` if the object is missing or was changed, and
    with ``kind`` ``read_only`` if the store is read-only. Raises ``StoreUnavailable`` if the object
    cannot be read now. Cost: writing all archived events in one transaction.
    """
    recorder = database.recorder
    find = partial(archived_in, conversation=conversation)
    while (archived := recorder.query(find)) is not None:
        if not recorder.writable:
            raise StoreRefused(
                f"conversation {conversation!r} is archived, and reading it would restore it;"
                " open the store for writing",
                kind="read_only",
            )
        try:
            placed = read_archived(conversation, archived[1])
        except StoreRefused:
            if recorder.query(find) == archived:
                raise
        else:
            recorder.transact(partial(_put_back, archived=archived, placed=placed))


def read_archived(conversation: str, address: str) -> list[Placed]:
    """Return the rows in the object of an archived conversation. Raises ``StoreRefused`` with the
    ``kind`` ``archive`` if the object is missing or was changed.
    """
    digest = address.partition(" ")[0]
    try:
        data = read_object(address)
    except FileNotFoundError:
        raise _unusable_object(conversation, address, "is missing") from None
    if sha256(data).hexdigest() != digest:
        raise _unusable_object(conversation, address, "was changed or exchanged: its hash differs")
    try:
        return unpack_rows(data)
    except (ValueError, IndexError) as error:
        raise _unusable_object(conversation, address, f"has no events: {error}") from error


def _unusable_object(conversation: str, address: str, problem: str) -> StoreRefused:
    return StoreRefused(
        f"the object {_url(address)} of the archived conversation {conversation!r} {problem}; put"
        " the object back, for example from an older version in the bucket, or erase the"
        " conversation",
        kind="archive",
    )


def archived_in(reader: Reader, conversation: str) -> tuple[Conversation, str] | None:
    """Return a conversation and the address of its object, or None if it is not archived."""
    state = reader.conversation(conversation)
    if state is None or not state.archived:
        return None
    return state, address_of_object(reader, state.key)


def _put_back(
    transaction: Transaction, archived: tuple[Conversation, str], placed: Sequence[Placed]
) -> None:
    """Insert the rows of an archived conversation again, unless the conversation has changed since
    its archive was read.
    """
    state, address = archived
    if archived_in(transaction, state.id) != archived:
        return
    waiting = iter(placed)
    while chunk := [*islice(waiting, CHUNK)]:
        rows, positions = zip(*chunk, strict=True)
        transaction.insert_again(state.key, rows, positions)
    transaction.set_unmade(state.key, 0)
    transaction.write("note_uncounted", state.key)  # what is archived is not counted
    transaction.leave_unfinished(state.key, RESTORED, address)


def delete_unneeded_object(recorder: Recorder, interrupted: Unfinished) -> None:
    """Delete an object whose events the store has too. The operation is replaced first, so no other
    process can complete the archiving after its object is deleted.
    """
    begun = interrupted._replace(operation=DELETE_OBJECT)
    if replace_operation(recorder, interrupted, DELETE_OBJECT):
        delete_owned(recorder, interrupted)
        replace_operation(recorder, begun, None)


def delete_owned(recorder: Recorder, operation: Unfinished) -> None:
    """Delete the object of an operation, unless another store may need it. Leave a reminder for a
    later vacuum if the object stays, or if an archiver may still write it.
    """
    key, _, name, address = operation
    may_be_needed = _may_be_needed(address, owner_of_objects(recorder))
    if may_be_needed or name == ARCHIVE:
        recorder.transact(partial(remind, key=key, address=address))
    if not may_be_needed:
        delete_object(address)


def bytes_remain(reader: Reader, key: int) -> bool:
    """Return whether the store's files, or an object of the conversation, may still have erased
    bytes.
    """
    return reader.value("bytes_pending") != "" or bool(reader.unfinished(-key))


def remind(transaction: Transaction, key: int, address: str) -> None:
    """Add an address to the reminder of a conversation."""
    transaction.conversation(key)  # locks the conversation, on a server
    addresses = [reminder.state for reminder in transaction.unfinished(-key)]
    if address not in "\n".join(addresses).split("\n"):
        transaction.leave_unfinished(-key, REMINDER, "\n".join([*addresses, address]))


def delete_reminded_objects(
    recorder: Recorder, reminder: Unfinished, *, copied_objects: bool
) -> None:
    """Delete the objects of a reminder. Raises ``StoreRefused`` if another store may need one of
    them, unless ``copied_objects`` is true.
    """
    owner = owner_of_objects(recorder)
    needed: list[str] = []
    late: list[str] = []
    for address in reminder.state.split("\n"):
        may_be_needed = _may_be_needed(address, owner)
        if may_be_needed and not copied_objects:
            needed.append(address)
            continue
        delete_object(address)
        if not may_be_needed and _may_be_written(address):
            late.append(address)
    recorder.transact(partial(_shorten, reminder=reminder, addresses=[*needed, *late]))
    if needed:
        error = StoreRefused(
            f"the object {_url(needed[0])} was not deleted: it was made before this store was"
            " copied, moved or restored, and another copy of the store may need it; if none does,"
            " delete it with 'foldlog store vacuum --copied-objects'",
            kind="archive",
        )
        error.unfinished = True
        raise error


def _shorten(transaction: Transaction, reminder: Unfinished, addresses: Sequence[str]) -> None:
    """Leave only ``addresses`` in a reminder, unless another process has changed it."""
    transaction.conversation(-reminder.key)  # locks the conversation, on a server
    if [*transaction.unfinished(reminder.key)] != [reminder]:
        return
    if addresses:
        transaction.leave_unfinished(reminder.key, REMINDER, "\n".join(addresses))
    else:
        transaction.finish(reminder.key)


def replace_operation(recorder: Recorder, interrupted: Unfinished, operation: str | None) -> bool:
    """Replace an unfinished operation by another, or end it. Return False if another process has
    done so.
    """
    key = interrupted.key

    def replace(transaction: Transaction) -> bool:
        transaction.conversation(key)  # locks the conversation, on a server
        if [*transaction.unfinished(key)] != [interrupted]:
            return False
        if operation is None:
            transaction.finish(key)
        else:
            transaction.leave_unfinished(key, operation, interrupted.state)
        return True

    return recorder.transact(replace)
