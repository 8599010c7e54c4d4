"""The documents for the pages of conversations. The documents of open pages stay in memory."""

from __future__ import annotations

import json
import re
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

from msgspec import to_builtins

from foldlog._app.page.document import PageFold
from foldlog._app.page.report import write_report
from foldlog._app.page.texts import shown_document
from foldlog._app.server.parameters import Count, Text
from foldlog._base.json_types import JsonObject
from foldlog._base.values import texts_in
from foldlog._reports.answers.document import Document
from foldlog._reports.answers.events import (
    EventsDocument,
    FindDocument,
    FoundDocument,
    NoteDocument,
    ShownDocument,
)
from foldlog._reports.answers.figures import ModelsDocument
from foldlog._reports.answers.page import HistoryDocument, ProgressDocument
from foldlog._reports.answers.views import NeededListDocument
from foldlog._reports.figures.documents import models_of
from foldlog._reports.figures.overview import around_damage
from foldlog._reports.figures.prices import Prices
from foldlog._reports.figures.tokens import CountsTokens
from foldlog._reports.needed_again import needed_again
from foldlog.eventstore import ConversationRow, CorruptEvent, Logged, Store
from foldlog.eventstore.cached_values import CachedValues
from foldlog.eventstore.recorders.base import Reader
from foldlog.formats.open_calls import Recent
from foldlog.projections.conversations.unreadable import iter_log
from foldlog.projections.errors import NoSuchEvent

_WORDS = re.compile(r'"([^"]*)"|(\S+)')
_BEFORE = 14
"""The number of characters before each match in an excerpt."""
_AFTER = 12
"""The number of characters after each match but the last."""
_AFTER_LAST = 160
"""The number of characters after the last match in an excerpt."""
_KEPT = 8
"""The number of pages that stay in memory."""
_HITS_MAX = 1_000
"""The maximum number of hits of a search in a page."""
_EVENTS = 50
"""The number of events in an answer, unless the request names the end."""
_EVENTS_MAX = 500
_TEXT_MAX = 500_000
"""When the texts of an answer exceed this number of characters, no further event is added."""
_TELL_EVERY = 1_000
"""A page that is being made tells its progress after this number of events."""
_LONG = 5_000
"""The page documents of a conversation with this many events are cached in the store."""
PAGE = "page"
NEEDED_AGAIN = "needed again"
"""The names of the cached documents."""
_CODE = 4
"""The version of the cached documents. Documents of other versions are discarded."""

_RECORDS_MAX = 1_000
"""The largest number of names that are read of a conversation's cached values."""

D = TypeVar("D", bound=Document)


