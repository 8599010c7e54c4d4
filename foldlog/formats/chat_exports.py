"""Read exports of chats: a file with many conversations. A conversation is a tree of messages, and
its View shows one branch of the tree.

A conversation has one record per message. If the site shows a branch that does not end in the
newest message, an additional last record names the shown branch. The records are in the order of
their times. New records therefore always come at the end, even if a message gets a second answer.
The View at each version is the prompt that the model got at that time.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from codecs import BOM_UTF8
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import Event, Origin, Retraction
from foldlog.formats.files.documents import (
    DocumentRecords,
    document_in,
    document_of,
    elements,
    text_of,
)
from foldlog.formats.files.readers import JsonLines, Placed, on_lines
from foldlog.formats.format import LOOK_AT, Contained, FileReader
from foldlog.formats.json_text import UnreadableJson
from foldlog.formats.record import (
    Fields,
    Located,
    TimeAndId,
    at,
    describe_type,
    member,
    pick,
    text_or_empty,
    text_or_none,
)
from foldlog.formats.record_events import FollowingDecoder, RecordEvents

# -- files -----------------------------------------------------------------------------------------

_KEY = re.compile(rb'"(\w+)"\s*:')
"""Matches a key of an object."""


class Exports(FileReader):
    """Reads files with an array of conversations, with a single conversation, or with a
    conversation on each line.

    ``begins``  sets of keys. A file is an export if its beginning has all keys of one of the sets.
    ``named``   the keys that may have the name of a conversation. If several keys have a text, the
                first text is the name.
    ``held``    the key of the array with the messages.
    ``id``      the key of a message's id.
    ``parent``  the key of the id of a message's parent.
    ``title``   the key of the title.
    ``newest``  the key with the id of the newest shown message.
    ``about``   further fields of the record that describes the conversation.
    """

    begins: Sequence[frozenset[bytes]]
    named: Sequence[str]
    held: str = ""
    id: str
    parent: str
    title: str
    newest: str
    about: JsonMap

    @abstractmethod
    def has(self, value: Any) -> bool:
        """Return whether a JSON value is a conversation."""

    @abstractmethod
    def messages(self, conversation: Fields) -> list[Any]:
        """Return the messages of a conversation in order, including damaged messages. Return an
        empty list if the conversation has no message.
        """

    def left_out(self, conversation: Fields) -> list[str]:
        """Return a problem for each message that ``messages`` leaves out."""
        return []

    @abstractmethod
    def is_about(self, record: Any) -> bool:
        """Return whether a record describes the conversation, and is not a message."""

    def records(self, conversation: Fields) -> list[Any]:
        """Return the records of a conversation. If the site shows a branch that does not end in the
        last message, an additional last record names the branch.
        """
        messages = self.messages(conversation)
        newest = text_or_none(conversation.get(self.newest))
        if not messages or newest in (None, member(self.id)(messages[-1])):
            return messages
        named = pick(conversation, self.named)
        return [*messages, {**named, **self.about, self.newest: newest}]

    def name_of(self, conversation: Fields) -> str | None:
        """Return the name of a conversation, or None."""
        names = (text_or_none(conversation, key) for key in self.named)
        return next((name for name in names if name is not None), None)

    def name_in(self, record: Any) -> str | None:
        """Return the name in a record about the conversation, or None for another record."""
        if not self.is_about(record):
            return None
        return self.name_of(record) or ""

    def holds(self, path: Path, begin: bytes) -> bool:
        keys = set(_KEY.findall(begin))
        if not any(map(keys.issuperset, self.begins)):
            return False
        first = [self.has(located.value) for located in islice(_conversations(path), LOOK_AT)]
        return any(first) and 2 * sum(first) >= len(first)

    def histories(self, path: Path) -> Iterator[Contained]:
        for located in _conversations(path):
            value = located.value
            if not self.has(value):
                problem = (
                    located.problem
                    or f"expected a conversation, found {describe_type(value)} of another kind"
                )
                yield Contained(None, Placed(partial(iter, [at(located.place, None, problem)])))
                continue
            records = self.records(value)
            problems = [at(located.place, None, text) for text in self.left_out(value)]
            if records or problems:
                title = text_or_empty(value.get(self.title)).strip()
                document = document_of(located, self.held, records)
                yield Contained(
                    self.name_of(value),
                    DocumentRecords(document.text, [*document, *problems]),
                    title=title,
                )


def _conversations(path: Path) -> Iterator[Located]:
    """Yield the conversations of a file, or the problem of a file that cannot be read."""
    if on_lines(path):
        yield from JsonLines(path)
        return
    try:
        data = path.read_bytes()
        if data.removeprefix(BOM_UTF8).lstrip().startswith(b"["):
            yield from elements(text_of(data), str(path))
        else:
            yield document_in(data, str(path))
    except UnreadableJson as error:
        yield at(str(path), None, str(error))


# -- the order -------------------------------------------------------------------------------------


def in_order(parents: Mapping[str, str | None], times: Mapping[str, datetime | None]) -> list[str]:
    """Return the ids of messages in the order of their times. A message comes after its parent.

    ``parents`` maps a message to its parent, in the order of the source. A message whose parent is
    missing begins a tree.
    """
    children: defaultdict[str | None, list[str]] = defaultdict(list)
    for name, parent in parents.items():
        children[parent if parent in parents else None].append(name)
    start_times: dict[str, datetime] = {}
    # Messages whose parents form a circle have no first message. So begin at every message that was
    # not reached from a first message.
    for start in (*children[None], *parents):
        waiting = [(start, datetime.min.replace(tzinfo=UTC))]
        while waiting:
            name, earliest = waiting.pop()
            if name not in start_times:
                start_times[name] = max(earliest, times.get(name) or earliest)
                waiting += ((child, start_times[name]) for child in reversed(children[name]))
    return sorted(start_times, key=start_times.__getitem__)


# -- records to events -----------------------------------------------------------------------------


_NO_PARENT = object()


class TreeDecoder(FollowingDecoder):
    """Makes events of messages. If a message does not continue the branch, a retraction comes
    first. A message whose parent is missing follows the last message. But a message with the same
    missing parent as the first message begins a new tree.
    """

    keeps_shown = False
    exports: Exports

    def set_up(self) -> None:
        self._ends: dict[str, int] = {}
        self._tip: str | None = None
        self._root: Any = None

    def begin_record(self, record: Fields, time_and_id: TimeAndId) -> RecordEvents:
        name = None if self.exports.is_about(record) else record[self.exports.id]
        return RecordEvents(self, Origin(format=self.format.name, id=name), None)

    def read(self, collected: RecordEvents, record: Fields) -> None:
        exports = self.exports
        is_about = exports.is_about(record)
        after = record.get(exports.newest if is_about else exports.parent, _NO_PARENT)
        if self._tip is None and not is_about:
            self._root = text_or_none(after)
        if type(after) is not str or after not in self._ends:
            begins_tree = not is_about and after in (None, self._root)
            after = None if begins_tree else self._tip
        if after != self._tip:
            collected.add(Retraction, version=0 if after is None else self._ends[after])
        self._tip = after
        if is_about:
            title = text_or_empty(record, exports.title)
            collected.meta = {"title": title} if title.strip() else {}
            collected.close("conversation", collected.meta.get("title"))
        else:
            self.say(collected, record)
            collected.close("message", collected.meta.get("title"))
            self._tip = record[exports.id]
            self._ends[record[exports.id]] = collected.version

    def read_redacted(self, collected: RecordEvents, record: Fields) -> None:
        """Go on after a redacted message, whose id is in its stored events."""
        super().read_redacted(collected, record)
        name = _name_in(collected.stored)
        if name is None:
            return
        if self._tip is None:
            self._root = text_or_none(record, self.exports.parent)
        self._tip = name
        self._ends[name] = collected.version

    @abstractmethod
    def say(self, collected: RecordEvents, record: Fields) -> None:
        """Add the events of a message. If no model gets the message, add nothing."""


def _name_in(events: Sequence[Event]) -> str | None:
    """Return the id of the message from which events were made, or None."""
    ids = (None if event.origin is None else event.origin.id for event in events)
    return next((name for name in ids if type(name) is str), None)
