"""Find a text in everything that a store holds of a conversation: events, summaries, documents, records of imports.

A text is found as a search finds words, in capital and small letters, in each form of Unicode, with accents and
without, over any white space: an officer looks for a person's name. A pattern is found as it is written.

A pattern is a regular expression of limited cost: each of its repeats has an upper limit, and it can match at one place
in few ways. So a search takes time in proportion to the text, whatever the text is.
"""

from __future__ import annotations

import re
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from json import loads
from math import prod
from re import _parser  # type: ignore[attr-defined]  # the parser of the standard library
from typing import Any
from unicodedata import combining, normalize

from msgspec.structs import asdict

from foldlog._archive.stored import Records, beside_records, stored_records
from foldlog._compressed import ZSTD, unpacked
from foldlog._copies import path_in, stores_in
from foldlog._formats.files.found import files_below
from foldlog._open_files import open_database, parts_of
from foldlog._page.report import texts_of_page
from foldlog._values import named_in, values_in
from foldlog.condensers.prompts.rendering import unescaped
from foldlog.eventstore import (
    ConversationRow,
    DocumentChanges,
    Documents,
    Event,
    EventsNotMade,
    EventStoreError,
    InvalidArgument,
    Store,
    SystemMessage,
    VersionConflict,
    open_store,
)
from foldlog.eventstore.inside import as_url, can_be_redacted, has_content, newest_documents

_WAYS_MAX, _WIDTH_MAX = 1_000, 1_000
_CHUNK_BYTES, _OVERLAP_BYTES = 1 << 20, 1 << 16
_NOT_ASCII = re.compile(r"[^\x00-\x7f\ufffd]+")
_KEPT = ("id", "timestamp", "redacted")
"""Fields of an event in which no text is searched for."""
_NAMES = frozenset((*_KEPT, "origin", "meta", "name", "tool", "call_id", "response_id", "source"))
"""Fields whose texts say nothing of the content: a redaction keeps them, or they are in many records."""
_REPEATED_MIN = 8
"""Shorter texts say little, and are in many records. Records of the same call are found whatever their texts."""
_BASE64, _URL_SAFE = re.compile(r"[A-Za-z0-9+/_-]{12,}"), str.maketrans("+/", "-_")

Holds = Callable[[str], object]
"""Returns whether a text holds what is searched for."""


def text_or_pattern(text: str, *, is_pattern: bool) -> Holds:
    """Return what finds a text, or a pattern. Raises ``InvalidArgument`` for an empty one and for a pattern that may
    take long.
    """
    folded = _folded(text)
    if not (text if is_pattern else folded):
        raise InvalidArgument("the text to search for is empty")
    if not is_pattern:
        return lambda given: folded in _folded(given)
    try:
        parsed, compiled = _parser.parse(text), re.compile(text)
        ways, width = _ways(parsed), parsed.getwidth()[1]
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidArgument(f"the pattern cannot be read: {error}") from error
    if ways > _WAYS_MAX:
        raise InvalidArgument(
            f"the pattern can match one place in {'endless' if ways == _ENDLESS else f'{ways:,}'} ways, and "
            f"{_WAYS_MAX:,} are allowed; give each repeat an upper limit, such as {{1,80}} for +, and nest none"
        )
    if width > _WIDTH_MAX:
        raise InvalidArgument(f"the pattern can match {width:,} characters, and {_WIDTH_MAX:,} are allowed")
    if compiled.match(""):
        raise InvalidArgument("the pattern matches an empty text, so every event has it")
    return compiled.search


def _folded(text: str) -> str:
    """Return a text without its accents, in small letters, with one space for all white space in a row."""
    plain = text if text.isascii() else _NOT_ASCII.sub(_without_marks, text)
    return " ".join(plain.casefold().split())


def _without_marks(found: re.Match[str]) -> str:
    return "".join(each for each in normalize("NFKD", found[0]) if not combining(each))


_ENDLESS, _COUNTED_MAX = float("inf"), 10**9


def _ways(parsed: Any) -> float:
    """Return an upper limit of the ways in which a parsed pattern matches at one place."""
    ways = prod(_ways_of(str(kind), value) for kind, value in parsed)
    return ways if ways <= _COUNTED_MAX else _ENDLESS


def _ways_of(kind: str, value: Any) -> float:
    match kind:
        case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN" | "AT" | "CATEGORY":
            return 1
        case "SUBPATTERN":
            return _ways(value[-1])
        case "BRANCH":
            return sum(map(_ways, value[1]))
        case "MAX_REPEAT" | "MIN_REPEAT":
            least, most, repeated = value
            if most > _WAYS_MAX:
                return _ENDLESS
            inner = _ways(repeated)
            return _ENDLESS if inner > 1 and most > 64 else (most - least + 1) * inner**most
    return _ENDLESS  # references, looking around


