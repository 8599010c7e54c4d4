"""The skeleton of a record: what lists, figures and titles need of it, read in one typed pass.

What a skeleton does not name is never made into Python objects. The same skeleton, with its words taken out, is what
stays of a redacted record. So no word of a user may be in it but those that ``blank`` takes out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar

import msgspec
from msgspec import Struct

from foldlog._formats.asked import asked_in
from foldlog._formats.record import time_in
from foldlog._formats.repeats import Repeats
from foldlog._formats.usage import ModelCall

UNNAMED_TOOL = "(not named)"
NO_DAY = "(no time)"
OF_ANOTHER_SHAPE = "?"
"""The kind of a record that is JSON, but of a shape that its program has not written so far."""

_any_json = msgspec.json.Decoder().decode


class SourceState(Struct):
    """What is known of a source without its events. It is stored beside the source, and counted on when that grows.

    ``conversation``  the name that its records give it; ``parent`` the session that started it
    ``title``         the title that the program gave; ``asked`` the first request, ``said`` the first words of a user
    ``first_at``, ``last_at``  the first and the last time in its records
    ``longest_wait_s``  the longest time from one record to the next that a model or a tool made; ``reached`` is the
                      time of the last record
    ``kinds``, ``days``, ``tools``, ``tool_errors``  how many parts are of a kind, a day, and of calls of a tool
    ``waiting``       the tools of calls without a result, by the ids of the calls
    ``replies``       what each reply of a model used, encoded, by a key of the format
    ``where``         the folder (``cwd``), the ``branch`` and the ``model`` of its program
    ``extra``         what only the format knows
    ``order``, ``newest``  what is needed to recognize a record that comes again: see ``Seen``
    """

    conversation: str | None = None
    parent: str | None = None
    title: str | None = None
    asked: str | None = None
    said: str | None = None
    first_at: str = ""
    last_at: str = ""
    longest_wait_s: float | None = None
    reached: str = ""
    compactions: int = 0
    results: int = 0
    errors: int = 0
    kinds: dict[str, int] = {}
    days: dict[str, int] = {}
    tools: dict[str, int] = {}
    tool_errors: dict[str, int] = {}
    waiting: dict[str, str] = {}
    replies: dict[str, bytes] = {}
    where: dict[str, str] = {}
    extra: dict[str, Any] = {}
    order: bytes = b""
    newest: str = ""


_encode = msgspec.msgpack.Encoder().encode
_decode_reply = msgspec.msgpack.Decoder().decode
_decode_state = msgspec.msgpack.Decoder(SourceState).decode


def _seconds_between(before: str, after: str) -> float:
    """Return the seconds from one time to another; 0 where one of them cannot be read."""
    try:
        return (datetime.fromisoformat(after) - datetime.fromisoformat(before)).total_seconds()
    except (TypeError, ValueError):
        return 0.0


class _PackedSet:
    """A set of numbers that are spread evenly, such as parts of hashes. Memory: 12 to 24 bytes for each, a quarter of
    what a ``set`` takes.
    """

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._table, self._count = array("q", bytes(8 * 256)), 0
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> bool:
        """Add a number. Return whether it is new."""
        number = number or 1  # 0 is a free place
        mask = len(self._table) - 1
        place = number & mask
        while there := self._table[place]:
            if there == number:
                return False
            place = (place + 1) & mask
        self._table[place] = number
        self._count += 1
        if 3 * self._count > 2 * len(self._table):
            self._grow()
        return True

    def _grow(self) -> None:
        before = self._table
        self._table, self._count = array("q", bytes(2 * 8 * len(before))), 0
        for number in before:
            if number:
                self.add(number)


class Seen:
    """Tells which records are earlier ones again, as ``Repeats`` does for decoders. Memory: some 30 bytes for each
    record; bytes stored: eight.

    A record is recognized by the first bytes of its hash. Where records have ids, one is the same if it is equal, and
    one without an id if it follows one that is the same.
    """

    def __init__(self, state: SourceState, *, have_ids: bool) -> None:
        self._keys, self._newest = array("q", state.order), state.newest
        self._known, self._was_again = _PackedSet(self._keys) if have_ids else None, False
        self._repeats = Repeats()
        for key in () if have_ids else self._keys:
            self._repeats.add(key, time_in(state.newest), is_own=False, is_timed=bool(state.newest))

    def is_again(self, hashed: bytes, source_id: str | None, at: str | None) -> bool:
        """Take notice of a record. Return whether it is an earlier one again."""
        key = int.from_bytes(hashed[:8], "little", signed=True)
        self._keys.append(key)
        if self._known is not None:
            is_known = not self._known.add(key)
            self._was_again = is_known and (source_id is not None or self._was_again)
            return self._was_again
        happened = time_in(at) if at else None
        self._repeats.add(key, happened, is_own=False, is_timed=happened is not None)
        if at and at > self._newest:
            self._newest = at
        return self._repeats.is_again

    def put_into(self, state: SourceState) -> None:
        """Keep what was seen in the state of a source."""
        state.order, state.newest = self._keys.tobytes(), self._newest


def located(where: Mapping[str, str], **new: Any) -> dict[str, str]:
    """Return where a source was written, after a record that says this: its first ``cwd``, else the last values."""
    texts = {name: value for name, value in new.items() if value and isinstance(value, str)}
    if "cwd" in where:
        texts.pop("cwd", None)
    return {**where, **texts} if texts else dict(where)


class Skeleton(ABC):
    """Reads the skeletons of one source, one record after the other, and counts them in ``state``.

    A format names the Struct of its records (``record``), says how one counts (``count``), what of it are words
    (``blank``), and which calls of models there were (``calls``).
    """

    record: ClassVar[type[Struct]]
    have_ids: ClassVar[bool] = True
    """Whether most records have ids of their own."""
    marks_errors: ClassVar[bool] = True
    """Whether records of its program say that a call failed."""

    def __init__(self, state: bytes = b"") -> None:
        self.state = _decode_state(state) if state else SourceState()
        self._seen = Seen(self.state, have_ids=self.have_ids)
        self._decode = msgspec.json.Decoder(self.record, strict=False).decode

    def add(self, record: bytes, hashed: bytes) -> None:
        """Count a record with this hash. Raises ``msgspec.DecodeError`` for one that is not JSON."""
        try:
            skeleton = self._decode(record)
        except msgspec.ValidationError:
            _any_json(record)  # raises for what is not JSON
            self._count_kind(OF_ANOTHER_SHAPE)
            return
        source_id, at = self.identity(skeleton)
        if self._seen.is_again(hashed, source_id, at):
            self.happened(at)
            self._count_kind("annotation")
        else:
            self.count(skeleton)

    @property
    def conversation(self) -> str | None:
        """The name that the records give their conversation."""
        return self.state.conversation

    @property
    def follows(self) -> tuple[str, int] | None:
        """The conversation from which the source goes on without holding it, and how many records of it come before."""
        return None

    def is_number(self, record: bytes, number: int) -> bool:
        """Return whether a record says that it has this number in its conversation; so it is where none says that."""
        return True

    def encoded(self) -> bytes:
        """Return the state as it is stored."""
        self._seen.put_into(self.state)
        return _encode(self.state)

    def left_of(self, record: bytes) -> bytes:
        """Return what stays of a redacted record."""
        try:
            skeleton = self._decode(record)
        except msgspec.DecodeError:
            return b"{}"
        self.blank(skeleton)
        return msgspec.json.encode(skeleton)

    # -- for a format -------------------------------------------------------------------------------------------------

    @abstractmethod
    def identity(self, skeleton: Any) -> tuple[str | None, str | None]:
        """Return the id of a record, and its time."""

    @abstractmethod
    def count(self, skeleton: Any) -> None:
        """Count the skeleton of the next record."""

    @abstractmethod
    def blank(self, skeleton: Any) -> None:
        """Take the words out of a skeleton: texts, titles, arguments. Ids, names of tools and figures stay."""

    @abstractmethod
    def calls(self) -> Iterator[ModelCall]:
        """Yield the calls of models that the records tell."""

    def happened(self, at: str | None, *, is_activity: bool = True, is_answer: bool = False) -> None:
        """Count the time of a record; ``is_activity``: somebody did something, and no compaction was written;
        ``is_answer``: a model or a tool did.
        """
        state, day = self.state, at[:10] if at else NO_DAY
        state.days[day] = state.days.get(day, 0) + 1
        if at and is_activity:
            if at > state.last_at:
                state.last_at = at
            if at < state.first_at or not state.first_at:
                state.first_at = at
            if state.reached and is_answer:
                waited = _seconds_between(state.reached, at)
                state.longest_wait_s = max(state.longest_wait_s or 0.0, waited)
            state.reached = at

    def part(self, kind: str) -> None:
        """Count a part of a record, by the word for the event that it becomes."""
        self._count_kind(kind)

    def called(self, call_id: str | None, tool: str | None) -> None:
        """Count a call of a tool."""
        name = tool or UNNAMED_TOOL
        self._count_kind("action")
        self.state.tools[name] = self.state.tools.get(name, 0) + 1
        self.state.waiting[call_id or ""] = name

    def answered(self, call_id: str | None, *, failed: bool) -> None:
        """Count the result of a call."""
        state = self.state
        tool = state.waiting.pop(call_id or "", UNNAMED_TOOL)
        state.results += 1
        self._count_kind("error" if failed else "observation")
        if failed:
            state.errors += 1
            state.tool_errors[tool] = state.tool_errors.get(tool, 0) + 1

    def asked(self, words: str) -> None:
        """Take the first request of a user, and the first words of one, for the title."""
        if words and self.state.asked is None:
            asked, said = asked_in(words)
            self.state.asked = asked or None
            self.state.said = self.state.said or said

    def replied(self, key: str, *used: Any) -> None:
        """Take what a reply of a model used, in the place of what was known of it."""
        self.state.replies[key] = _encode(used)

    def replies(self) -> Iterator[tuple[str, list[Any]]]:
        """Yield the key of each reply, and what it used."""
        for key, used in self.state.replies.items():
            yield key, _decode_reply(used)

    def located(self, cwd: str | None, branch: str | None = None, model: str | None = None) -> None:
        """Take the first folder, and the last branch and model."""
        self.state.where = located(self.state.where, cwd=cwd, branch=branch, model=model)

    def _count_kind(self, kind: str) -> None:
        kinds = self.state.kinds
        kinds[kind] = kinds.get(kind, 0) + 1
