"""The query of a search and its results."""

from __future__ import annotations

import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from foldlog import _documents as documents
from foldlog._derived import Changes, OmittedEvent
from foldlog.eventstore import EventStoreError, StoreUnavailable
from foldlog.eventstore.recorders.sqlite import process_forks
from foldlog.eventstore.recorders.types import utf8

MARK_START, MARK_END = "\x02", "\x03"
"""The marks around the found words in a snippet, until the snippet is read."""

_ENDING = re.compile(r"(?<=...)(ing|ed|es|e|s|ies|y)$", re.IGNORECASE)
_NO_END = 2**62
_BEFORE, _SNIPPET = 60, 200
"""Characters of a snippet: before the first word that was found, and in all."""

_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
"""What a database takes in no text: NUL, and half of a surrogate pair."""
_TERM = re.compile(r'"([^"]*)"(\*?)|(\S+)')


class SearchRefused(EventStoreError):
    """The store cannot have a search index. The message says why, and what to do."""


class IndexDamaged(StoreUnavailable):
    """The file of the index cannot be read. ``SearchIndex(store, rebuild=True)`` replaces it."""


class Term(NamedTuple):
    """A word, or several adjacent words. With ``prefix`` the last word may be longer."""

    text: str
    prefix: bool


class Wanted(NamedTuple):
    """A parsed search. An event must have all the terms. ``within`` are conversations, each with an id that its events
    are below, or None; empty means all conversations. ``kinds`` are labels; times are microseconds since 1970.
    """

    terms: tuple[Term, ...]
    within: tuple[tuple[str, int | None], ...] = ()
    kinds: frozenset[str] = frozenset()
    since: int | None = None
    until: int | None = None
    limit: int = 20


class IndexedText(NamedTuple):
    """An event in the index. ``at`` is when it happened, None where the event does not say; in microseconds, as if in
    UTC where ``is_local``: its source names no zone.
    """

    position: int
    conversation: str
    id: int
    kind: str
    at: int | None
    is_local: bool
    recorded_at: int
    text: str


class Hit(NamedTuple):
    """An event that was found.

    ``kind``        its label: user, agent, action, observation, error, …
    ``timestamp``   when it happened, without a zone where its source names none; None where the event does not say
    ``snippet``     the part of its text where the words are, on one line
    ``highlights``  where in the snippet they are: pairs of start and end
    ``score``       the higher, the better it fits; comparable within one search
    """

    conversation: str
    id: int
    kind: str
    timestamp: datetime | None
    recorded_at: datetime
    snippet: str
    highlights: tuple[tuple[int, int], ...]
    score: float


