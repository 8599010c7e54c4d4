"""Write an archive."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from foldlog.archives.compression import Sink, compressed
from foldlog.archives.lines import VERSION, conversation_line, event_line, line
from foldlog.eventstore import ConversationErased, CorruptEvent, Store, translated
from foldlog.eventstore.maintenance.copy import CopiedConversation, read_for_copy, tombstones
from foldlog.whole_file import whole_file


class Problem(NamedTuple):
    """A conversation that could not be written or copied, and the reason. The other conversations were."""

    conversation: str
    problem: str


class Written(NamedTuple):
    """The totals of an archive, and the conversations that it lacks. ``tombstones`` are those of erased ones."""

    conversations: int
    events: int
    tombstones: int
    problems: tuple[Problem, ...]


def write_archive(store: Store, path: Path, conversations: Iterable[str]) -> Written:
    """Write these conversations to the file at ``path``, which appears once it is whole, with mode 0600.

    A conversation that is damaged is left out, and named. Raises ``OSError``, ``ConversationNotFound``,
    ``KeyUnavailable`` and ``StoreUnavailable``. Cost: its events; memory for one page of them.
    """
    with whole_file(path) as file, compressed(file) as sink, translated():
        written = _write(store, sink, conversations)
    return written


def _write(store: Store, sink: Sink, conversations: Iterable[str]) -> Written:
    count, events, erased, problems = 0, 0, 0, []
    sink.write(line({"foldlog_archive": VERSION, "store": store.database.uuid}))
    for conversation in conversations:
        for tombstone in tombstones(store.database, conversation):
            sink.write(conversation_line(tombstone))
            erased += 1
        try:
            written = _write_one(store, sink, conversation)
        except CorruptEvent as error:
            problems.append(Problem(conversation, str(error)))
            sink.write(line({"given_up": conversation, "problem": f"event {error.event_id}: {error.problem}"}))
        else:
            if written.erasure is None:
                count += 1
                events += written.version
            else:
                erased += 1
        sink.flush()
    sink.write(line({"end": True, "conversations": count + erased, "events": events}))
    return Written(count, events, erased, tuple(problems))


def _write_one(store: Store, sink: Sink, conversation: str) -> CopiedConversation:
    """Write a conversation or its tombstone, and return it."""
    what, rows, keys = read_for_copy(store.database, conversation)
    sink.write(conversation_line(what))
    try:
        for row in rows:
            sink.write(event_line(what.id, row))
        for key, first, number in keys:
            sink.write(line({"key": key, "first": first, "events": number}))
    except ConversationErased as error:  # it was erased while it was written: a tombstone is left
        sink.write(line({"given_up": conversation, "problem": str(error)}))
        return _write_one(store, sink, conversation)
    return what
