"""The skeleton of a record: the fields that lists, figures and titles need, read in one typed pass.

Fields outside of a skeleton never become Python objects. After a redaction, only the skeleton of a
record stays, without its texts. ``blank`` must therefore remove every text of a user from the
skeleton.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache, lru_cache
from typing import Any, ClassVar, Final

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from foldlog.eventstore.codec_json import whole_pairs
from foldlog.eventstore.sources.blocks import HASH_BYTES, Block, each_hash
from foldlog.formats.hash_set import HashSet, index_of
from foldlog.formats.json_text import bytes_of, in_utf8, parse
from foldlog.formats.record import Fields, read_time
from foldlog.formats.summed_calls import NO_DAY, CountedReplies, ReplyCounter
from foldlog.formats.user_requests import request_in
from foldlog.projections.units import LaterReply

UNNAMED_TOOL = "(not named)"
"""The name under which calls without the name of a tool are counted."""
_KEY_BYTES: Final = 5
"""The number of bytes of a record's hash by which records without ids are compared."""
_SHOWN_MAX: Final = 300
"""The maximum number of characters of the first request, and of the first text of a user, in a
state.
"""
ENDS_WITH = {"agent": "answer", "user": "request"}
"""Maps the author of the last message to the state of the conversation."""
LAST_TOOLS = ("finish",)
"""Tools whose call answers the user and ends a run, as in OpenHands."""
_ERROR_MAX = 200
"""The number of characters of the first error."""
OF_ANOTHER_SHAPE = "?"
"""The kind of a record that does not fit the format's record class."""
_CODE: Final = 2
"""The version of the code that counts records, of all formats. Raise it, and ``CODE`` of the stored
figures, with each change of what a skeleton counts.
"""


class SourceState(Struct):
    """The counts of a source, made without making its events. The counts are stored with the
    source, and continued when the source grows.

    ``code``            the version of the code that counted, 0 for code that stored no version
    ``conversation``    the name of the conversation in the records
    ``parent``          the session that started this session
    ``title``           the title that the program gave to the session
    ``asked``           the first request of a user
    ``said``            the first text of a user, for a source without a request
    ``first_at``        the earliest time in the records
    ``last_at``         the latest time in the records
    ``longest_wait_s``  the longest wait for a model or a tool, in seconds
    ``reached``         the time of the last record with an activity of the agent or the user
    ``compactions``     the number of compactions
    ``results``         the number of results of calls
    ``errors``          the number of results that are errors
    ``kinds``           the number of parts by kind
    ``days``            the number of records by day
    ``tools``           the number of calls by tool
    ``tool_errors``     the number of failed calls by tool
    ``waiting``         maps the id of a call without a result to its tool
    ``later``, ``left``  the ids in ``waiting`` that a later reply left behind: see ``LaterReply``
    ``last``            the kind of the last part: see ``Counts.state``
    ``first_error``     the beginning of the first error
    ``first_error_at``  the time of the first error
    ``replies``         the usage of the replies of models
    ``where``           the folder (``cwd``), the ``branch`` and the ``model`` of the program
    ``extra``           fields that only the format uses
    ``records``         the number of counted records

    Fields for ``Seen``, the class that recognizes repeated records:

    ``newest``    the latest time of a record
    ``again``     the number of the record that the last record repeats, counted from 1; 0 after a
                  new record
    ``is_timed``  whether the records have times: the first record decides
    """

    code: int = 0
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
    later: LaterReply = field(default_factory=LaterReply)
    left: list[str] = []
    last: str | None = None
    first_error: str | None = None
    first_error_at: str = ""
    replies: CountedReplies = field(default_factory=CountedReplies)
    where: dict[str, str] = {}
    extra: Fields = {}
    records: int = 0
    newest: str = ""
    again: int = 0
    is_timed: bool = False


