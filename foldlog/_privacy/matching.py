"""Find a text in everything that a store contains about a conversation: events, summaries,
documents, attributes, imported records and streams, such as a reply that a model is writing.

The text may be a person's name. So case, accents, Unicode forms, white space and invisible hyphens
do not matter, and a match may span several parts of a message. Encoded text, such as base64, is not
searched.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from json import loads
from typing import Any
from unicodedata import category, combining, normalize

from msgspec.structs import asdict

from foldlog._base.json_types import JsonObject
from foldlog._base.values import named_in, values_in
from foldlog._reports.records.stored import Records, beside_records
from foldlog.condensers.prompts.rendering import unescape
from foldlog.eventstore import (
    Annotation,
    DocumentChanges,
    Documents,
    Event,
    InvalidArgument,
    ReadTransaction,
    Store,
    SystemMessage,
    VersionConflict,
)
from foldlog.eventstore.arguments import NUMBER_MAX
from foldlog.eventstore.documents.values import newest_documents, newest_values
from foldlog.eventstore.log import streams
from foldlog.eventstore.log.appending import Seen
from foldlog.eventstore.log.redacted import can_be_redacted, has_content
from foldlog.eventstore.recorders.types import Chunk, Stream
from foldlog.formats.event_fields import REDACTED

_NOT_ASCII = re.compile(r"[^\x00-\x7f\ufffd]+")
_NOT_SEARCHED = ("id", "timestamp", "redacted")
"""Fields of an event that are not searched."""
_NAMES = frozenset(
    (*_NOT_SEARCHED, "origin", "meta", "name", "tool", "call_id", "response_id", "source")
)
"""Fields that the search for copies of an event ignores, because a redaction does not remove them,
or because many events have the same text in them.
"""
_REPEATED_MIN = 8
"""The minimum length, in characters, of a text that alone identifies a copy. Below this length, an
event may contain the same text by chance.
"""

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,}")
_URL_SAFE = str.maketrans("+/", "-_")

Holds = Callable[[str], object]
"""A function that returns whether a text contains a match."""


def holding(text: str) -> Holds:
    """Return a function that finds ``text``. Raises ``InvalidArgument`` for an empty text."""
    folded = _fold(text)
    if not folded:
        raise InvalidArgument("the text to search for is empty; give the text to redact")
    return lambda searched: folded in _fold(searched)


def _fold(text: str) -> str:
    """Return a text in lower case, without accents and formatting characters, and with single
    spaces.
    """
    plain = text if text.isascii() else _NOT_ASCII.sub(_without_marks, text)
    return " ".join(plain.casefold().split())


def _without_marks(matched: re.Match[str]) -> str:
    """Return the matched text without its accents and formatting characters."""
    return "".join(
        character
        for character in normalize("NFKD", matched[0])
        if not combining(character) and category(character) != "Cf"
    )


def events_with(
    store: Store,
    conversation: str,
    holds: Holds | None,
    before: datetime | None = None,
    start: int = 0,
    *,
    redacted: bool = False,
) -> list[Event]:
    """Return the events from ``start`` on that contain a match. If ``holds`` is None, return all
    events except system prompts and documents.

    The match may be in the event itself, in its document, or in its source record. For a match in a
    source record, only the first event of the record is returned. With ``before``, return only
    events that were recorded before this time. With ``redacted``, redacted events are returned too,
    and records are not searched. Raises ``CorruptEvent`` if a block of records cannot be unpacked.

    Cost: the events are read, and their records are unpacked. If the conversation was first
    imported after ``before``, nothing is read.
    """
    row = store.conversation(conversation, as_stored=True)
    if before is not None and row.unmade and row.version == 0 and row.created_at >= before:
        return []

    def events() -> Iterator[Event]:
        log = store.log(conversation, start)
        return (logged.event for logged in log if before is None or logged.recorded_at < before)

    if holds is None:
        redactable = (
            event
            for event in events()
            if can_be_redacted(event) and not isinstance(event, SystemMessage | DocumentChanges)
        )
        return [event for event in redactable if redacted or has_content(event)]
    changes = _Changes(store, conversation, holds, start)
    matching: dict[int, Event] = {}
    formats: set[str] = set()
    searched_ids = set[int]()
    for event in events():
        searched_ids.add(event.id)
        if isinstance(event, DocumentChanges):
            is_match = changes.hold(event)
        else:
            is_match = _holds_any(holds, _searched_values(event))
        if is_match and (redacted or has_content(event)):
            matching[event.id] = event
        if event.origin is not None:
            formats.add(event.origin.format)
    if formats and not redacted:
        for event in _events_of_records_with(store, conversation, holds):
            if event.id in searched_ids:
                matching[event.id] = event
    return [matching[event_id] for event_id in sorted(matching)]


def _events_of_records_with(store: Store, conversation: str, holds: Holds) -> Iterator[Event]:
    """Yield the first event of each record that contains a match, unless it is redacted."""
    # An event that a fork shares is redacted in the conversation to which it belongs.
    begins = store.conversation(conversation).parent_version or 0
    for first, record in Records(store, conversation).all():
        if first >= begins and _holds_any(holds, record):
            yield from filter(has_content, store.events(conversation, first, first + 1))


def source_with(store: Store, conversation: str, holds: Holds) -> str | None:
    """Return the conversation if its imported file contains a match outside of the records. A fork
    may share the source of its parent; then return the parent. Return None if there is no match.
    """
    name, texts = beside_records(store, conversation)
    return name if _holds_any(holds, texts) else None


def streams_with(store: Store, conversation: str, holds: Holds) -> list[Stream]:
    """Return the streams of a conversation that contain a match, which may span several chunks.

    Cost: each stream is read, and is in memory as a whole.
    """

    def read(reading: ReadTransaction) -> list[Stream]:
        return [
            stream
            for stream in reading.streams()
            if any(map(holds, _texts_of_stream(stream, reading.chunks(stream, 0, NUMBER_MAX))))
        ]

    if store.conversation(conversation, as_stored=True).unmade:
        return []  # a query would make the events; a conversation is in use before it has a stream
    return store.query(conversation, read)


def _texts_of_stream(stream: Stream, chunks: Iterable[Chunk]) -> Iterator[str]:
    """Yield the texts in the chunks of a stream, and each text whose pieces are in several
    chunks.
    """
    bodies = [chunk.body for chunk in chunks]
    if not stream.type.startswith(streams.JSON):
        yield b"".join(bodies).decode("utf-8", "replace")
        return
    values = [value for body in bodies for value in loads(body)]
    yield from _texts(values)
    # The pieces of one text are in equal fields of values that are alike but for their texts.
    pieces: dict[Hashable, list[str]] = {}
    for value in values:
        if not isinstance(value, dict):
            continue
        place = tuple((name, value.get(name)) for name in ("type", "at", "id", "toolCallId"))
        for name, text in value.items():
            if isinstance(text, str):
                pieces.setdefault((repr(place), name), []).append(text)
    for texts in pieces.values():
        yield from _texts("".join(texts))


class _Changes:
    """Finds matches in the changes of a conversation's documents. Pass the events to ``hold`` in
    order.
    """

    def __init__(self, store: Store, conversation: str, holds: Holds, start: int) -> None:
        self._holds = holds
        self._documents = Documents(store)
        self._conversation = conversation
        self._matching: dict[str, int] = {}
        """Maps a document whose newest value contains a match to the event with this value."""
        if start:
            newest = store.query(conversation, partial(newest_documents, version=start))
            documents = self._documents.all(conversation, version=start)
            self._matching = {
                name: newest[name]
                for name, value in documents.items()
                if _holds_any(holds, {name: value})
            }

    def hold(self, event: DocumentChanges) -> bool:
        """Return whether the next event must be redacted.

        An event must be redacted if it or the new value of its document contains a match. An event
        must also be redacted if it stores only the difference from an earlier value that contains a
        match: once the earlier value is redacted, the difference cannot be read.
        """
        is_match = _holds_any(self._holds, _searched_values(event)) or any(
            ("base" in change and change["base"] == self._matching.get(name))
            or _holds_any(
                self._holds, self._documents.get(self._conversation, name, version=event.id + 1)
            )
            for name, change in event.changed.items()
        )
        for name in event.changed:
            if is_match:
                self._matching[name] = event.id
            else:
                self._matching.pop(name, None)
        return is_match


def _content_of(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each value that a redaction of the event removes. ``named_in``
    describes the names.
    """
    values = {name: value for name, value in asdict(event).items() if name not in _NAMES}
    # Records contain a call's arguments as a text, and a copy may contain their single values.
    with suppress(ValueError, RecursionError):
        values[""] = loads(str(values.get("arguments", "")))
    return named_in(values)


