"""Files that may still contain an erased text: backups, exports, reports and comparisons that
foldlog wrote, and imported files of erased conversations.

The store notes each file, and every later erasure or redaction lists the file in ``unconfirmed``. A
file that was moved or deleted is listed one last time.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from foldlog.eventstore import EventStoreError, Store, confirm
from foldlog.eventstore.files.targets import is_database
from foldlog.eventstore.log.database import behind

_ALL = 2**63
"""A position after all events, so that ``read_models`` returns all names."""
_MOVED = "not in its place any more, "
_IDS = r'(?: of (?P<ids>\[(?:"(?:[^"\\]|\\.)*"(?:, )?)+\]))?'
_KINDS = "audit database|backup|export|report|former file|imported file|imported folder"
_FILE = re.compile(rf"(?P<kind>{_KINDS}){_IDS} (?P<path>/.*)", re.DOTALL)
"""The name of a file: its kind, the ids of its conversations as JSON, and its path. If the file
contains the whole store, the name has no ids. For example: ``export of ["chat-1"]
/backup/chat.json``.
"""


def read_models(store: Store, position: int = _ALL) -> list[str]:
    """Return the names of the read models that have not reached ``position``, and the names of the
    files that were noted before this position.
    """
    return store.database.recorder.query(lambda reader: behind(reader, position))


@contextmanager
def note_file(
    store: Store, kind: str, path: str | os.PathLike[str], conversation: str | None = None
) -> Iterator[None]:
    """Note the file that a ``with`` block writes.

    The file is noted before it is written, so a crash leaves no unknown file. A read-only store
    cannot note the file. Notes of replaced files, and of missing files of the same kind, are
    deleted.
    """
    position = store.database.last_position
    of_conversations = ""
    absolute_path = os.path.abspath(path)
    if conversation is not None:
        # The file also has events of the conversations from which this conversation was forked.
        lineage = store.query(conversation, lambda reading: reading.lineage)
        names = dict.fromkeys([conversation, *(border.parent for border in lineage)])
        of_conversations = f" of {json.dumps([*names], ensure_ascii=False)}"
    name = f"{kind}{of_conversations} {absolute_path}"
    if not _will_be_a_file(absolute_path):
        yield
        return
    is_new = False
    with suppress(EventStoreError):
        is_new = name not in read_models(store)
        # A name that is already noted stands for the old file until the new file replaces the old
        # file.
        if is_new:
            confirm(store, name, position)
    is_written = False
    try:
        yield
        is_written = True
    finally:
        with suppress(EventStoreError):
            if is_written:
                confirm(store, name, position)
            elif is_new or is_missing(name):
                confirm(store, name, None)
            for other in read_models(store):
                if other == name:
                    continue
                is_replaced = is_written and path_in(other) == absolute_path
                is_alike = other.startswith(f"{kind}{of_conversations} /")
                if is_replaced or (is_alike and is_missing(other)):
                    confirm(store, other, None)


def _will_be_a_file(path: str) -> bool:
    if os.path.exists(path):
        return os.path.isfile(path)
    return os.path.isdir(os.path.dirname(path))


def note_sources(store: Store, paths: Iterable[str], conversations: Sequence[str]) -> list[str]:
    """Note the imported files of conversations that will be erased. After the erasure, the store
    knows the files only by these notes. Return the names of the new notes.
    """
    of_conversations = json.dumps([*conversations], ensure_ascii=False)
    names = [f"{_source_kind(path)} of {of_conversations} {path}" for path in dict.fromkeys(paths)]
    if not names:
        return []
    position = store.database.last_position
    known_names = {*read_models(store)}
    new_names = [name for name in names if name not in known_names]
    for name in new_names:
        confirm(store, name, position)
    return new_names


def erased_sources(store: Store) -> dict[str, list[str]]:
    """Map each erased conversation to its imported files that still exist. ``note_sources`` has
    noted them.
    """
    paths: dict[str, list[str]] = {}
    for name in read_models(store):
        matched = _FILE.fullmatch(name)
        if (
            matched is not None
            and matched["ids"]
            and name.startswith("imported ")
            and not is_missing(name)
        ):
            for conversation in json.loads(matched["ids"]):
                paths.setdefault(conversation, []).append(matched["path"])
    return paths


def source_name(path: str) -> str:
    """Return the name of an imported file or folder, without the ids of its conversations."""
    return f"{_source_kind(path)} {path}"


def _source_kind(path: str) -> str:
    return f"imported {'folder' if os.path.isdir(path) else 'file'}"


def may_hold(name: str, conversations: Container[str] | None) -> bool:
    """Return whether a file or read model may contain one of ``conversations``. Its name lists the
    ids of its conversations. A name without ids stands for all conversations.
    """
    matched = _FILE.fullmatch(name)
    ids = json.loads(matched["ids"] or "[]") if matched is not None else []
    return (
        conversations is None
        or not ids
        or any(conversation in conversations for conversation in ids)
    )


def stores_in(names: Iterable[str]) -> Iterator[str]:
    """Yield the paths of backups, and of files that a restore has replaced, if they are still
    databases.
    """
    for name in names:
        if name.startswith(("backup", "former file")) and is_database(Path(path_in(name))):
            yield path_in(name)


def describe_file(store: Store, name: str) -> str:
    """Return the name of a file as it is shown to users. If the file no longer exists, the text
    says so, and the note is deleted.
    """
    if not is_missing(name):
        return name
    with suppress(EventStoreError):
        confirm(store, name, None)
    return f"{_MOVED}{name}"


def file_words(name: str) -> str:
    """Return the name of a file in words, such as ``export /backup/chat.json of 'chat-1'``."""
    matched = _FILE.fullmatch(name.removeprefix(_MOVED))
    if matched is None:
        return name
    ids = ", ".join(map(repr, json.loads(matched["ids"] or "[]")))
    of_ids = f" of {ids}" if ids else ""
    moved = ", which was moved or deleted" if name.startswith(_MOVED) else ""
    return f"{matched['kind']} {matched['path']}{of_ids}{moved}"


def path_in(name: str) -> str:
    """Return the path in the name of a file. Return an empty text for a read model."""
    matched = _FILE.fullmatch(name)
    return "" if matched is None else matched["path"]


def is_missing(name: str) -> bool:
    """Return whether ``name`` is the name of a copy that was moved or deleted."""
    return is_a_copy(name) and not os.path.exists(path_in(name))


def is_a_copy(name: str) -> bool:
    """Return whether a file is a copy that does not follow later changes of the store. Content can
    be removed from such a copy only by deleting the file.
    """
    return not name.startswith("audit") and bool(path_in(name.removeprefix(_MOVED)))