class _Titles(Struct):
    """The fields of ``SourceState`` from which a title comes."""

    title: str | None = None
    asked: str | None = None
    said: str | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode_titles = msgspec.msgpack.Decoder(_Titles).decode
_decode_state = msgspec.msgpack.Decoder(SourceState).decode


def _state_from(stored: bytes) -> SourceState:
    """Return the state to count on from. If code of another version counted ``stored``, return the
    state before the first record.
    """
    if stored:
        state = _decode_state(stored)
        if state.code == _CODE:
            return state
    return SourceState(code=_CODE)


@cache
def _decoder_of(record: type[Struct]) -> Callable[[bytes], Any]:
    """Return the function that decodes the records of a format, which all of its sources use."""
    return msgspec.json.Decoder(record, strict=False).decode


def _in_utc(at: str) -> str | None:
    """Return the text of a time in UTC. A time with a Z, or without a zone, is returned unchanged.
    Return None for a text that is not a time: see ``read_time``.
    """
    time, without_zone = read_time(at)
    if time is None:
        return without_zone
    return at if at.endswith("Z") else time.isoformat()


_TO_THE_MINUTE: Final = len("2026-01-01T00:00")
_parse_time = lru_cache(maxsize=2)(datetime.fromisoformat)
"""Caches the time of the last record, from which the wait for the next record is measured."""


def _seconds_between(before: str, after: str) -> float:
    """Return the seconds from ``before`` to ``after``, or 0 if one of the texts is not a time."""
    try:
        return (_parse_time(after) - _parse_time(before)).total_seconds()
    except (TypeError, ValueError):
        return 0.0


def state_after(tool: str | None, *, failed: bool, refused: bool = False) -> str:
    """Return the state of a conversation whose last event is a result: see ``Counts.state``."""
    if refused:
        return "refused"
    if failed:
        return "error"
    return "answer" if tool in LAST_TOOLS else "result"


def state_with_calls(waiting: Iterable[str], left: Sequence[str], last: str | None) -> str | None:
    """Return the state of a conversation with calls that have no result. ``left`` are the calls
    for which nothing waits.
    """
    return "open_call" if any(call_id not in left for call_id in waiting) else last


def beginning_of(text: str) -> str:
    """Return the beginning of the text of an error, on one line."""
    return " ".join(text[: 10 * _ERROR_MAX].split())[:_ERROR_MAX]


class Seen:
    """Recognizes records that repeat an earlier record, by the rules of ``Repeats``. A record takes
    five or six bytes of memory.

    Records are compared by the first bytes of their hashes. An equal record is not always a
    repetition: it may be a message that was sent again. If most records have ids, an equal record
    with an id is a repetition. An equal record without an id is a repetition only if the record
    before it is a repetition.

    If the records have no ids, a repetition begins with the first record, or with a record that is
    older than the newest record. A repetition goes on while the records come in their earlier
    order.
    """

    def __init__(self, state: SourceState, hashes: bytes, *, have_ids: bool) -> None:
        """Continue from ``state``. ``hashes`` has the hashes of the records that ``state`` has
        counted.
        """
        self._state = state
        self._last_was_again = False
        self._known_hashes = HashSet() if have_ids else None
        self._order = bytearray()
        """The first bytes of the hashes of all records, in order, if the records have no ids."""
        for record_hash in each_hash(hashes[: HASH_BYTES * state.records]):
            if self._known_hashes is not None:
                self._known_hashes.add(record_hash)
            else:
                self._order += record_hash[:_KEY_BYTES]

    def is_again(self, record_hash: bytes, source_id: str | None, at: str | None) -> bool:
        """Count a record. Return whether the record repeats an earlier record."""
        state = self._state
        state.records += 1
        if self._known_hashes is not None:
            is_equal = not self._known_hashes.add(record_hash)
            self._last_was_again = is_equal and (source_id is not None or self._last_was_again)
            return self._last_was_again
        key = record_hash[:_KEY_BYTES]
        if self._order:
            state.again = self._repeated_place(key, at)
        else:
            # a program writes times into all records or into none, so the first record decides
            state.is_timed = bool(at)
        self._order += key
        if at and at > state.newest:
            state.newest = at
        return state.is_timed and state.again > 0

    def _repeated_place(self, key: bytes, at: str | None) -> int:
        """Return the number of the record that the next record repeats, counted from 1. Return 0
        for a new record.
        """
        # the expected record comes after the last repeated record; if the last record was new, the
        # expected record is the first record
        expected = self._state.again
        start = _KEY_BYTES * expected
        if self._order[start : start + _KEY_BYTES] == key:
            return expected + 1
        if self._state.is_timed and at and at < self._state.newest:
            return index_of(key, self._order) + 1
        return 1 if self._order.startswith(key) else 0