def texts_of(
    redacted_events: Iterable[Event], staying_events: Iterable[Event]
) -> set[tuple[str, str]]:
    """Return the name and the text of each value in ``redacted_events``.

    Values that are also in ``staying_events`` are left out, because these events stay readable.
    """
    return {*_contents(redacted_events)}.difference(_contents(staying_events))


def copies_of(texts: Collection[tuple[str, str]], events: Iterable[Event]) -> list[Event]:
    """Return the events of a companion that contain one of ``texts``. A runtime may have stored the
    text in another form, such as base64.

    A short text may be a common word, so the event must also contain the name of the value directly
    before the text.
    """
    long_texts = [text for _, text in texts if len(text) >= _REPEATED_MIN]
    short_pairs = (map(re.escape, pair) for pair in texts if 2 < len(pair[1]) < _REPEATED_MIN)
    find_short = re.compile(
        "|".join(rf"(?<!\w){name}\W{{1,9}}{text}(?![\w\s])" for name, text in short_pairs) or "(?!)"
    ).search

    def holds(text: str) -> bool:
        return any(long_text in text for long_text in long_texts) or find_short(text) is not None

    return [
        event for event in events if _holds_packed(holds, [*map(": ".join, _contents([event]))])
    ]


def titles_in(redacted: Iterable[Event], events: Iterable[Event]) -> list[Event]:
    """Return the lines among ``events`` whose title is in a text of a redacted event. A title may
    be the beginning of a user's message.
    """
    texts = [_fold(text) for event in redacted for text in _texts(_searched_values(event))]
    titles = (
        (event, _fold(title))
        for event in events
        if isinstance(event, Annotation) and has_content(event)
        if isinstance(title := event.meta.get("title"), str)
    )
    return [event for event, title in titles if title and any(title in text for text in texts)]


