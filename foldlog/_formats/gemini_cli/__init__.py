"""Gemini CLI: the lines of a session in ``chats/session-….jsonl``, or the document that it was before 2026.

    {"sessionId", …}                    the session; of a document all but its messages, with what changes at the end
    {"id", "type": "user", "content"}   Message; from the environment where Gemini CLI wrote it; an Observation for each
                                        result in it. A command (``/``, ``?``) is kept and not shown
    {"id", "type": "gemini", …}         a Message, or an Action for each call with its Observation; with its thinking
    {"id", "type": …}                   info, warning, error: an Annotation
    {"$rewindTo": id}                   takes the messages from this one on back
    {"$set": {…}}                       new values of the session; its title is ``summary``. ``messages`` replace all;
                                        if they begin with a snapshot of the state, that is a compaction

An id that comes again replaces the message: a Retraction takes it back with all after it, and these follow again. So at
every version the View is what Gemini CLI would send. What the record repeats is in it only.

``reading.py`` and ``writing.py`` are the two directions, ``parts.py`` is the content.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from foldlog._formats.files.readers import Array, Placed, PlacedRecord, around
from foldlog._formats.format import LOOK_AT, Contained, FileReader, Format
from foldlog._formats.gemini_cli.reading import GeminiDecoder, accepts, session_in
from foldlog._formats.gemini_cli.writing import NAME, GeminiEncoder
from foldlog._formats.record import member

__all__ = ["FORMAT"]

_TYPES = ("user", "gemini", "info", "error", "warning")
_STABLE = ("sessionId", "projectHash", "startTime", "kind")
"""Fields of a session that never change."""


class _Documents(FileReader):
    def holds(self, path: Path, begin: bytes) -> bool:
        begins = re.match(rb'\s*\{\s*"(sessionId|projectHash)"', begin) is not None
        return begins and path.suffix == ".json" and all(b'"%b"' % key.encode() in begin for key in _STABLE[:3])

    def histories(self, path: Path) -> Iterator[Contained]:
        yield Contained(session_in(around(path, "messages")), Placed(path.stat().st_size, partial(_records, path)))


def _records(path: Path) -> Iterator[PlacedRecord]:
    session = around(path, "messages")
    yield str(path), {key: session.pop(key) for key in _STABLE if key in session}, None
    messages = Array(path, key="messages")
    yield from ((messages.place(each), each.value, each.problem) for each in messages)
    yield str(path), {"$set": session}, None


def _matches(record: Any) -> bool:
    """Return whether a record is a session, a change of it, or a message of its types with time and content."""
    if not accepts(record) or "id" not in record:
        return accepts(record)
    return record["type"] in _TYPES and type(record.get("timestamp")) is str and "content" in record


FORMAT = Format(
    name=NAME,
    matches=_matches,
    accepts=accepts,
    decoder=lambda records, options: GeminiDecoder(options),
    encoder=GeminiEncoder,
    conversation=lambda records: next(filter(None, map(session_in, islice(records, LOOK_AT))), None),
    files=_Documents(),
    rewritten=True,
    kept_in=("~/.gemini/tmp",),
    source_id=member("id"),
)