def with_place(where: Mapping[str, str], **values: Any) -> dict[str, str]:
    """Return ``where`` with the values of a record. A ``cwd`` that ``where`` already has stays."""
    texts = {name: value for name, value in values.items() if value and isinstance(value, str)}
    if "cwd" in where:
        texts.pop("cwd", None)
    return {**where, **texts} if texts else dict(where)


def title_in(sums: bytes) -> str | None:
    """Return the title in the stored sums of a source. The cost does not depend on the number of
    its replies.
    """
    titles = _decode_titles(sums)
    return titles.title or titles.asked or titles.said


def changes_titles(sums: bytes, new: Skeleton) -> bool:
    """Return whether the records in ``new`` may change a title in the ``sums`` of the records
    before them.
    """
    before = _decode_titles(sums) if sums else _Titles()
    after = new.state
    is_asked = after.asked is not None and before.asked is None
    is_said = after.said is not None and before.said is None
    # The session whose title the record is may be known by an earlier record.
    is_awaited = bool(after.extra.get("awaiting"))
    return after.title is not None or is_asked or is_said or is_awaited


class Skeleton(ABC):
    """Reads the skeletons of one source, one record after another, and counts the records in
    ``state``.

    A format defines the Struct of its records in ``record``. ``count`` counts a record. ``blank``
    removes the texts from a record.
    """

    record: ClassVar[type[Struct]]
    have_ids: ClassVar[bool] = True
    """Whether most records have an id."""

    def __init__(self, state: bytes = b"", hashes: bytes = b"") -> None:
        """Continue from a stored state, and begin at record 0 if code of another version stored it:
        ``self.state.records`` is the next record to count. ``hashes`` are the hashes of the records
        that ``state`` has counted.
        """
        self.state = _state_from(state)
        self.replies = ReplyCounter(self.state.replies)
        self.reply: str | None = None
        """The id of the reply that the record is of, if a format has such ids."""
        self.is_shown = True
        """Whether the View shows the messages of the record."""
        self._text = b""
        """The record that is counted."""
        self._seen = Seen(self.state, hashes, have_ids=self.have_ids)
        self._decode = _decoder_of(self.record)
        self.on_another_shape: Callable[[bytes], None] = lambda record: None
        """A function that is called with each record that does not fit the record class."""
        self.on_finding: Callable[[str], None] = lambda problem: None
        """A function that is called with each problem of the record that is counted."""
        self.set_up()

    @abstractmethod
    def set_up(self) -> None:
        """Read the part of ``state`` that only this format has."""

    def add(self, record: bytes, record_hash: bytes) -> None:
        """Count a record, in UTF-8, with the hash ``record_hash``. Raises ``UnreadableJson`` for a
        record that is not JSON.
        """
        skeleton: Any
        text = record
        try:
            skeleton = self._decode(record)
        except msgspec.DecodeError:
            skeleton, text = self._read_leniently(record)
        if skeleton is None or not self.is_record(skeleton):
            self._seen.is_again(record_hash, None, None)
            self._count_kind(OF_ANOTHER_SHAPE)
            self.on_another_shape(text)
            return
        source_id, at = self.identity(skeleton)
        if self._seen.is_again(record_hash, source_id, at):
            self.count_time(at)
            self._count_kind("annotation")
        else:
            self._text = text
            self.count(skeleton)
            if self.state.errors and self.state.first_error is None:
                self.state.first_error = beginning_of(self.error_in(text))
                self.state.first_error_at = at or ""

    def check(self, record: bytes, record_hash: bytes) -> None:
        """Raise the error that ``add`` would raise."""
        self._read(record)

    def _read(self, record: bytes) -> tuple[Any, bytes]:
        """Return the skeleton of a record, and the record as strict JSON. The skeleton is None if
        the record has another shape.
        """
        try:
            return self._decode(record), record
        except msgspec.DecodeError:
            return self._read_leniently(record)

    def _read_leniently(self, record: bytes) -> tuple[Any, bytes]:
        """Return as ``_read`` does for a record that is not strict JSON, or has another shape."""
        text = bytes_of(whole_pairs(parse(record), "replace"))
        try:
            return self._decode(text), text
        except msgspec.DecodeError:
            return None, text

    @property
    def conversation(self) -> str | None:
        """The name of the conversation in the records so far."""
        return self.state.conversation

    @property
    def where(self) -> dict[str, str]:
        """The folder, the branch and the model of the program, as far as records name them."""
        return self.state.where

    @property
    def follows(self) -> tuple[str, int] | None:
        """The conversation that this source continues, and how many records of that conversation
        come before this source. None if the source continues no conversation.
        """
        return None

    @property
    def handed_over_in(self) -> str | None:
        """The session whose records this source repeats at its beginning, if foldlog handed them
        over.
        """
        return None

    def is_number(self, record: bytes, number: int) -> bool:
        """Return whether the record has this ``number``. Return True if the records of the format
        have no numbers.
        """
        return True

    def encode(self) -> bytes:
        """Return the state to store, from which a later ``Skeleton`` continues."""
        return _encode(replace(self.state, replies=self.replies.state()))

    def without_texts(self, record: bytes) -> bytes:
        """Return what the store keeps of a record after a redaction: its skeleton without texts."""
        skeleton, _ = self._read(in_utf8(record))
        if skeleton is None:
            return b"{}"
        self.blank(skeleton)
        return msgspec.json.encode(skeleton)

    # -- for a format ------------------------------------------------------------------------------

    def is_record(self, skeleton: Any) -> bool:
        """Return whether a skeleton has the fields that each record of the format has."""
        return True

    @abstractmethod
    def identity(self, skeleton: Any) -> tuple[str | None, str | None]:
        """Return the id and the time of a record."""

    @abstractmethod
    def count(self, skeleton: Any) -> None:
        """Count the skeleton of the next record."""

    @abstractmethod
    def blank(self, skeleton: Any) -> None:
        """Remove the texts, titles and arguments from a skeleton. Ids, names of tools and figures
        stay.
        """

    @abstractmethod
    def error_in(self, record: bytes) -> str:
        """Return the text of the first failed result in a record."""

    def count_time(
        self, at: str | None, *, is_activity: bool = True, is_answer: bool = False
    ) -> None:
        """Count the time of a record. ``is_activity`` is False for a record in which neither an
        agent nor a user did anything, such as a compaction. ``is_answer`` is True for a record of a
        model or a tool.
        """
        state = self.state
        day = at[:10] if at else NO_DAY
        count = state.days.get(day)
        # Most times are in UTC and of a known day, so most of them need not be parsed.
        if at and (count is None or not at.endswith("Z")):
            at = _in_utc(at)
            day = at[:10] if at else NO_DAY
            count = state.days.get(day)
        state.days[day] = (count or 0) + 1
        if at and is_activity:
            if at > state.last_at:
                state.last_at = at
            if at < state.first_at or not state.first_at:
                state.first_at = at
            if state.reached and is_answer:
                self._count_wait(at)
            state.reached = at

    def _count_wait(self, at: str) -> None:
        """Note the wait from the last activity to ``at``, if it is the longest so far."""
        state = self.state
        longest_s = state.longest_wait_s
        is_short = at[:_TO_THE_MINUTE] == state.reached[:_TO_THE_MINUTE]
        # Most waits end in the minute in which they begin, so most times need not be parsed.
        if longest_s is None or longest_s < 60 or not is_short:
            waited_s = _seconds_between(state.reached, at)
            state.longest_wait_s = max(longest_s or 0.0, waited_s)

    def count_part(self, kind: str, *, is_blank: bool = False) -> None:
        """Count a part of a record that is neither a call nor a result, by its kind. A message that
        ``is_blank`` is not shown.
        """
        self._count_kind(kind)
        if is_blank or not self.is_shown:
            return
        self.state.last = ENDS_WITH.get(kind, self.state.last)
        if kind == "agent":
            self._note_reply(is_call=False)
        elif kind in ("user", "environment"):
            self._note_message()

    def count_call(self, call_id: str | None, tool: str | None) -> None:
        """Count a call."""
        name = tool or UNNAMED_TOOL
        self._count_kind("action")
        self.state.tools[name] = self.state.tools.get(name, 0) + 1
        self._note_reply(is_call=True)
        self.state.waiting[call_id or ""] = name
        self._wait_again(call_id or "")

    def count_result(self, call_id: str | None, *, failed: bool, refused: bool = False) -> None:
        """Count a result. A result that is ``refused`` by a person is no error of the tool."""
        state = self.state
        tool = state.waiting.pop(call_id or "", UNNAMED_TOOL)
        self._wait_again(call_id or "")
        self._note_message()
        state.results += 1
        state.last = state_after(tool, failed=failed, refused=refused)
        kind = "error" if failed else "observation"
        self._count_kind("refused" if refused else kind)
        if failed and not refused:
            state.errors += 1
            state.tool_errors[tool] = state.tool_errors.get(tool, 0) + 1

    def leave_calls(self) -> None:
        """Note that nothing waits for the open calls, because the View no longer shows them."""
        self.state.left = [*self.state.waiting]

    def _note_reply(self, *, is_call: bool) -> None:
        if self.is_shown and self.state.later.note_reply(self.reply, is_call=is_call):
            self.state.left = [*self.state.waiting]

    def _note_message(self) -> None:
        if self.is_shown:
            self.state.later.is_due = True

    def _wait_again(self, call_id: str) -> None:
        if call_id in self.state.left:
            self.state.left.remove(call_id)

    def note_request(self, words: str) -> None:
        """Store the request that a user's message contains. A title can be made from it. Only the
        first request is stored.
        """
        if words and self.state.asked is None:
            request, whole_text = request_in(words)
            self.state.asked = request[:_SHOWN_MAX] or None
            self.state.said = self.state.said or whole_text[:_SHOWN_MAX]

    def note_place(
        self, cwd: str | None, branch: str | None = None, model: str | None = None
    ) -> None:
        """Store the folder, the branch and the model of a record, as far as the record names them.
        The folder of an earlier record stays.
        """
        where = self.state.where
        is_known = (cwd is None or "cwd" in where) and branch in (None, where.get("branch"))
        # most records repeat the values, so a new dictionary is rarely needed
        if not is_known or model not in (None, where.get("model")):
            self.state.where = with_place(where, cwd=cwd, branch=branch, model=model)

    def _count_kind(self, kind: str) -> None:
        kinds = self.state.kinds
        kinds[kind] = kinds.get(kind, 0) + 1


def count_block(counter: Skeleton, block: Block) -> None:
    """Count the records of a block."""
    for record, record_hash in zip(block.records(), each_hash(block.hashes), strict=True):
        counter.add(in_utf8(record), record_hash)