def _contents(events: Iterable[Event]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of ``_content_of`` for all events that have content, except documents."""
    redactable = (
        event
        for event in events
        if can_be_redacted(event) and not isinstance(event, DocumentChanges)
    )
    return (pair for event in redactable if has_content(event) for pair in _content_of(event))


def keep_documents(
    store: Store, conversation: str, redacted_ids: Collection[int], holds: Holds
) -> None:
    """Append the newest values of documents again if their events will be redacted, unless a value
    contains a match. Other writers may append at the same time.
    """
    while True:
        seen, documents, newest = store.query(conversation, _read_documents)
        kept_values = {
            name: {"value": documents[name]}
            for name, event_id in newest.items()
            if event_id in redacted_ids
            and documents[name] != REDACTED
            and not _holds_any(holds, {name: documents[name]})
        }
        if not kept_values:
            return
        others = {name: event_id for name, event_id in newest.items() if name not in kept_values}
        try:
            store.append(
                conversation,
                DocumentChanges(changed=kept_values, others=others),
                expected_version=seen,
            )
        except VersionConflict:
            continue
        return


def _read_documents(reading: ReadTransaction) -> tuple[Seen, JsonObject, Mapping[str, int]]:
    """Return the conversation's version, the newest values of its documents, and the ids of the
    events that have these values.
    """
    return Seen.of(reading), newest_values(reading, None), newest_documents(reading, None)


def _searched_values(event: Event) -> list[Any]:
    """Return the values of all fields of an event that are searched."""
    return [value for name, value in asdict(event).items() if name not in _NOT_SEARCHED]


def _holds_any(holds: Holds, value: Any) -> bool:
    """Return whether a text in the value is a match."""
    return any(map(holds, _texts(value)))


def _holds_packed(holds: Holds, value: Any) -> bool:
    """Return whether a value contains a match, also in base64, because runtimes store data in
    base64.
    """
    texts = [*_texts(value)]
    return any(map(holds, texts)) or any(
        _holds_any(holds, packed) for text in texts for packed in _in_base64(text)
    )


def _in_base64(text: str) -> Iterator[str]:
    """Yield what the parts of a text that may be base64 decode to."""
    for run in _BASE64.findall(text):
        # Base64 never has this number of characters, so the last character is not part of it.
        if len(run) % 4 == 1:
            run = run[:-1]
        whole = run.translate(_URL_SAFE)
        yield urlsafe_b64decode(whole + "==").decode("utf-8", "replace")


def _texts(value: Any) -> Iterator[str]:
    """Yield the texts in a value, and the keys of its maps. A text that is JSON is also yielded
    unescaped. If a list contains lines, or parts with texts, the joined text is yielded too.
    """
    for _, item in values_in(value):
        if isinstance(item, str):
            texts_here: Iterable[str] = (item,)
        elif isinstance(item, dict):
            texts_here = item
        elif isinstance(item, bytes):
            texts_here = (item.decode("utf-8", "replace"),)
        elif (
            isinstance(item, list | tuple)
            and len(item) > 1
            and all(type(line) is str for line in item)
        ):
            texts_here = ("\n".join(item),)
        elif isinstance(item, list | tuple) and len(parts := _texts_of_parts(item)) > 1:
            texts_here = ("".join(parts), "\n".join(parts))
        else:
            texts_here = (str(item),) if type(item) in (int, float) else ()
        for text in texts_here:
            yield text
            # A JSON string may itself contain JSON.
            while "\\" in text and (plain := unescape(text)) != text:
                yield (text := plain)


def _texts_of_parts(parts: Iterable[Any]) -> list[str]:
    """Return the texts of a message's parts, such as ``{"type": "text", "text": …}``."""
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return [text for text in texts if isinstance(text, str)]