class Pages:
    """Makes the documents of pages. The ``PageFold`` of each recently used page stays in memory.
    Many threads may use this object.
    """

    def __init__(
        self,
        store: Store,
        limit: int | None = None,
        model: CountsTokens | None = None,
        prices: Prices | None = None,
    ) -> None:
        self._store = store
        self._prices = prices or Prices()
        self._limit = limit
        self._model = model
        self._lock = threading.Lock()
        self._reached: dict[str, int] = {}
        """Maps a conversation to the number of events that its ``PageFold`` has read so far."""
        self._folds = Recent[str, tuple[threading.Lock, list[PageFold]]](_KEPT)
        """Maps a conversation to a lock and a list that contains its ``PageFold``. The list is
        empty before the first request, and while a request uses the ``PageFold``.
        """

    def history(self, conversation: Text, since: Count = 0) -> HistoryDocument:
        """Return the document of a conversation, as ``PageFold.document`` describes it. Raises the
        errors of ``Store.log``, except errors about damaged events.

        Cost: the first call reads all events, and later calls read only the new events. The page of
        a long conversation is cached until the conversation changes.
        """
        if since == 0:
            row = self._store.conversation(conversation)
            cached = self._kept(row, PAGE, HistoryDocument)
            if cached is not None:
                return cached
        try:
            with self._fold(conversation) as fold:
                row = self._store.conversation(conversation)._replace(version=fold.version)
                begin = since if since <= fold.version else 0
                document = fold.document(around_damage(self._store, row), begin)
            # A redaction since the fold has read the events would be cached as if it were shown.
            is_unredacted = row.redactions == fold.redactions
            if since == 0 and not fold.problems and is_unredacted:
                self._keep(row, PAGE, document)
        finally:
            self._reached.pop(conversation, None)
        return document

    def _made(self, conversation: str) -> HistoryDocument:
        """Return the document of a conversation without the cache."""
        with self._fold(conversation) as fold:
            row = self._store.conversation(conversation)._replace(version=fold.version)
            return fold.document(around_damage(self._store, row))

    def models(self, conversation: Text) -> ModelsDocument:
        """Return the calls, tokens and cost of each model."""
        models = models_of(self._store, conversation, self._prices)
        return ModelsDocument(conversation=conversation, models=models)

    def event(self, conversation: Text, event: Count) -> ShownDocument:
        """Return an event in full. Raises ``NoSuchEvent``."""
        for entry in iter_log(self._store, conversation, event, event + 1):
            return ShownDocument(conversation=conversation, event=shown_document(entry))
        raise NoSuchEvent(conversation, event, self._store.version(conversation))

    def events(
        self, conversation: Text, start: Count = 0, stop: Count | None = None
    ) -> EventsDocument:
        """Return the requested events in full. If the events are long, return fewer events, but at
        least one event.
        """
        documents: list[JsonObject] = []
        size = 0
        stop = min(start + _EVENTS if stop is None else stop, start + _EVENTS_MAX)
        for entry in iter_log(self._store, conversation, start, stop):
            document = shown_document(entry)
            documents.append(document)
            size += sum(map(len, texts_in(document)))
            if size > _TEXT_MAX:
                break
        return EventsDocument(conversation=conversation, start=start, events=tuple(documents))

    def dropped(self, conversation: Text) -> NeededListDocument:
        """Return the terms that condensations dropped and that were needed again.

        Cost: see ``needed_again``. The result for a long conversation is cached until the
        conversation changes.
        """
        row = self._store.conversation(conversation)
        document = self._kept(row, NEEDED_AGAIN, NeededListDocument)
        if document is None:
            document = _needed_again(self._store, conversation)
            self._keep(row, NEEDED_AGAIN, document)
        return document

    def _kept(self, row: ConversationRow, name: str, kind: type[D]) -> D | None:
        """Return the cached document of a long conversation, or None."""
        if row.version < _LONG:
            return None
        document: D | None = self._beside(name).load([row], kind).get(row.id)
        return document

    def _keep(self, row: ConversationRow, name: str, document: Document) -> None:
        """Cache the document of a long conversation."""
        if row.version >= _LONG:
            cache = self._beside(name)
            cache.keep(row, document)
            cache.flush()

    def _beside(self, name: str) -> CachedValues:
        """Return the cache for the documents with this name. A page shows the limit and the tokens
        that a model counted, so each pair of a model and a limit has its own.
        """
        shown = []
        if name == PAGE and self._model is not None:
            shown = [self._model.model, str(self._limit)]
        elif name == PAGE and self._limit is not None:
            shown = [str(self._limit)]
        return CachedValues(self._store, " ".join([name, *shown]), _CODE)

    def write_report(self, conversation: str, path: Path, notes: Sequence[NoteDocument]) -> None:
        """Write the page of a conversation into a file: see ``report.write_report``."""
        write_report(
            self._store,
            conversation,
            path,
            limit=self._limit,
            model=self._model,
            prices=self._prices,
            notes=notes,
        )

    def progress(self, conversation: Text) -> ProgressDocument:
        """Say how far a page is that is being made. First the missing events of an imported
        conversation are made, and then all events are read.
        """
        row = self._store.conversation(conversation, as_stored=True).check_not_erased()
        if row.unmade:
            step = "made"
            position = row.version
        else:
            step = "read"
            position = self._reached.get(conversation, 0)
        return ProgressDocument(
            conversation=conversation, step=step, done=position, total=row.version + row.unmade
        )

    def find(self, conversation: Text, words: Text) -> FindDocument:
        """Return the events that contain all words, at most 1,000 events, with the text around the
        words. Words in double quotes are searched as one text.
        """
        typed = [quoted or plain for quoted, plain in _WORDS.findall(words.lower())]
        phrases = [word for word in typed if word.strip()]
        hits: list[FoundDocument] = []
        for entry in iter_log(self._store, conversation) if phrases else ():
            document = shown_document(entry)
            snippet = matches(document, phrases)
            if snippet is not None:
                hits.append(FoundDocument(event=document["id"], snippet=snippet))
            if len(hits) == _HITS_MAX:
                break
        return FindDocument(hits=tuple(hits))

    @contextmanager
    def _fold(self, conversation: str) -> Iterator[PageFold]:
        """Yield the ``PageFold`` of a conversation with all events. Only one request at a time can
        use a ``PageFold``.
        """
        self._store.conversation(conversation)
        with self._lock:
            shared = self._folds.get(conversation, (threading.Lock(), []))
            self._folds[conversation] = shared
        lock, folds = shared
        with lock:
            # The fold is taken out of the list, so that a fold that fails halfway is dropped.
            fold = folds.pop() if folds else self._begun(conversation)
            past = self._store.query(
                conversation, lambda reading: (reading.key, reading.redactions, reading.lineage)
            )
            if past != (fold.key, fold.redactions, fold.borders):
                # The old fold may contain erased content, or the name of an erased parent.
                fold = self._begun(conversation)
            try:
                fold.take(self._follow(conversation, fold.version))
            except LookupError:
                # A retraction leads to a version that the fold did not store: begin again with it.
                fold = self._begun(conversation)
                fold.take(self._follow(conversation, 0))
            folds.append(fold)
            yield fold

    def _follow(self, conversation: str, start: int) -> Iterator[Logged | CorruptEvent]:
        """Yield the events from a version on, and note how far the reader is."""
        for number, entry in enumerate(iter_log(self._store, conversation, start), start):
            if number % _TELL_EVERY == 0:
                self._reached[conversation] = number
            yield entry

    def _begun(self, conversation: str) -> PageFold:
        return PageFold(self._store, conversation, self._limit, self._model)


