"""Types that the formats share: records in their places, errors of records, and times of a
source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from math import nan
from typing import Any, NamedTuple, Protocol

import msgspec

from foldlog._usage import cost_of, count_of, usage_of
from foldlog.eventstore import Content, EventStoreError, Origin
from foldlog.eventstore.inside import EventTime, in_utc, parse_event_time

INCOMPLETE = "incomplete"
"""The attribute that says in words which records of the source of an import could not be read."""
UNREAD = "unread records"
"""The document with the number of readable records before each of them, and the id of the event
after it.
"""

_encode = msgspec.json.Encoder().encode


class NotAnEvent(EventStoreError, ValueError):
    """This record is not an event of the format: a finding at its place. The rest is imported."""


class ImportFinding(NamedTuple):
    """A part of a source that could not be imported: its place, and its problem. ``before``: how
    many records were read before a record that could not be read, and the id of the event after it.
    """

    place: str
    problem: str
    before: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


class Located(NamedTuple):
    """A JSON value, or the problem in its place, with the rest of the value where that can be read.
    ``source`` is a file in which it is on a line, or says the place. ``text`` is the value as it
    stands there, where that is known: at ``offset`` in the file, or in the text of its document.
    """

    line: int
    offset: int
    value: Any
    problem: str | None = None
    source: str = ""
    text: bytes = b""

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


def at(source: str, value: Any, problem: str | None = None) -> Located:
    """Return a value whose place ``source`` says, or the problem there."""
    return Located(0, 0, value, problem, source)


class RecordReader(Protocol):
    """The records of one history, to be iterated any number of times."""

    @property
    def size_bytes(self) -> int:
        """The approximate size of the records, in bytes."""

    def __iter__(self) -> Iterator[Located]: ...


_JSON_NAMES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
}


def described(value: Any) -> str:
    """Name the type of a JSON value for a message: ``an array``, ``null``."""
    name = _JSON_NAMES.get(type(value))
    if name is None:
        return "null" if value is None else f"a {type(value).__name__}"
    return f"an {name}" if name[0] in "ao" else f"a {name}"


def text_or_empty(value: Any) -> str:
    """Return a text of a record; an empty one where the record has none, or another value."""
    return value if type(value) is str else ""


def text_or_none(value: Any) -> str | None:
    """Return a text of a record; None where the record has none, or another value."""
    return value if type(value) is str else None


def time_in(text: Any) -> EventTime | None:
    """Return the time in a text, to compare with others: see ``in_utc``; None for another text or
    value.
    """
    at = parse_event_time(text)
    return None if at is None else in_utc(at)


def dict_or_empty(value: Any) -> dict[str, Any]:
    """Return an object of a record; an empty one where the record has none, or another value."""
    return value if type(value) is dict else {}


def member(*names: str) -> Callable[[Any], Any]:
    """Return a function that returns what ``within`` does of a record."""
    return lambda record: within(record, *names)


def has(**types: type) -> Callable[[Any], bool]:
    """Return a function that returns whether a value is an object whose members of these names have
    these types.
    """
    names = list(types)
    kinds = list(types.values())
    return lambda value: type(value) is dict and [type(value.get(name)) for name in names] == kinds


def within(record: Any, *names: str) -> Any:
    """Return what an object in a record has under these names, one inside the other; None where one
    is missing.
    """
    for name in names:
        record = record.get(name) if type(record) is dict else None
    return record


def strings_in(value: Any) -> list[str]:
    """Return the texts in an array of a record; none of another value."""
    if type(value) is list:
        return [each for each in value if type(each) is str]
    return []


def refused(expected: str, value: Any) -> NotAnEvent:
    """Return the error for a value that is not the ``expected`` record."""
    return NotAnEvent(
        f"expected {expected}, found"
        f" {'another object' if type(value) is dict else described(value)}"
    )


def joined_text(content: Content) -> str:
    """Return the texts of a content with a blank line between them, as Views join them, without its
    images.
    """
    if isinstance(content, str):
        return content
    texts = strings_in([part.get("text") for part in content])
    return "\n\n".join(filter(None, texts))


_SECONDS_LEAST = 10**8
_MILLISECONDS_LEAST = 10**11
"""The least numbers that are taken for such a time: of 1973, and of the year 5138 if they were
seconds.
"""

_NO_TIMES = datetime.fromtimestamp(0, UTC), datetime(1970, 1, 1)
"""What programs write where they have no time, with a zone and without."""
SourceTime = tuple[datetime | None, str | None]
"""The time of a record as an event has it: a timestamp if the source names its zone, else the
``origin.time``.
"""


def read_time(text: Any) -> SourceTime:
    """Return the time in a text of a source; none for another text, and for the first moment of
    1970, which stands for none.
    """
    time = parse_event_time(text)
    # comparing takes longer than reading
    if time is None or (time.year == 1970 and time in _NO_TIMES):
        return None, None
    if time.tzinfo is None:
        return None, text
    return time if time.tzinfo is UTC else time.astimezone(UTC), None


def dicts_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects in an array of a record; none of another value."""
    if type(value) is list:
        return [each for each in value if type(each) is dict]
    return []


