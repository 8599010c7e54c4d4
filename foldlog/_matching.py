"""Find a text in what a store holds of a conversation: events, summaries, documents, attributes,
records of imports.

A text is found as a search finds words, in capital and small letters, in each form of Unicode, with
accents and without, over any white space, hyphens that are not shown, and the parts of a message:
an officer looks for a person's name. What is encoded, as in base64, is not searched.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from json import loads
from typing import Any
from unicodedata import category, combining, normalize

from msgspec.structs import asdict

from foldlog._archive.stored import Records, beside_records
from foldlog._values import named_in, values_in
from foldlog.condensers.prompts.rendering import unescaped
from foldlog.eventstore import (
    DocumentChanges,
    Documents,
    Event,
    InvalidArgument,
    Store,
    SystemMessage,
    VersionConflict,
)
from foldlog.eventstore.inside import can_be_redacted, has_content, newest_documents

_NOT_ASCII = re.compile(r"[^\x00-\x7f\ufffd]+")
_KEPT = ("id", "timestamp", "redacted")
"""Fields of an event in which no text is searched for."""
_NAMES = frozenset((*_KEPT, "origin", "meta", "name", "tool", "call_id", "response_id", "source"))
"""Fields whose texts say nothing of the content: a redaction keeps them, or they are in many
records.
"""
_REPEATED_MIN = 8
"""Shorter texts say little, and are in many records. Records of the same call are found whatever
their texts.
"""

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{12,}")
_URL_SAFE = str.maketrans("+/", "-_")

Holds = Callable[[str], object]
"""Returns whether a text holds what is searched for."""


def holding(text: str) -> Holds:
    """Return what finds a text. Raises ``InvalidArgument`` for an empty one."""
    folded = _folded(text)
    if not folded:
        raise InvalidArgument("the text to search for is empty")
    return lambda given: folded in _folded(given)


def _folded(text: str) -> str:
    """Return a text without its accents and without characters that only format it, in small
    letters, with one space for all white space in a row.
    """
    plain = text if text.isascii() else _NOT_ASCII.sub(_without_marks, text)
    return " ".join(plain.casefold().split())


def _without_marks(found: re.Match[str]) -> str:
    return "".join(
        each
        for each in normalize("NFKD", found[0])
        if not combining(each) and category(each) != "Cf"
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
    """Return the events from ``start`` on that hold a match, the later changes of the documents
    that they hold, and the first event of each record of an import that holds one. Without a
    pattern: all but system prompts and documents. With ``before``: only events that were recorded
    before it. Redacted events are left out, unless ``redacted``: then no record goes. Raises
    ``CorruptEvent`` for a block of records that cannot be unpacked.

    Cost: the events, and unpacking their records; no events are made of an import that is younger
    than ``before``.
    """
    row = store.conversation(conversation, pending=True)
    if before is not None and row.pending and row.version == 0 and row.created_at >= before:
        return []

    def events() -> Iterator[Event]:
        log = store.log(conversation, start)
        return (each.event for each in log if before is None or each.recorded_at < before)

    if holds is None:
        said = (
            e
            for e in events()
            if can_be_redacted(e) and not isinstance(e, SystemMessage | DocumentChanges)
        )
        return [event for event in said if redacted or has_content(event)]
    changes = _Changes(store, conversation, holds, start)
    found: dict[int, Event] = {}
    formats: set[str] = set()
    for event in events():
        if isinstance(event, DocumentChanges):
            is_found = changes.hold(event)
        else:
            is_found = _has(holds, _without_kept(event))
        if is_found and (redacted or has_content(event)):
            found[event.id] = event
        if event.origin is not None:
            formats.add(event.origin.format)
    if formats and not redacted:
        # no event before it is redacted here
        begins = store.conversation(conversation).parent_version or 0
        for first, record in Records(store, conversation).all():
            if first >= begins and first not in found and _has(holds, record):
                found |= {
                    each.id: each
                    for each in store.events(conversation, first, first + 1)
                    if has_content(each)
                }
    return [found[event_id] for event_id in sorted(found)]


def source_with(store: Store, conversation: str, holds: Holds) -> str | None:
    """Return the conversation whose source holds a match beside its records: this one, or of a fork
    its parent. None where there is no match.
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
            self._matching = {
                name: newest[name] for name, value in past.items() if _has(holds, {name: value})
            }

    def hold(self, event: DocumentChanges) -> bool:
        """Return whether the next event holds a match, a value of it does, of which the event may
        hold a part, or a value is built on one that does: it cannot be built on one that is erased.
        """
        is_found = _has(self._holds, _without_kept(event)) or any(
            change.get("base") == self._matching.get(name, -1)
            or _has(
                self._holds, self._documents.get(self._conversation, name, version=event.id + 1)
            )
            for name, change in event.changed.items()
        )
        self._matching |= dict.fromkeys(event.changed, event.id if is_found else -1)
        return is_found