def find_wrong_documents(store: Store, row: ConversationRow) -> Iterator[str]:
    """Yield the cached documents of the page of a conversation that differ from its events, if no
    model counted their tokens. Context windows of models are not compared, because they are not in
    the events. Raises the errors of reading. Cost: making each page that is cached.
    """
    if row.unmade or row.version < _LONG:
        return  # the next reader makes events, which change the version; or nothing is cached
    problems = []
    for limit in store.database.recorder.query(partial(_limits_of_cached_pages, store, row)):
        pages = Pages(store, limit)
        page = pages._kept(row, PAGE, HistoryDocument)
        if page is not None and _comparable(page) != _comparable(pages._made(row.id)):
            problems.append("the stored document of its page differs from its events")
    dropped = Pages(store)._kept(row, NEEDED_AGAIN, NeededListDocument)
    if dropped is not None and _plain(dropped) != _plain(_needed_again(store, row.id)):
        problems.append("the stored list of terms that it needed again differs from its events")
    if store.version(row.id) == row.version:  # otherwise, another process has appended since
        yield from problems


def _limits_of_cached_pages(store: Store, row: ConversationRow, reader: Reader) -> list[int | None]:
    """Return the limits of the cached pages whose tokens no model counted."""
    state = store.database.find(reader, row.id, as_stored=True)
    names = () if state is None else names_of_cached_pages(reader, state.key)
    return [int(name.removeprefix(PAGE)) if name != PAGE else None for name in names]


def names_of_cached_pages(reader: Reader, key: int) -> list[str]:
    """Return the names under which pages are cached whose tokens no model counted."""
    records = reader.newest_records(key, _RECORDS_MAX)
    names = {record.projection for record in records}
    return sorted(name for name in names if re.fullmatch(rf"{PAGE}( [0-9]{{1,18}})?", name))


def _comparable(document: HistoryDocument) -> Any:
    plain = _plain(document)
    if plain["window_of"] is not None:
        plain["window"] = plain["window_of"] = None
    return plain


def _plain(document: Document) -> Any:
    """Return a document as it is after it was cached."""
    return json.loads(json.dumps(to_builtins(document, str_keys=True)))


def _needed_again(store: Store, conversation: str) -> NeededListDocument:
    condensations = needed_again(store, conversation)
    return NeededListDocument(conversation=conversation, condensations=tuple(condensations))


_HIDDEN = frozenset(
    (
        "id",
        "kind",
        "timestamp",
        "source",
        "call_id",
        "response_id",
        "cause",
        "shown",
        "source_id",
        "format",
    )
)
"""The fields of an event that a search in a page does not look at."""


def matches(document: JsonObject, words: list[str]) -> str | None:
    """Return the text around the words if an event contains all words. Return None if the event
    lacks a word.
    """
    text = " · ".join(
        text for key, value in document.items() if key not in _HIDDEN for text in texts_in(value)
    )
    lower = text.lower()
    if not all(word in lower for word in words):
        return None
    return _excerpt(text, sorted(_place_of(word, text, lower) for word in words))


def _place_of(word: str, text: str, lower: str) -> tuple[int, int]:
    """Return where the first match of a word begins and ends in a text. ``lower`` is the text in
    lower case. Each "İ" of the text has two characters there.
    """
    at = lower.index(word)
    end = at + len(word)
    if len(lower) == len(text):
        return at, end
    ends = list(accumulate(len(letter.lower()) for letter in text))
    return bisect_right(ends, at), bisect_right(ends, end - 1) + 1


def _excerpt(text: str, places: list[tuple[int, int]]) -> str:
    """Return the text around each match, and ``…`` for the text between distant matches. No match
    is cut.
    """
    spans: list[tuple[int, int]] = []
    for number, (at, end) in enumerate(places, 1):
        after = _AFTER_LAST if number == len(places) else _AFTER
        start = max(0, at - _BEFORE)
        stop = min(len(text), end + after)
        if spans and start <= spans[-1][1]:  # the excerpts of two matches meet
            begin, last = spans.pop()
            spans.append((begin, max(last, stop)))
        else:
            spans.append((start, stop))
    excerpt = " ".join(f"{'…' if start else ''}{text[start:stop]}" for start, stop in spans)
    _, last = spans[-1]
    return re.sub(r"\s+", " ", f"{excerpt}{'…' if last < len(text) else ''}")
