"""The files that foldlog wrote from a store and that do not follow it: backups, exports, reports
and comparisons; and those from which it imported what was erased.

The store keeps each of them under a name, like a read model that has reached the position at which
it was written: what is erased or redacted later names it in ``unconfirmed``. One that is not in its
place any more is named once, and then forgotten.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from foldlog._whole_file import is_database
from foldlog.eventstore import EventStoreError, Store, confirm
from foldlog.eventstore.log.database import behind

_ALL = 2**63
_MOVED = "not in its place any more, "
_IDS = r'(?: of (?P<ids>\[(?:"(?:[^"\\]|\\.)*"(?:, )?)+\]))?'
_KINDS = "audit database|backup|export|report|former file|imported file|imported folder"
_FILE = re.compile(rf"(?:{_KINDS}){_IDS} (?P<path>/.*)", re.DOTALL)


def read_models(store: Store, position: int = _ALL) -> list[str]:
    """Return what the store knows of that has not reached a position: read models, and files by
    their names.
    """
    return store.database.recorder.query(lambda reader: behind(reader, position))


@contextmanager
def noted(
    store: Store, kind: str, path: str | os.PathLike[str], conversation: str | None = None
) -> Iterator[None]:
    """Note a file that the block writes, of a conversation or of the whole store, before it is
    there: a kill leaves no file that is not known. A store that cannot be written does not know of
    it. Forget what the file replaces, and earlier ones of the same kind that are gone.
    """
    position = store.database.last_position
    of = ""
    place = os.path.abspath(path)
    if conversation is not None:  # and those whose events it shares
        lineage = store.query(conversation, lambda reading: reading.lineage)
        names = dict.fromkeys([conversation, *(border.parent for border in lineage)])
        of = f" of {json.dumps([*names], ensure_ascii=False)}"
    name = f"{kind}{of} {place}"
    is_new = False
    is_written = False
    if not os.path.isfile(place) and (
        os.path.exists(place) or not os.path.isdir(os.path.dirname(place))
    ):
        yield  # to a pipe, or nowhere
        return
    with suppress(EventStoreError):
        is_new = name not in read_models(store)
        if is_new:  # else the file that it replaces keeps its position until then
            confirm(store, name, position)
    try:
        yield
        is_written = True
    finally:
        with suppress(EventStoreError):
            for each in read_models(store):
                if each == name:
                    is_over = not is_written and (is_new or is_gone(each))
                else:
                    is_replaced = is_written and path_in(each) == place
                    is_over = is_replaced or (each.startswith(f"{kind}{of} /") and is_gone(each))
                if is_over:
                    confirm(store, each, None)
            if is_written:
                confirm(store, name, position)


def note_sources(store: Store, paths: Iterable[str], conversations: Sequence[str]) -> list[str]:
    """Note the files from which conversations were imported, before these are erased: nothing else
    names the files from then on. Return the names that are new.
    """
    of = json.dumps([*conversations], ensure_ascii=False)
    names = [f"{_source_kind(path)} of {of} {path}" for path in dict.fromkeys(paths)]
    if not names:
        return []
    position = store.database.last_position
    known = {*read_models(store)}
    new = [name for name in names if name not in known]
    for name in new:
        confirm(store, name, position)
    return new


def erased_sources(store: Store) -> dict[str, list[str]]:
    """Return the files that ``note_sources`` noted and that are there, by the conversations."""
    found: dict[str, list[str]] = {}
    for name in read_models(store):
        match = _FILE.fullmatch(name)
        if (
            match is not None
            and match["ids"]
            and name.startswith("imported ")
            and not is_gone(name)
        ):
            for conversation in json.loads(match["ids"]):
                found.setdefault(conversation, []).append(match["path"])
    return found


def source_name(path: str) -> str:
    """Return the name of a file or folder from which something was imported."""
    return f"{_source_kind(path)} {path}"


def _source_kind(path: str) -> str:
    return f"imported {'folder' if os.path.isdir(path) else 'file'}"


def may_hold(name: str, conversations: Container[str] | None) -> bool:
    """Return whether what has this name may hold one of these conversations, or any: a file tells
    of which it is.
    """
    found = _FILE.fullmatch(name)
    ids = json.loads(found["ids"] or "[]") if found is not None else []
    return conversations is None or not ids or any(each in conversations for each in ids)


def stores_in(names: Iterable[str]) -> Iterator[str]:
    """Yield the paths of the backups and former files that are stores, of those with these
    names.
    """
    for name in names:
        if name.startswith(("backup", "former file")) and is_database(Path(path_in(name))):
            yield path_in(name)


def told(store: Store, name: str) -> str:
    """Return a name for a person. One of a file that is gone says so, and is forgotten."""
    if not is_gone(name):
        return name
    with suppress(EventStoreError):
        confirm(store, name, None)
    return f"{_MOVED}{name}"


def path_in(name: str) -> str:
    """Return the path in the name of a file; an empty text for another name."""
    found = _FILE.fullmatch(name)
    return "" if found is None else found["path"]


def is_gone(name: str) -> bool:
    """Return whether a name is that of a file that does not follow the store, and is not there any
    more.
    """
    return is_a_copy(name) and not os.path.exists(path_in(name))


def is_a_copy(name: str) -> bool:
    """Return whether a name is that of a file that does not follow the store, so that it can only
    be deleted.
    """
    return not name.startswith("audit") and bool(path_in(name.removeprefix(_MOVED)))