def count_in(counts: Any, *names: str) -> float | None:
    """Return the sum of these counts of a record: no number where one cannot be read, None where it
    has none.
    """
    if type(counts) is dict:
        told = [counts[name] for name in names if counts.get(name) is not None]
    else:
        told = []
    known = [count_of(each) for each in told]
    if None in known:
        return nan
    return sum(filter(None, known)) if known else None


def usage_told(
    counts: Any,
    named: Mapping[str, str | Sequence[str]] | None = None,
    *,
    cost: Any = None,
    **told: Any,
) -> dict[str, Any]:
    """Return the usage of a response as ``meta`` has it, with its ``model``, ``cost``, ``reply``
    and ``calls`` as far as they are told; empty where neither a token nor a cost is. ``counts``:
    see ``usage_of``; with ``named``, each of ours is their count of this name, or the sum of those
    of these names, unless their total says that the first has the others in it. Give no cost of 0
    of a program that writes 0 for a model without a price.
    """
    if named is not None:
        names = {
            ours: (theirs,) if isinstance(theirs, str) else theirs for ours, theirs in named.items()
        }
        sums, firsts = (
            {ours: count_in(counts, *theirs[:n]) for ours, theirs in names.items()}
            for n in (None, 1)
        )
        *parts, reasoning = [
            firsts.get(f"{kind}_tokens") or 0 for kind in ("prompt", "completion", "reasoning")
        ]
        if sums.get("total_tokens") in (sum(parts), sum(parts) + reasoning):
            counts = firsts
        else:
            counts = sums
    usage = usage_of(counts)
    paid = cost_of(cost)
    known: dict[str, Any] = {
        name: each
        for name, each in told.items()
        if each and type(each) is (int if name == "calls" else str)
    }
    known |= {} if paid is None else {"cost": paid}
    if usage or paid is not None:
        return {**({"usage": usage} if usage else {}), **known}
    return {}


def time_at(number: Any, units_per_second: int = 1) -> datetime | None:
    """Return the time that a number of units after 1970 is, by default seconds; None for what is
    not such a number, and for 0, which stands for none.
    """
    try:
        is_time = type(number) in (int, float) and number != 0
        if is_time:
            return datetime.fromtimestamp(number / units_per_second, UTC)
        return None
    except (ValueError, OverflowError, OSError):
        return None


def time_told(record: Mapping[str, Any], *names: str) -> SourceTime:
    """Return the first time that a record has under these names: a text, or seconds or milliseconds
    after 1970. A smaller number is passed over: it may be the seconds of a run.
    """
    for value in map(record.get, names):
        if isinstance(value, int | float) and value >= _SECONDS_LEAST:
            told: SourceTime = time_at(value, 1000 if value >= _MILLISECONDS_LEAST else 1), None
        else:
            told = read_time(value)
        if told != (None, None):
            return told
    return None, None


def time_text(timestamp: datetime | None, origin: Origin | None) -> str | None:
    """Return the text that ``read_time`` most likely read: naive text unchanged, an aware time in
    UTC with a Z.
    """
    if timestamp is None:
        return None if origin is None else origin.time or None
    aware = timestamp if timestamp.tzinfo is UTC else timestamp.astimezone(UTC)
    text = _encode(aware)[1:-1].decode()  # what ``isoformat`` returns, in a tenth of the time
    microsecond = aware.microsecond
    if microsecond % 1000:
        return text
    if microsecond:
        return text[: -len("000Z")] + "Z"
    return text[: -len("Z")] + ".000Z"