def events_with(
    store: Store,
    conversation: str,
    holds: Holds | None,
    before: datetime | None = None,
    start: int = 0,
    *,
    redacted: bool = False,
) -> list[Event]:
    """Return the events from ``start`` on that hold a match, the later changes of the documents that they hold, and the
    first event of each record of an import that holds one. Without a pattern: all but system
    prompts and documents. With ``before``: only events that were recorded before it. Redacted events are left out,
    unless ``redacted``: then no record goes. Raises ``CorruptEvent`` for a block of records that cannot be unpacked.

    Cost: the events, and unpacking their records.
    """

    def events() -> Iterator[Event]:
        log = store.log(conversation, start)
        return (each.event for each in log if before is None or each.recorded_at < before)

    if holds is None:
        said = (e for e in events() if can_be_redacted(e) and not isinstance(e, SystemMessage | DocumentChanges))
        return [event for event in said if redacted or has_content(event)]
    changes = _Changes(store, conversation, holds, start)
    found: dict[int, Event] = {}
    formats: set[str] = set()
    for event in events():
        is_found = changes.hold(event) if isinstance(event, DocumentChanges) else _has(holds, _without_kept(event))
        if is_found and (redacted or has_content(event)):
            found[event.id] = event
        if event.origin is not None:
            formats.add(event.origin.format)
    if formats and not redacted:
        begins = store.conversation(conversation).parent_version or 0  # no event before it is redacted here
        for first, record in Records(store, conversation).all():
            if first >= begins and first not in found and _has(holds, record):
                found |= {each.id: each for each in store.events(conversation, first, first + 1) if has_content(each)}
    return [found[event_id] for event_id in sorted(found)]


def source_with(store: Store, conversation: str, holds: Holds) -> str | None:
    """Return the conversation whose source holds a match beside its records: this one, or of a fork its parent. None
    where there is no match.
    """
    name, texts = beside_records(store, conversation)
    return name if _has(holds, texts) else None


class _Changes:
    """The changes of a conversation's documents, in order, from an event on."""

    def __init__(self, store: Store, conversation: str, holds: Holds, start: int) -> None:
        self._holds, self._documents, self._conversation = holds, Documents(store), conversation
        self._matching: dict[str, int] = {}  # the events with newest values that hold a match
        if start:
            newest = store.query(conversation, partial(newest_documents, version=start))
            past = self._documents.all(conversation, version=start)
            self._matching = {name: newest[name] for name, value in past.items() if _has(holds, {name: value})}

    def hold(self, event: DocumentChanges) -> bool:
        """Return whether the next event holds a match, a value of it does, of which the event may hold a part, or a
        value is built on one that does: it cannot be built on one that is erased.
        """
        is_found = _has(self._holds, _without_kept(event)) or any(
            change.get("base") == self._matching.get(name, -1)
            or _has(self._holds, self._documents.get(self._conversation, name, version=event.id + 1))
            for name, change in event.changed.items()
        )
        self._matching |= dict.fromkeys(event.changed, event.id if is_found else -1)
        return is_found