class SearchTables(ABC):
    """The tables of an index in one database. Errors of its driver come out of them as ``StoreUnavailable``."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        process_forks.watch(self)

    def position(self) -> int:
        """Return the position in the store up to which the index is complete."""
        return int(self.value("position") or 0)

    @abstractmethod
    def value(self, name: str) -> str:
        """Return a fact about the index; an empty text where it was never set."""

    @abstractmethod
    def apply(self, changes: Changes[IndexedText], position: int, *, after: int) -> list[OmittedEvent] | None:
        """Remove texts, add others, and set the position, in one transaction. Return the events that the database
        refuses; None, and change nothing, where the index is not complete up to exactly ``after``: another process has
        changed it.
        """

    @abstractmethod
    def purge(self) -> None:
        """Remove every byte of the removed texts, unless that was done, or the vacuum of the store does it."""

    @abstractmethod
    def find(self, wanted: Wanted) -> list[Hit]: ...

    @abstractmethod
    def clear(self, facts: Mapping[str, str]) -> None:
        """Remove everything, and set these facts; the index is then filled again from the first event on."""

    @abstractmethod
    def size(self) -> int:
        """Return the bytes of the index."""

    @abstractmethod
    def close(self) -> None: ...

    # -- a fork of the process ----------------------------------------------------------------------------------------

    def rest(self, patience_s: float) -> bool:
        self._rests = self.lock.acquire(timeout=patience_s)
        return self._rests

    def resume(self) -> None:
        if self._rests:
            self.lock.release()

    def renew_in_child(self, *, inherited: bool) -> None:
        self.lock = threading.RLock()


def conditions_of(wanted: Wanted, conversation: str, mark: str) -> tuple[str, list[Any]]:
    """Return the conditions of a search in SQL, and their values. ``conversation`` is the column of the ids of
    conversations, ``mark`` stands for a value.
    """
    conditions, values = "", list[Any]()
    if wanted.within:
        conditions += f" AND ({' OR '.join([f'({conversation} = {mark} AND t.id < {mark})'] * len(wanted.within))})"
        for name, below in wanted.within:
            values += (utf8(name), _NO_END if below is None else below)
    if wanted.kinds:
        conditions += f" AND t.kind IN ({', '.join([mark] * len(wanted.kinds))})"
        values += sorted(wanted.kinds)
    for comparison, moment in ((">=", wanted.since), ("<", wanted.until)):
        if moment is not None:
            conditions += f" AND t.at {comparison} {mark}"
            values.append(moment)
    return conditions, values


def id_of(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")


def terms_of(words: str) -> tuple[Term, ...]:
    """Return the terms of a line: words, ``"several words"`` in quotes, and ``begin*`` for words that begin so."""
    terms = []
    for quoted, quoted_prefix, word in _TERM.findall(_NO_TEXT.sub(" ", words)):
        text = (quoted or word.rstrip("*")).replace('"', " ").strip()
        if any(character.isalnum() for character in text):
            terms.append(Term(text, bool(quoted_prefix) or word.endswith("*")))
    return tuple(terms)


def hit_of(row: Sequence[Any]) -> Hit:
    """Return the hit for a row: ``IndexedText`` without its position, with marks in the text, and the score."""
    from foldlog.eventstore import from_microseconds

    conversation, event_id, kind, at, is_local, recorded_at, text, score = row
    told_at = None if at is None else from_microseconds(at)
    if told_at is not None and is_local:
        told_at = told_at.replace(tzinfo=None)
    snippet, highlights = _unmarked(" ".join(text.split()))
    recorded = from_microseconds(recorded_at)
    return Hit(id_of(conversation), event_id, kind, told_at, recorded, snippet, highlights, score)


def marked(text: str, terms: Iterable[Term]) -> str:
    """Return the part of a text around the words of terms, with marks around these words, for a database that cannot do
    this.
    """
    words = [word for term in terms for word in re.findall(r"[^\W_]+", term.text)]
    beginnings = [re.escape(_ENDING.sub("", word) or word) for word in words]
    pattern = re.compile(rf"(?<![^\W_])(?:{'|'.join(beginnings)})[^\W_]*", re.IGNORECASE)
    first = pattern.search(text)
    start = max(0, first.start() - _BEFORE) if first else 0
    start = text.rfind(" ", 0, start) + 1 if start else 0
    stop = start + _SNIPPET
    snippet = pattern.sub(lambda found: f"{MARK_START}{found[0]}{MARK_END}", text[start:stop])
    return f"{'…' if start else ''}{snippet}{'…' if stop < len(text) else ''}"


def _unmarked(marked: str) -> tuple[str, tuple[tuple[int, int], ...]]:
    text, highlights, start = "", [], None
    for piece in re.split(f"([{MARK_START}{MARK_END}])", marked):
        if piece == MARK_START:
            start = len(text)
        elif piece == MARK_END:
            if start is not None:
                highlights.append((start, len(text)))
            start = None
        else:
            text += piece
    return text, tuple(highlights)


def hits_document(words: str, hits: Sequence[Hit], unread: int, limit: int) -> documents.HitsDocument:
    """Return the JSON document of a search that asked for one hit more than ``limit``."""
    found = (
        documents.HitDocument.of(
            hit,
            event=hit.id,
            recorded_at=hit.recorded_at.isoformat(),
            timestamp=None if hit.timestamp is None else hit.timestamp.isoformat(),
        )
        for hit in hits[:limit]
    )
    return documents.HitsDocument(words=words, hits=tuple(found), more=len(hits) > limit, unread=unread)
