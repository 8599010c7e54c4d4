"""What exports of chats share: a file with many conversations, each a tree of messages of which one
branch is shown.

A conversation has a record for each message, and at the end one that says which branch the site
shows, where that is not the branch of the newest message. The records stand in the order of their
times, so a conversation that goes on, or is answered again at some message, only gets more of them,
and the View at each version is what the model was told then.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from foldlog._formats.files.documents import document_in, document_of, elements, text_of
from foldlog._formats.files.readers import JsonLines, Placed, on_lines
from foldlog._formats.format import LOOK_AT, Contained, FileReader, Format, Options
from foldlog._formats.json_text import UnreadableJson
from foldlog._formats.record import Located, at, described, member, text_or_empty, text_or_none
from foldlog._formats.record_events import FollowingDecoder, RecordEvents, TimeAndId
from foldlog.eventstore import Origin, Retraction

Record = dict[str, Any]


# -- files
# --------------------------------------------------------------------------------------------------

_KEY = re.compile(rb'"(\w+)"\s*:')


class Exports(FileReader):
    """Files with an array of conversations, with one, or with one on each line.

    ``begins``  sets of keys: a file begins with the keys of one of these sets
    ``named``   keys of a conversation: the first one with a text has the conversation's name
    ``held``    the key of the array with the messages
    ``id title newest``  the keys of a message's id, of the title, and of the id of the newest
                         message that is shown
    ``about``   what a record of the conversation has besides its name and the newest message
    """

    begins: Sequence[frozenset[bytes]]
    named: Sequence[str]
    held: str = ""
    id: str
    title: str
    newest: str
    about: Mapping[str, Any]

    @abstractmethod
    def has(self, value: Any) -> bool:
        """Return whether a JSON value is a conversation."""

    @abstractmethod
    def messages(self, conversation: Record) -> list[Any]:
        """Return its messages in their order, damaged ones too; none if it has no message."""

    def records(self, conversation: Record) -> list[Any]:
        """Return the messages of a conversation. If the shown branch is not the branch of the last
        message, a record that names the shown branch follows.
        """
        messages = self.messages(conversation)
        newest = text_or_none(conversation.get(self.newest))
        if not messages or newest in (None, member(self.id)(messages[-1])):
            return messages
        named = {key: conversation[key] for key in self.named if key in conversation}
        return [*messages, {**named, **self.about, self.newest: newest}]

    def name_of(self, conversation: Record) -> str | None:
        return next(
            (name for key in self.named if type(name := conversation.get(key)) is str), None
        )

    def holds(self, path: Path, begin: bytes) -> bool:
        is_begun = any(map(set(_KEY.findall(begin)).issuperset, self.begins))
        if is_begun:
            first = [self.has(it.value) for it in islice(_conversations(path), LOOK_AT)]
        else:
            first = []
        return any(first) and 2 * sum(first) >= len(first)

    def histories(self, path: Path) -> Iterator[Contained]:
        for located in _conversations(path):
            value = located.value
            if not self.has(value):
                problem = (
                    located.problem
                    or f"expected a conversation, found {described(value)} of another kind"
                )
                yield Contained(None, Placed(0, partial(iter, [at(located.place, None, problem)])))
            elif records := self.records(value):
                title = text_or_empty(value.get(self.title)).strip()
                yield Contained(
                    self.name_of(value), document_of(located, self.held, records), title=title
                )


def _conversations(path: Path) -> Iterator[Located]:
    if on_lines(path):
        yield from JsonLines(path)
        return
    try:
        data = path.read_bytes()
        if data.lstrip()[:1] == b"[":
            yield from elements(text_of(data), str(path))
        else:
            yield document_in(data, str(path))
    except UnreadableJson as error:
        yield at(str(path), None, str(error))


# -- the order
# --------------------------------------------------------------------------------------------------


def in_order(parents: Mapping[str, str | None], times: Mapping[str, datetime | None]) -> list[str]:
    """Return messages in the order of their times, each behind its parent.

    ``parents`` has the parent of each, in their order in the source. One whose parent is missing is
    a beginning.
    """
    children: defaultdict[str | None, list[str]] = defaultdict(list)
    for name, parent in parents.items():
        children[parent if parent in parents else None].append(name)
    found: dict[str, datetime] = {}
    for start in (*children[None], *parents):  # the second for circles
        waiting = [(start, datetime.min.replace(tzinfo=UTC))]
        while waiting:
            name, earliest = waiting.pop()
            if name not in found:
                found[name] = max(earliest, times.get(name) or earliest)
                waiting += ((child, found[name]) for child in reversed(children[name]))
    return sorted(found, key=found.__getitem__)


# -- records to events
# ------------------------------------------------------------------------------------------------


_NO_PARENT = object()


class TreeDecoder(FollowingDecoder):
    """Reads messages. Before a record that does not follow the last record, the branch between them
    is taken back. One that follows a message that is missing follows the last one, unless the first
    message follows that too.
    """

    keeps_shown = False
    rules: TreeFormat

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._ends: dict[str, int] = {}
        self._tip: str | None = None
        self._root: Any = None

    def begin_record(self, record: Record, time_and_id: TimeAndId) -> RecordEvents:
        name = None if self.rules.is_about(record) else record[self.rules.id]
        return RecordEvents(self, Origin(format=self.rules.name, id=name), None)

    def read(self, read: RecordEvents, record: Record) -> None:
        rules = self.rules
        is_about = self.rules.is_about(record)
        title = record.get(self.rules.title)
        after = record.get(rules.newest if is_about else rules.parent, _NO_PARENT)
        if self._tip is None and not is_about:
            self._root = text_or_none(after)
        if type(after) is not str or after not in self._ends:
            if not is_about and after in (None, self._root):
                after = None
            else:
                after = self._tip
        if after != self._tip:
            read.add(Retraction, version=0 if after is None else self._ends[after])
        if is_about:
            if type(title) is str and title.strip():
                read.meta = {"title": title}
            else:
                read.meta = {}
        else:
            self.say(read, record)
        read.close("conversation" if is_about else "message", read.meta.get("title"))
        self._tip = after if is_about else record[rules.id]
        if not is_about:
            self._ends[record[rules.id]] = read.version

    @abstractmethod
    def say(self, read: RecordEvents, record: Record) -> None:
        """Add the events of a message; no event if a model would be sent nothing of the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFormat(Format):
    """A format of such exports.

    ``is_about``   whether a record is that of a conversation, and not a message
    ``id parent``  the keys of a message for its id and that of the message that it follows
    ``title newest``  the keys of a conversation for its title and the id of the newest message that
                      is shown
    """

    is_about: Callable[[Any], bool]
    id: str
    parent: str
    title: str
    newest: str