def _content(event: Event) -> Iterator[tuple[str, str]]:
    """Yield the texts and numbers that a redaction of the event takes, each after the name of its
    part.
    """
    values = {name: value for name, value in asdict(event).items() if name not in _NAMES}
    with suppress(ValueError, RecursionError):  # records hold the values in the text of a call, too
        values[""] = loads(str(values.get("arguments", "")))
    return named_in(values)


def texts_of(gone: Iterable[Event], stay: Iterable[Event]) -> set[tuple[str, str]]:
    """Return the texts and numbers of messages, calls and results, each with the name of its part,
    which events that ``stay`` do not hold: what these hold can be read as long as they have their
    content.
    """
    return {*_said(gone)}.difference(_said(stay))


def copies_of(texts: Collection[tuple[str, str]], events: Iterable[Event]) -> list[Event]:
    """Return which of these events hold one of the texts, a short one after its name: what a
    runtime keeps beside a conversation is not told by its events, and a short text is a common
    word.
    """
    long = [text for _, text in texts if len(text) >= _REPEATED_MIN]
    short = (map(re.escape, pair) for pair in texts if 2 < len(pair[1]) < _REPEATED_MIN)
    found = re.compile(
        "|".join(rf"(?<!\w){name}\W{{1,9}}{text}(?![\w\s])" for name, text in short) or "(?!)"
    ).search

    def holds(text: str) -> bool:
        return any(each in text for each in long) or found(text) is not None

    return [
        each for each in events if texts and _has_packed(holds, [*map(": ".join, _said([each]))])
    ]


def _said(events: Iterable[Event]) -> Iterator[tuple[str, str]]:
    said = (
        each for each in events if can_be_redacted(each) and not isinstance(each, DocumentChanges)
    )
    return (pair for each in said if has_content(each) for pair in _content(each))


def keep_documents(store: Store, conversation: str, gone: Collection[int], holds: Holds) -> None:
    """Append the newest values of documents that stand in events to be redacted, unless they hold a
    match themselves. Other writers may append at the same time.
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
            store.append(
                conversation, DocumentChanges(changed=kept, others=others), expected_version=version
            )
        except VersionConflict:
            continue
        return


def _without_kept(event: Event) -> list[Any]:
    return [value for name, value in asdict(event).items() if name not in _KEPT]


def _has(holds: Holds | None, value: Any) -> bool:
    return holds is not None and any(map(holds, _texts(value)))


def _has_packed(holds: Holds, value: Any) -> bool:
    """Return whether a value holds a match, also in base64: so runtimes serialize what they
    keep.
    """
    texts = [*_texts(value)]
    return any(map(holds, texts)) or any(
        _has(holds, packed) for text in texts for packed in _in_base64(text)
    )


def _in_base64(text: str) -> Iterator[str]:
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
        elif (
            isinstance(each, list | tuple)
            and len(each) > 1
            and all(type(item) is str for item in each)
        ):
            found = ("\n".join(each),)  # the lines of a text
        elif isinstance(each, list | tuple) and len(texts := _texts_of_parts(each)) > 1:
            found = ("".join(texts), "\n".join(texts))
        else:
            found = (str(each),) if type(each) in (int, float) else ()
        for text in found:
            yield text
            # JSON, whose strings may be JSON again
            while "\\" in text and (plain := unescaped(text)) != text:
                yield (text := plain)


def _texts_of_parts(parts: Iterable[Any]) -> list[str]:
    """Return the texts of the parts of a message, which a model reads one after the other."""
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return [text for text in texts if isinstance(text, str)]