def _content(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers that a redaction of the event takes, each after the name of its part."""
    values = {name: value for name, value in asdict(event).items() if name not in _NAMES}
    with suppress(ValueError, RecursionError):  # records hold the values in the text of a call, too
        values[""] = loads(str(values.get("arguments", "")))
    return named_in(values)


def texts_of(gone: Iterable[Event], stay: Iterable[Event]) -> set[tuple[str, str]]:
    """Return the texts and numbers of messages, calls and results, each with the name of its part, which events that
    ``stay`` do not hold: what these hold can be read as long as they have their content.
    """
    return {*_said(gone)}.difference(_said(stay))


def copies_of(texts: Collection[tuple[str, str]], events: Iterable[Event]) -> list[Event]:
    """Return which of these events hold one of the texts, a short one after its name: what a runtime keeps beside a
    conversation is not told by its events, and a short text is a common word.
    """
    long = [text for _, text in texts if len(text) >= _REPEATED_MIN]
    short = (map(re.escape, pair) for pair in texts if 2 < len(pair[1]) < _REPEATED_MIN)
    found = re.compile("|".join(rf"(?<!\w){name}\W{{1,9}}{text}(?![\w\s])" for name, text in short) or "(?!)").search

    def holds(text: str) -> bool:
        return any(each in text for each in long) or found(text) is not None

    return [each for each in events if texts and _has(holds, [*map(": ".join, _said([each]))])]


def _said(events: Iterable[Event]) -> Iterator[tuple[str, str]]:
    said = (each for each in events if can_be_redacted(each) and not isinstance(each, DocumentChanges))
    return (pair for each in said if has_content(each) for pair in _content(each))


def keep_documents(store: Store, conversation: str, gone: Collection[int], holds: Holds) -> None:
    """Append the newest values of documents that stand in events to be redacted, unless they hold a match themselves.
    Other writers may append at the same time.
    """
    while True:
        version = store.version(conversation)
        read = Documents(store).all(conversation, version=version)
        newest = store.query(conversation, partial(newest_documents, version=version))
        kept = {
            name: {"value": read[name]}
            for name, event_id in newest.items()
            if event_id in gone and not _has(holds, {name: read[name]})
        }
        if not kept:
            return
        others = {name: event_id for name, event_id in newest.items() if name not in kept}
        try:
            store.append(conversation, DocumentChanges(changed=kept, others=others), expected_version=version)
        except VersionConflict:
            continue
        return


def files_with(
    store: Store, holds: Holds, names: Sequence[str], sources: Sequence[str], *, with_store: bool = True
) -> Iterator[tuple[str, EventStoreError | None]]:
    """Yield the files that hold the bytes of a match: the store's own, those with these ``names``,
    and ``sources``, of a folder those below it. What is compressed or encrypted is not found, but for the texts of a
    page, and the events of a backup that can be opened without more keys than the environment's: for one that cannot be
    read, yield why. Cost: these files.
    """
    own: list[str] = []
    if store.path is not None and with_store:
        own = [store.path, f"{store.path}-wal"]
    below = (path for each in sources for path in files_below(each))
    paths = (*own, *map(path_in, names), *sources, *sorted(below))
    stores = {*stores_in(names)}
    for path in dict.fromkeys(paths):
        is_held = False
        with suppress(OSError, ValueError, zlib.error):  # one that cannot be read is named as what may hold it
            is_held = any(_has(holds, part) for part in _parts(path))
        try:
            if is_held or (path in stores and _store_has(path, holds)):
                yield path, None
        except EventStoreError as error:
            yield path, error


def is_json(path: str) -> bool:
    """Return whether a file, or each one in a folder, is JSON that can be read: a text in it is found there."""
    begins = list[str]()
    with suppress(OSError, UnicodeDecodeError):
        for each in files_below(path):
            with open(each, encoding="utf-8-sig") as file:
                begins.append(file.read(99).lstrip()[:1])
        return bool(begins) and {*begins} <= {"{", "["}
    return False


def _store_has(path: str, holds: Holds) -> bool:
    with open_store(f"{as_url(path)}?mode=ro") as store:
        rows = (row for row in store.iter_conversations() if row.erased_at is None)
        return any(_conversation_has(store, row, holds) for row in rows)


def _conversation_has(store: Store, row: ConversationRow, holds: Holds) -> bool:
    """Return whether the records of a conversation's source hold a match, or its events do: where none is made yet, all
    that it has are records.
    """
    if any(_has(holds, record) for record in stored_records(store, row.id)):
        return True
    try:
        return bool(events_with(store, row.id, holds, redacted=True))
    except EventsNotMade:
        if row.version:
            raise
        return False


def _parts(path: str) -> Iterator[bytes]:
    """Yield the bytes of a file in parts that overlap; of a page what it tells, also what it holds compressed."""
    is_page, before = False, b""
    if open_database(path) is None:
        with open(path, "rb") as file:
            for text in texts_of_page(file):
                is_page = True
                yield text
    is_packed = next(parts_of(path, len(ZSTD)), b"") == ZSTD
    for chunk in () if is_page else unpacked(path) if is_packed else parts_of(path, _CHUNK_BYTES):
        yield before + chunk
        before = (before + chunk)[-_OVERLAP_BYTES:]


def _without_kept(event: Event) -> list[Any]:
    return [value for name, value in asdict(event).items() if name not in _KEPT]


def _has(holds: Holds | None, value: Any) -> bool:
    return holds is not None and any(
        holds(text) or any(_has(holds, packed) for packed in _in_base64(text)) for text in _texts(value)
    )


def _in_base64(text: str) -> Iterator[str]:
    """Yield what stands in base64 in a text: attachments, and what runtimes serialize."""
    for found in _BASE64.findall(text):
        whole = found[: len(found) - (len(found) % 4 == 1)].translate(_URL_SAFE)
        yield urlsafe_b64decode(whole + "==").decode("utf-8", "replace")


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value, and the names of its parts."""
    for _, each in values_in(value):
        if isinstance(each, str):
            found: Iterable[str] = (each,)
        elif isinstance(each, dict):
            found = each
        elif isinstance(each, bytes):
            found = (each.decode("utf-8", "replace"),)
        elif isinstance(each, list | tuple) and len(each) > 1 and all(type(item) is str for item in each):
            found = ("\n".join(each),)  # the lines of a text
        else:
            found = (str(each),) if type(each) is int else ()
        for text in found:
            yield text
            if "\\" in text:  # JSON, whose strings may be JSON again
                yield (once := unescaped(text))
                yield unescaped(once)
