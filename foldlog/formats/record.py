"""Read texts, counts and times in a record. All formats use this module and its types for places
and errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from math import nan
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from foldlog.eventstore import Content, EventStoreError, Origin
from foldlog.eventstore.times import EventTime, in_utc, parse_event_time
from foldlog.eventstore.usage import cost_of, count_of, usage_of

Fields = dict[str, Any]
"""The fields of a JSON object, such as a record or a part of a message, or of an event."""
INCOMPLETE = "incomplete"
"""The attribute that describes the unreadable records of an imported source."""
UNREAD = "unread records"
"""The document with a row for each unreadable record: the number of readable records before the
record, and the id of the event after the record.
"""

FINDINGS_MAX = 1_000
"""The largest number of findings, and of unreadable records, that one import of a source lists."""

_encode = msgspec.json.Encoder().encode


def name_of_type(type: str) -> str:
    """Return the name of the annotation for a part of a reply or record whose type no decoder
    knows. Names such as ``foldlog.approval`` belong to foldlog: a worker must not record that a
    person approved its call by appending a reply with this type.
    """
    return f"other {type}" if type.startswith("foldlog.") else type


class NotAnEvent(EventStoreError, ValueError):
    """A record is not an event of the format. An import reports the record as a finding, and goes
    on with the next record.
    """


class ImportFinding(NamedTuple):
    """A part of a source that could not be imported: its ``place``, and the ``problem``. For an
    unreadable record, ``before`` is its row in the document ``UNREAD``.
    """

    place: str
    problem: str
    before: tuple[int, int] | None = None

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"


class Located(NamedTuple):
    """A JSON value with its place, or the problem at this place.

    ``source``   the name of the file that has the value in ``line``. Without a line, ``source`` is
                 a text that describes the place.
    ``value``    the value, or its readable part if there is a problem.
    ``text``     the bytes of the value, which begin at ``offset`` in the file or in the text of its
                 document. The text is empty if the bytes are unknown.
    ``waits``    whether the value cannot be read because it is on the last line of the file, which
                 the program has not finished.
    """

    line: int
    offset: int
    value: Any
    problem: str | None = None
    source: str = ""
    text: bytes = b""
    waits: bool = False

    @property
    def place(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


def at(source: str, value: Any, problem: str | None = None) -> Located:
    """Return a value without a line: ``source`` describes its place."""
    return Located(0, 0, value, problem, source)


RecordReader = Iterable[Located]
"""The records of one history. A reader can be iterated any number of times, so it is not an
iterator.
"""


class MarkedRecords(NamedTuple):
    """The records of a source after its first ``older`` records. A later import passes ``mark`` to
    ``read_newest``. The mark is empty if that import must read all records.
    """

    older: int
    records: Iterable[Located]
    mark: bytes


@runtime_checkable
class MarkedReader(Protocol):
    """A reader that can leave out older records which have not changed."""

    def __iter__(self) -> Iterator[Located]: ...

    def read_all(self) -> AbstractContextManager[MarkedRecords]:
        """Return all records, for a ``with`` block."""

    def read_newest(self, mark: bytes) -> MarkedRecords | None:
        """Return the newest records. Return None if an older record may have changed since ``mark``
        was made, or if there are many new records.
        """


_JSON_NAMES = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "number",
    float: "number",
}


def describe_type(value: Any) -> str:
    """Return the name of the type of a JSON value for a message: ``an array``, ``null``."""
    name = _JSON_NAMES.get(type(value))
    if name is None:
        return "null" if value is None else f"a {type(value).__name__}"
    return f"an {name}" if name[0] in "ao" else f"a {name}"


def text_or_empty(value: Any, *names: str) -> str:
    """Return the text at the path ``names`` in ``value``: see ``within``. Without ``names``, return
    ``value`` itself. Return an empty text if there is no text.
    """
    text = within(value, *names) if names else value
    return text if type(text) is str else ""


def text_or_none(value: Any, *names: str) -> str | None:
    """Do as ``text_or_empty``, but return None if there is no text."""
    text = within(value, *names) if names else value
    return text if type(text) is str else None


def time_in(text: Any) -> EventTime | None:
    """Return the time in a text, in UTC, so that times can be compared: see ``in_utc``. Return None
    for a value that is not a time.
    """
    at = parse_event_time(text)
    return None if at is None else in_utc(at)


def dict_or_empty(value: Any, *names: str) -> Fields:
    """Return the object at the path ``names`` in ``value``, or an empty one if there is none."""
    fields = within(value, *names)
    return fields if type(fields) is dict else {}


def member(*names: str) -> Callable[[Any], Any]:
    """Return a function that reads the value at the path ``names``: see ``within``."""
    return lambda record: within(record, *names)


def has(**types: type) -> Callable[[Any], bool]:
    """Return a function that checks whether a value is an object that has these members with these
    types.
    """
    names = list(types)
    kinds = list(types.values())
    return lambda value: type(value) is dict and [type(value.get(name)) for name in names] == kinds


def within(record: Any, *names: str) -> Any:
    """Return the value at the path ``names``, or None if a name of the path is missing."""
    for name in names:
        record = record.get(name) if type(record) is dict else None
    return record


def first_of(fields: Mapping[str, Any], *names: str) -> Any:
    """Return the value of the first name that is not null, or None. Programs name a field in
    several ways, and some write all names, with null for those that they do not use.
    """
    return next((value for name in names if (value := fields.get(name)) is not None), None)


def pick(fields: Mapping[str, Any], names: Iterable[str]) -> Fields:
    """Return the fields that have one of the names, in the order of ``names``."""
    return {name: fields[name] for name in names if name in fields}


def omit(fields: Mapping[str, Any], *names: str) -> Fields:
    """Return the fields that have none of the names."""
    return {name: value for name, value in fields.items() if name not in names}


def strings_in(value: Any, *names: str) -> list[str]:
    """Return the strings in an array. Return an empty list for a value that is not an array."""
    items = within(value, *names)
    if type(items) is list:
        return [item for item in items if type(item) is str]
    return []


def refuse(expected: str, value: Any) -> NotAnEvent:
    """Return the error about a value that is not what was expected."""
    found = "another object" if type(value) is dict else describe_type(value)
    return NotAnEvent(f"expected {expected}, found {found}")


def joined_text(content: Content) -> str:
    """Return the texts of content without its images, separated by blank lines as in Views."""
    if isinstance(content, str):
        return content
    texts = strings_in([part.get("text") for part in content])
    return "\n\n".join(filter(None, texts))


_SECONDS_LEAST = 10**8
_MILLISECONDS_LEAST = 10**11
"""A number from ``_SECONDS_LEAST`` up to ``_MILLISECONDS_LEAST`` is a time in seconds, and a larger
number is a time in milliseconds. As seconds and as milliseconds after 1970, the two limits are
times in 1973. As seconds, ``_MILLISECONDS_LEAST`` would be in the year 5138, and no record has such
a time.
"""

_NO_TIMES = datetime.fromtimestamp(0, UTC), datetime(1970, 1, 1)
"""Times that programs write for a missing time, with or without a zone."""
SourceTime = tuple[datetime | None, str | None]
"""The time of a record, as an event stores it: first a time with a zone, or None; then a time
without a zone as a text for ``origin.time``, or None.
"""


TimeAndId = tuple[SourceTime, Any]
"""The time of a record, and its id or None."""


def time_and_id_of(
    record: Any, time: Callable[[Any], SourceTime] | None, source_id: Callable[[Any], Any]
) -> TimeAndId:
    """Return the time and the id of a record, as a format reads them."""
    record_id = source_id(record)
    return (None, None) if time is None else time(record), record_id


def read_time(text: Any) -> SourceTime:
    """Return the time in a text of a source. Return ``(None, None)`` for a text that is not a time.
    The result is also ``(None, None)`` for the beginning of 1970, because programs write this time
    for a missing one.
    """
    time = parse_event_time(text)
    # a comparison of two times takes longer than the parsing of a time, so compare the year first
    if time is None or (time.year == 1970 and time in _NO_TIMES):
        return None, None
    if time.tzinfo is None:
        return None, text
    return time if time.tzinfo is UTC else time.astimezone(UTC), None


def read_timestamp(record: Any) -> SourceTime:
    """Return the time in the field ``timestamp`` of a record."""
    return read_time(within(record, "timestamp"))


def dicts_in(value: Any, *names: str) -> list[Fields]:
    """Return the objects in an array. Return an empty list for a value that is not an array."""
    items = within(value, *names)
    if type(items) is list:
        return [item for item in items if type(item) is dict]
    return []


def count_in(counts: Any, *names: str) -> float | None:
    """Return the sum of the counts under ``names``. Return NaN if a value is not a count. Return
    None if there are no counts.
    """
    if type(counts) is not dict:
        return None
    values = [counts[name] for name in names if counts.get(name) is not None]
    numbers = [count_of(value) for value in values]
    if None in numbers:
        return nan
    return sum(filter(None, numbers)) if numbers else None


def reports_error(response: Any) -> bool:
    """Return whether a function's response, in the form of Gemini's API, is an error. The API has
    the whole response of a failed call under ``error``, also if its text is empty. A tool's own
    response may have a field ``error`` that is null, false or empty if the tool succeeded.
    """
    if type(response) is not dict:
        return False
    return bool(response.get("error")) or response == {"error": ""}


def usage_meta(
    counts: Any,
    named: Mapping[str, str | Sequence[str]] | None = None,
    *,
    cost: Any = None,
    **others: Any,
) -> Fields:
    """Return the ``meta`` of a response, with its usage and its ``cost`` in US dollars. ``others``
    are further fields of ``meta``, such as ``model``, ``reply`` and ``calls``. Return an empty dict
    for a response without tokens and without a cost. Some programs write the cost 0 if they know no
    price: do not pass such a cost.

    ``counts`` are the tokens: see ``usage_of``. ``named`` maps foldlog's name of a count to one or
    several names in the source. The counts of several names are added up.
    """
    if named is not None and type(counts) is dict:
        counts = _counts_by_our_names(counts, named)
    usage = usage_of(counts)
    cost_usd = cost_of(cost)
    if not usage and cost_usd is None:
        return {}
    meta: Fields = {"usage": usage} if usage else {}
    meta |= {
        name: value
        for name, value in others.items()
        if value and type(value) is (int if name == "calls" else str)
    }
    if cost_usd is not None:
        meta["cost"] = cost_usd
    return meta


def _counts_by_our_names(
    counts: Fields, named: Mapping[str, str | Sequence[str]]
) -> dict[str, float | None]:
    """Return a dict from foldlog's name of a count to its value. If a name has several counts in
    the source, they are added up. But if the source also has a total, and the total shows that the
    first count includes the others, only the first count is used.
    """
    sums = dict[str, float | None]()
    firsts = dict[str, float | None]()
    for name, source_names in named.items():
        if isinstance(source_names, str):
            source_names = (source_names,)
        sums[name] = count_in(counts, *source_names)
        firsts[name] = count_in(counts, *source_names[:1])
    text_tokens = (firsts.get("prompt_tokens") or 0) + (firsts.get("completion_tokens") or 0)
    with_reasoning = text_tokens + (firsts.get("reasoning_tokens") or 0)
    is_contained = sums.get("total_tokens") in (text_tokens, with_reasoning)
    return firsts if is_contained else sums


def time_at(number: Any, units_per_second: int = 1) -> datetime | None:
    """Return the time that is ``number`` units after the beginning of 1970. Return None for a value
    that is not a number. Return None for 0, because programs write 0 for a missing time.
    """
    if type(number) not in (int, float) or number == 0:
        return None
    try:
        return datetime.fromtimestamp(number / units_per_second, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def time_under(record: Mapping[str, Any], *names: str) -> SourceTime:
    """Return the first time under one of the keys ``names``. The time is a text, or a number of
    seconds or milliseconds after 1970. A small number is skipped, because it may be the duration of
    a run.
    """
    for value in pick(record, names).values():
        time: SourceTime
        if isinstance(value, int | float) and value >= _SECONDS_LEAST:
            units_per_second = 1000 if value >= _MILLISECONDS_LEAST else 1
            time = time_at(value, units_per_second), None
        else:
            time = read_time(value)
        if time != (None, None):
            return time
    return None, None


def time_text(timestamp: datetime | None, origin: Origin | None) -> str | None:
    """Return the time of an event as a text that ``read_time`` can read. A time without a zone
    keeps its text. A time with a zone is written in UTC with a Z.
    """
    if timestamp is None:
        return None if origin is None else origin.time or None
    aware = timestamp if timestamp.tzinfo is UTC else timestamp.astimezone(UTC)
    text = _encode(aware)[1:-1].decode()  # ten times as fast as ``isoformat``
    microsecond = aware.microsecond
    if microsecond % 1000:
        return text
    if microsecond:
        return text[: -len("000Z")] + "Z"
    return text[: -len("Z")] + ".000Z"
