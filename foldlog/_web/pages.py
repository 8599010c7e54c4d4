"""The documents for the pages of some conversations, kept while the pages are open."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from foldlog._documents import FoundDocument, HistoryDocument, ShownDocument
from foldlog._figures.overview import around_damage
from foldlog._figures.prices import Prices
from foldlog._figures.sizes import CountsTokens
from foldlog._figures.stored import models_of
from foldlog._formats.calls import Recent
from foldlog._page.document import PageFold
from foldlog._page.texts import shown_document
from foldlog._unreadable import logged
from foldlog._values import texts_in
from foldlog.eventstore import Store

_WANTED = re.compile(r'"([^"]*)"|(\S+)')
_BEFORE, _AFTER, _AFTER_LAST = 14, 12, 160
"""Characters of an excerpt: before each word that was found, after it, and after the last one."""
_KEPT = 8
_HITS_MAX = 1_000


class Pages:
    """The folds of the conversations that were requested last. Thread-safe."""

    def __init__(
        self,
        store: Store,
        limit: int | None = None,
        model: CountsTokens | None = None,
        prices: Prices | None = None,
    ) -> None:
        self._store, self._prices = store, prices or Prices()
        self._limit, self._model = limit, model
        self._lock = threading.Lock()
        self._folds = Recent[str, tuple[threading.Lock, list[PageFold]]](_KEPT)
        """Each with a lock for its use; without a fold before the first one, and while it is used."""

    def history(self, conversation: str, since: int = 0) -> HistoryDocument:
        """Return the document of a conversation: see ``PageFold.document``. Raises what ``Store.log`` raises, except
        for damaged events."""
        with self._fold(conversation) as fold:
            row = self._store.conversation(conversation)._replace(version=fold.version)
            document = fold.document(around_damage(self._store, row), since if since <= fold.version else 0)
        return replace(document, models=models_of(self._store, conversation, self._prices))

    def gists(self, conversation: str, start: int, stop: int) -> list[str]:
        """Return the lines of the events ``start`` to ``stop``."""
        with self._fold(conversation) as fold:
            return fold.gists[start:stop]

    def event(self, conversation: str, event_id: int) -> ShownDocument | None:
        """Return an event in full, or None where there is none with this id."""
        found = list(logged(self._store, conversation, event_id, event_id + 1)) if event_id >= 0 else []
        return ShownDocument(conversation=conversation, event=shown_document(found[0])) if found else None

    def find(self, conversation: str, words: str) -> Iterator[FoundDocument]:
        """Yield the events that contain all words, each with the text around them, at most 1,000. Words in double
        quotes are one, with their spaces.
        """
        wanted = [word for found in _WANTED.findall(words.lower()) if (word := found[0] or found[1]).strip()]
        hits = 0
        for found in logged(self._store, conversation) if wanted else ():
            document = shown_document(found)
            snippet = matches(document, wanted)
            if snippet is not None:
                yield FoundDocument(event=document["id"], snippet=snippet)
                hits += 1
                if hits >= _HITS_MAX:
                    return

    @contextmanager
    def _fold(self, conversation: str) -> Iterator[PageFold]:
        """Yield the fold of a conversation with all of its events, for one request at a time."""
        self._store.conversation(conversation)
        with self._lock:
            self._folds[conversation] = lock, folds = self._folds.get(conversation, (threading.Lock(), []))
        with lock:
            fold = folds.pop() if folds else self._begun(conversation)  # one that takes a part of the events is gone
            past = self._store.query(conversation, lambda reading: (reading.key, reading.redactions, reading.lineage))
            if past != (fold.key, fold.redactions, fold.borders):
                fold = self._begun(conversation)  # it holds content that was erased, or a parent's name
            try:
                fold.take(logged(self._store, conversation, fold.version))
            except LookupError:  # a retraction to a version that was not kept: begin again, knowing it
                fold = self._begun(conversation)
                fold.take(logged(self._store, conversation))
            folds.append(fold)
            yield fold

    def _begun(self, conversation: str) -> PageFold:
        return PageFold(self._store, conversation, self._limit, self._model)


_HIDDEN = frozenset(
    ("id", "kind", "timestamp", "source", "call_id", "response_id", "cause", "shown", "source_id", "format")
)


def matches(document: dict[str, Any], words: list[str]) -> str | None:
    """Return the text around each word where all words are in the texts of an event; else None."""
    text = " · ".join(text for key, value in document.items() if key not in _HIDDEN for text in texts_in(value))
    lower = text.lower()
    if not all(word in lower for word in words):
        return None
    return _excerpt(text, sorted((lower.index(word), len(word)) for word in words))


def _excerpt(text: str, places: list[tuple[int, int]]) -> str:
    """Return the parts of a text around some places. No place is cut, and all are near the beginning."""
    parts: list[list[int]] = []
    for number, (at, length) in enumerate(places, 1):
        after = _AFTER_LAST if number == len(places) else _AFTER
        start, stop = max(0, at - _BEFORE), min(len(text), at + length + after)
        if parts and start <= parts[-1][1]:
            parts[-1][1] = max(parts[-1][1], stop)
        else:
            parts.append([start, stop])
    told = " ".join(f"{'…' if start else ''}{text[start:stop]}" for start, stop in parts)
    return re.sub(r"\s+", " ", f"{told}{'…' if parts[-1][1] < len(text) else ''}")
