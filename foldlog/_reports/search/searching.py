"""Search the stored records and events. An index, if the store has one, names the events to read.

A record or an event is first searched as bytes, and parsed only if the bytes contain all words.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import islice, pairwise, zip_longest
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from unicodedata import normalize

from msgspec import UNSET

from foldlog._reports.answers.events import HitDocument, HitsDocument
from foldlog._reports.search.words import composed
from foldlog._reports.words import gist
from foldlog._reports.words.texts import text_of
from foldlog._reports.words.times import happened_at, time_of_event
from foldlog.eventstore import (
    Action,
    ConversationErased,
    ConversationNotFound,
    ConversationRow,
    CorruptEvent,
    Event,
    InvalidArgument,
    KeyUnavailable,
    Observation,
    Store,
    StoreDamaged,
)
from foldlog.eventstore.arguments import check_text, check_time, check_whole
from foldlog.eventstore.log.database import check_not_erased
from foldlog.eventstore.log.reading import question_of_rows
from foldlog.eventstore.log.redacted import has_content
from foldlog.eventstore.log.results import row_of
from foldlog.eventstore.log.row import PLAIN, events_of_rows, from_microseconds
from foldlog.eventstore.recorders.base import Reader
from foldlog.eventstore.recorders.types import Row, as_text, utf8
from foldlog.eventstore.sources.reading import own_blocks_with
from foldlog.eventstore.sources.tables import Made, Source, Sources
from foldlog.eventstore.times import EventTime, event_microseconds
from foldlog.projections.conversations.labels import kind_words, label, labels_of
from foldlog.projections.conversations.unreadable import sound

if TYPE_CHECKING:
    from foldlog._reports.search.index import Candidates, Range

_TERM = re.compile(r'"([^"]*)"(\*?)|(\S+)')
_STRAIGHT_QUOTES = str.maketrans("“”", '""')
_ASCII = re.compile(rb"[\w.:-]+")
"""Characters that no usual JSON encoder escapes. Some encoders escape slashes and HTML."""
_WORDS: Final = re.compile(r"\w+")
_BETWEEN_WORDS: Final = rb'(?:[^\w"\\]|\\(?:u[0-9a-f]{4}|[/bfnrt])?)+'
"""What may be between two words of a stored event: other characters, and escapes of JSON, also in a
JSON text that is a value of the event.
"""
_SEQUENCE_WORDS: Final = 16
"""The number of words of a pasted text that are looked for in the bytes of an event. Each word
nests the expression deeper, and few events have so many words of the text but not all of them.
"""
_OTHER_FORMS: Final = tuple(letter.encode() for letter in "İıſK")
"""The letters outside ASCII that ``re.IGNORECASE`` compares with i, k and s."""
_ESCAPED_FORMS: Final = (b"u0130", b"u0131", b"u017f", b"u212a")
"""The same letters as JSON escapes them."""
_MARKS: Final = "\\u0300-\\u036f"
"""The marks that make one letter with the letter before them, as a range of ``re``."""
_BEFORE = 60
"""A snippet begins about this number of characters before the first word that was found."""
_SNIPPET = 200
"""The number of characters of a snippet."""
_PAGE: Final = 1_000
"""The number of events that are searched together."""
_FIRST_PAGE: Final = 32
"""The number of events of a conversation that are searched first, as its end often has enough."""
_FIRST_PLACES: Final = 64
_MORE_PLACES: Final = 4
"""If a word is in most conversations, the first ``_FIRST_PLACES`` conversations usually have enough
hits. Otherwise, ``_MORE_PLACES`` times as many conversations are searched.
"""
_PLACES_WITH_PAIRS: Final = 320
"""A phrase of words that are in most events is first looked up for this number of conversations:
the first two pages.
"""
_FIRST_TOGETHER: Final = 4
_TOGETHER_MAX: Final = 64
"""On a server, the events of ``_FIRST_TOGETHER`` conversations are read together, then of
``_MORE_ROWS`` times more.
"""
_ASKED_AHEAD: Final = 8
"""The number of pages of events of a conversation that are read together."""
_FIRST_ROWS: Final = 16
_MORE_ROWS: Final = 4
"""The rows of ``_FIRST_ROWS`` conversations are read together, then ``_MORE_ROWS`` times more."""
ANSWERED_WITHIN: Final = 200
"""The call of a result is sought in this number of events before the result, and the result of a
call in this number of events after it.
"""
_ANSWERED_SOON: Final = 8
"""Most calls are in this number of events before their results. To read these events first takes
0.6 s for 500 hits, and to read all 200 at once 3.4 s.
"""
_STEP: Final = 64 * 1024
"""The number of characters that are searched at once. ``re`` holds the interpreter's lock
meanwhile (0.2 s for 14 MB), and an append of another thread takes the lock some ten times.
"""
MayBeIn: TypeAlias = Callable[[bytes], bool]
"""A function that returns whether stored bytes may contain the words. If so, they are parsed."""


class Hit(NamedTuple):
    """An event that contains the words.

    ``kind``        the label of the event: user, agent, action, observation, error, …
    ``timestamp``   when the event happened; without a zone if the source of the event names no
                    zone, None if the source names no time
    ``snippet``     the text around the words, on one line
    ``highlights``  the positions of the words in the snippet: pairs of start and end
    """

    conversation: str
    id: int
    kind: str
    timestamp: datetime | None
    recorded_at: datetime
    snippet: str
    highlights: tuple[tuple[int, int], ...]


class SearchPlace(NamedTuple):
    """A place in the order of a search: behind an event of a conversation.

    ``is_timed``, ``at``  the last activity of the conversation when it was searched, in
                          microseconds: see ``activity_of``
    """

    is_timed: bool
    at: int
    conversation: str
    event: int


class Searched(NamedTuple):
    """The result of a search.

    ``hits``           the first hits in the order of the search
    ``conversations``  the number of conversations to search
    ``read``           the number of conversations that were searched
    ``unread``         the problems of conversations and events that could not be read
    ``unread_in``      for each of these problems, the conversation that it is in, or None for a
                       problem of the whole store
    ``places``         the place behind each hit
    ``searched_to``    where a search goes on that had not enough time, or None
    """

    hits: tuple[Hit, ...]
    read: int
    conversations: int
    unread: tuple[str, ...] = ()
    unread_in: tuple[str | None, ...] = ()
    places: tuple[SearchPlace, ...] = ()
    searched_to: SearchPlace | None = None


def search(
    store: Store,
    words: str,
    *,
    conversation: str | None = None,
    among: Collection[str] | None = None,
    kinds: Iterable[str] = (),
    tool: str | None = None,
    program: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int | None = 20,
    limit_each: int | None = None,
    seconds: float | None = None,
    behind: SearchPlace | None = None,
) -> Searched:
    """Return ``limit`` events that contain all the words. The conversation that was active last
    comes first (see ``activity_of``), and within it the last event comes first.
    ``Histories.search`` describes the syntax of ``words``.

    ``among``       only conversations with these ids
    ``tool``        only calls and results of this tool
    ``program``     only conversations that this program wrote: see ``written_by``
    ``limit_each``  at most so many events of each conversation, the newest
    ``seconds``     the search ends after this time; then ``read`` is less than ``conversations``
    ``behind``      only hits behind this place. A conversation that was active since the place was
                    returned is in front of it, except the conversation of the place
    """
    criteria = SearchCriteria(
        words,
        conversation,
        among,
        tuple(kinds),
        tool,
        program,
        since,
        until,
        limit,
        limit_each,
        seconds,
        behind,
    )
    # A fork that was detached meanwhile has its own copies of the shared events: search again.
    while (result := _Search(store, criteria).run()) is None:
        pass
    return result


class SearchCriteria(NamedTuple):
    """The arguments of ``search``."""

    words: str
    conversation: str | None
    among: Collection[str] | None
    kinds: tuple[str, ...]
    tool: str | None
    program: str | None
    since: datetime | None
    until: datetime | None
    limit: int | None
    limit_each: int | None
    seconds: float | None
    behind: SearchPlace | None


def load_modules() -> None:
    """Import what a search imports when it needs it, so that the first search of a server does not
    wait for it.
    """
    from foldlog._reports.figures import activity, documents, reading_together, writing
    from foldlog._reports.records import decoding
    from foldlog._reports.search import index

    _ = activity, documents, reading_together, writing, decoding, index


class _Search:
    """One search: reads the conversations in their order until it has enough hits."""

    def __init__(self, store: Store, criteria: SearchCriteria) -> None:
        self._store = store
        self._conversation = criteria.conversation
        self._events = _EventCriteria(criteria)
        self._is_paged = criteria.behind is not None
        self._most = None if criteria.limit is None else check_whole("limit", criteria.limit, 0)
        self._most_each = criteria.limit_each
        seconds = criteria.seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._hits = list[Hit]()
        self._hit_places = list[SearchPlace]()
        self._unread = list[str]()
        self._failed = 0
        self._by_index, self._place_count, self._places = _places_to_search(
            store, self._events.words.terms, criteria, self._unread
        )
        self._unread_in: list[str | None] = [None] * len(self._unread)
        self._reads_together = (
            self._by_index and criteria.program is None and store.database.recorder.on_server
        )
        self._is_of_program: Callable[[ConversationRow], bool] | None = None
        if criteria.program is not None:
            # This import loads condensers, which few searches need.
            from foldlog._reports.figures.activity import written_by

            self._is_of_program = written_by(store, criteria.program)

    def run(self) -> Searched | None:
        """Return the result, or None if a fork was detached while its shared events were read."""
        last: SearchPlace | None = None
        searched_to: SearchPlace | None = None
        read_count = 0
        is_complete = False
        for place, reading in self._places_and_readings():
            if self._most is not None and len(self._hits) >= self._most:
                break
            if last is not None and self._is_late():
                searched_to = last
                if self._conversation is not None:  # see ``_places_in_chain_behind``
                    searched_to = last._replace(event=place.stop or 0)
                break
            read_count += 1
            last = SearchPlace(*place.at, place.row.id, 0)
            try:
                hits = self._hits_in(place, reading)
            except ConversationErased:
                if place.row.id == self._conversation:
                    raise
                if self._conversation is not None:
                    return None
                continue
            self._hits += hits
            self._hit_places += [last._replace(event=hit.id) for hit in hits]
        else:
            is_complete = True
        if is_complete and (self._by_index or self._is_paged):
            # The index says that the others have no hit, or they are in front of ``behind``.
            read_count = self._place_count
        return Searched(
            tuple(self._hits[: self._most]),
            read_count,
            self._place_count,
            tuple(self._unread),
            tuple(self._unread_in),
            tuple(self._hit_places[: self._most]),
            searched_to,
        )

    def _is_late(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def _places_and_readings(self) -> Iterator[tuple[_Place, _Reading | None]]:
        """Yield the places to search. On a server, plain places of which the index names the events
        are read together, because the round trips take most of the time of a search. The caller
        reads the places that are yielded without a reading.
        """
        places = list[_Place]()
        size = _FIRST_TOGETHER
        for place in self._places:
            if self._reads_together and place.is_plain and place.ranges is not None:
                places.append(place)
                if len(places) < size:
                    continue
                size = min(size * _MORE_ROWS, _TOGETHER_MAX)
                yield from self._read_together(places)
                places = []
            else:
                yield from self._read_together(places)
                places = []
                yield place, None
        yield from self._read_together(places)

    def _read_together(self, places: Sequence[_Place]) -> Iterator[tuple[_Place, _Reading | None]]:
        """Read places in one transaction, until there are enough hits or the time is over."""
        # This import loads condensers, which few searches need.
        from foldlog._reports.figures.reading_together import read_together

        def ask(reader: Reader) -> None:
            reader.ask_ahead([question for place in places for question in _questions(place)])

        def read(store: Store) -> list[_Reading]:
            readings = list[_Reading]()
            count = len(self._hits)
            for place in places:
                if self._is_late() or (self._most is not None and count >= self._most):
                    break
                readings.append(self._read(store, place, count))
                count += len(readings[-1].hits)
            return readings

        if places:
            readings = read_together(self._store, ask, read)
            yield from zip_longest(places, readings)

    def _read(self, store: Store, place: _Place, count: int) -> _Reading:
        """Search a place, with ``count`` hits before it."""
        rest = None if self._most is None else self._most - count
        limits = [limit for limit in (rest, self._most_each) if limit is not None]
        most = min(limits, default=None)
        problems = list[str]()
        try:
            conversation = _Conversation(store, place, problems)
            hits = conversation.newest_hits(self._events, most)
        except (ConversationErased, CorruptEvent, KeyUnavailable, StoreDamaged) as error:
            return _Reading((), problems, error)
        return _Reading(hits[: self._most_each], problems)

    def _hits_in(self, place: _Place, reading: _Reading | None) -> Sequence[Hit]:
        """Return the hits in a conversation, the newest first. If the conversation cannot be read,
        note the problem, and raise it only if no other conversation could be read either.
        """
        if self._is_of_program is not None and not self._is_of_program(place.row):
            return ()
        if reading is None:
            reading = self._read(self._store, place, len(self._hits))
        problems = [*reading.problems]
        error = reading.error
        if isinstance(error, ConversationErased):
            raise error
        if error is not None:
            problems.append(f"{place.row.id}: {error}")
            self._failed += 1
        self._unread += problems
        self._unread_in += [place.row.id] * len(problems)
        if error is not None and self._failed == self._place_count:
            raise error  # no conversation could be read
        return reading.hits


def _places_to_search(
    store: Store, terms: Sequence[str], criteria: SearchCriteria, unread: list[str]
) -> tuple[bool, int, Iterable[_Place]]:
    """Return whether the index names the conversations, the number of conversations that a search
    without it reads, and the conversations to search.
    """
    conversation, among, behind = criteria.conversation, criteria.among, criteria.behind
    found = None if conversation is not None else _look_up(store, terms, unread)
    if found is not None:
        if behind is not None:
            count = 0  # the first page had the number
        else:
            count = _count_places(store, unread) if among is None else len(among)
        return True, count, _found_places(store, found, among, behind, unread)
    places = [
        place
        for place in _places(store, conversation, unread)
        if among is None or place.row.id in among
    ]
    if behind is None:
        return False, len(places), places
    if conversation is not None:
        return False, len(places), _places_in_chain_behind(places, behind)
    return False, len(places), _places_behind(places, behind)


class _Place(NamedTuple):
    """A conversation to search, up to the version ``stop``. If ``ranges`` is not None, no other
    event of the conversation can match. ``at`` is its last activity: see ``SearchPlace``.
    ``is_plain`` says that it has no source and shares no events with another conversation. A
    place that the index named has a ``key``.
    """

    row: ConversationRow
    stop: int | None = None
    ranges: Sequence[Range] | None = None
    at: tuple[bool, int] = (True, 0)
    is_plain: bool = False
    key: int = 0


class _Reading(NamedTuple):
    """What a search read in a place. ``error`` is why it could not read the conversation."""

    hits: Sequence[Hit]
    problems: Sequence[str]
    error: ConversationErased | CorruptEvent | KeyUnavailable | StoreDamaged | None = None


def _questions(place: _Place) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield the first questions that the search of a plain place asks: see ``Reader.ask_ahead``."""
    yield "conversation", (place.row.id,)
    pages = _Conversation.pages_from_the_end(place.ranges or (), 0, place.row.version)
    for start, stop in islice(pages, _ASKED_AHEAD):
        yield question_of_rows(place.key, start, stop)


def _places_in_chain_behind(places: Sequence[_Place], behind: SearchPlace) -> Iterator[_Place]:
    """Yield the places that have events before the event of ``behind``. The places are those of a
    conversation and of the conversations whose events it shares, which have lower ids.
    """
    begins = [*(place.stop or 0 for place in places[1:]), 0]
    for place, begin in zip(places, begins, strict=True):
        stop = behind.event if place.stop is None else min(place.stop, behind.event)
        if stop > begin:
            yield place._replace(stop=stop)


def _places_behind(places: Iterable[_Place], behind: SearchPlace) -> Iterator[_Place]:
    """Yield the places that are not before ``behind``. They are in the order of activity."""
    others = list[_Place]()
    for place in places:
        if place.row.id == behind.conversation:
            stop = behind.event if place.stop is None else min(place.stop, behind.event)
            if stop > 0:
                yield place._replace(stop=stop, at=(behind.is_timed, behind.at))
        elif _is_behind(place.at, place.row.id, behind):
            others.append(place)
    yield from others


def _is_behind(at: tuple[bool, int], name: str, behind: SearchPlace) -> bool:
    """Return whether a conversation with the last activity ``at`` comes after a place."""
    last = (behind.is_timed, behind.at)
    return at < last or (at == last and utf8(name) > utf8(behind.conversation))


def _look_up(store: Store, terms: Sequence[str], unread: list[str]) -> Candidates | None:
    """Return the candidates of the store's index, or None if every conversation must be read."""
    # This import loads what ``foldlog search --help`` need not load.
    from foldlog._reports.search.index import candidates

    try:
        return store.database.recorder.query(partial(candidates, terms=terms))
    except StoreDamaged as error:
        unread.append(str(error))
        return None


def _look_up_pairs(store: Store, pairs: Sequence[int], unread: list[str]) -> Candidates:
    """Return the candidates with all pairs, or all conversations if the pairs are damaged."""
    from foldlog._reports.search.index import Candidates, look_up_pairs

    try:
        return store.database.recorder.query(partial(look_up_pairs, pairs=pairs))
    except StoreDamaged as error:
        _note_once(unread, str(error))
        return Candidates(None, {})


def _note_once(unread: list[str], problem: str) -> None:
    if problem not in unread:
        unread.append(problem)


def _count_places(store: Store, unread: list[str]) -> int:
    """Return the number of conversations to search, and note how many are archived."""
    rows = store.database.recorder.query(lambda reader: reader.ask_all("count_to_search"))
    archived = sum(int(row[1]) for row in rows)
    if archived:
        unread.append(_not_searched(archived))
    return sum(int(row[0]) for row in rows) - archived


def _found_places(
    store: Store,
    found: Candidates,
    among: Collection[str] | None,
    behind: SearchPlace | None,
    unread: list[str],
) -> Iterator[_Place]:
    """Yield the conversations that may have hits, in the order of the search. ``unread`` gets what
    is damaged in the index.
    """
    read = set[str]()
    last = None
    if found.pairs:
        last = yield from _first_places(store, found, among, behind, read, unread)
        if last is None:
            return
        found = _look_up_pairs(store, found.pairs, unread)
    for page in _in_order(store, found, behind):
        others = [_not_before(candidate, last) for candidate in page if candidate.name not in read]
        yield from _places_in_page(store, found, others, among, unread)


def _not_before(candidate: _Candidate, last: SearchPlace | None) -> _Candidate:
    """Return a candidate at the place of ``last`` if it stands before it: an append has moved it
    since the search passed that place.
    """
    if last is None or _is_behind(candidate.at, candidate.name, last):
        return candidate
    return candidate._replace(at=(last.is_timed, last.at))


def _first_places(
    store: Store,
    found: Candidates,
    among: Collection[str] | None,
    behind: SearchPlace | None,
    read: set[str],
    unread: list[str],
) -> Generator[_Place, None, SearchPlace | None]:
    """Yield the first conversations that may have the pairs of ``found``. The pairs are looked up
    only for these conversations, which usually have enough hits. Return the place behind them, or
    None at the end. ``read`` gets the names of the conversations.
    """
    count = 0
    for page in _in_order(store, found, behind):
        yield from _places_in_page(store, found, page, among, unread)
        read.update(candidate.name for candidate in page)
        count += len(_chosen(page, among))
        if count >= _PLACES_WITH_PAIRS:
            return SearchPlace(*page[-1].at, page[-1].name, 0)
    return None


def _chosen(page: Iterable[_Candidate], among: Collection[str] | None) -> list[_Candidate]:
    """Return the candidates that the search may read."""
    return [
        candidate
        for candidate in page
        if candidate.stop != 0 and (among is None or candidate.name in among)
    ]


def _places_in_page(
    store: Store,
    found: Candidates,
    page: Sequence[_Candidate],
    among: Collection[str] | None,
    unread: list[str],
) -> Iterator[_Place]:
    """Yield the conversations of a page that may have hits. ``unread`` gets what is damaged in the
    index.
    """
    candidates = _chosen(page, among)
    if not candidates:
        return
    try:
        ranges = _ranges_of_page(store, found, candidates)
    except StoreDamaged as error:
        _note_once(unread, str(error))
        ranges = dict.fromkeys(candidate.key for candidate in candidates)
    chosen = iter([candidate for candidate in candidates if candidate.key in ranges])
    size = _FIRST_ROWS
    while candidates := [*islice(chosen, size)]:
        rows = _plain_rows(store, [candidate.key for candidate in candidates])
        for candidate in candidates:
            plain_row = rows.get(candidate.key)
            row = plain_row or _row_of(store, candidate.name)
            if row is not None:
                events = ranges[candidate.key]
                is_plain = plain_row is not None
                yield _Place(row, candidate.stop, events, candidate.at, is_plain, candidate.key)
        size *= _MORE_ROWS


def _plain_rows(store: Store, keys: Sequence[int]) -> Mapping[int, ConversationRow]:
    """Read conversations together, because a query for each takes most of the time of a search.
    Conversations that are erased, archived or not plain (see ``_Place``) are left out.
    """

    def read(reader: Reader) -> Mapping[int, ConversationRow]:
        states = reader.conversations_among(keys)
        with_source = {key for (key,) in reader.ask_all("sources_among", json.dumps([*keys]))}
        return {
            state.key: row_of(state)
            for state in states
            if state.visible
            and state.head is not None
            and not state.lacks_events
            and (state.erasure, state.replaces, state.parent) == (None, None, None)
            and state.key not in with_source
        }

    with suppress(StoreDamaged):  # the sound conversations are then read one by one
        return store.database.recorder.query(read)
    return {}


def _row_of(store: Store, name: str) -> ConversationRow | None:
    """Return the row of a conversation, or None if there is nothing to search in it."""
    try:
        row = store.conversation(name, as_stored=True)
    except ConversationNotFound:
        return None  # ``behind`` may name any text
    return None if row.erased_at is not None or row.archived else row


class _Candidate(NamedTuple):
    """A conversation that may have hits, with its place in the order: see ``_Place``."""

    key: int
    name: str
    at: tuple[bool, int]
    stop: int | None = None


_FIRST: Final = SearchPlace(True, 2**62, "", 0)
"""A place before all conversations."""
_BEHIND: Final = -1
"""Stands for the key of the conversation of a ``SearchPlace``."""


def _ranges_of_page(
    store: Store, found: Candidates, page: Sequence[_Candidate]
) -> Mapping[int, Sequence[Range] | None]:
    """Return the events to search, or None for all, by the keys of the conversations that may have
    hits.
    """
    from foldlog._reports.search.index import ranges_of

    keys = [candidate.key for candidate in page]
    if (found.docs is None and not found.pairs) or keys == [_BEHIND]:
        return {key: found.ranges.get(key) for key in keys}
    return store.database.recorder.query(partial(ranges_of, keys=keys, found=found))


def _in_order(
    store: Store, found: Candidates, behind: SearchPlace | None
) -> Iterator[list[_Candidate]]:
    """Yield pages of the candidates in the order of ``activity_of``. The conversation of ``behind``
    comes first, because an append may have moved it since the place was returned.
    """
    from foldlog._reports.figures.writing import CODE
    from foldlog._reports.search.index import unplaced

    keys = found.keys
    # The place of these conversations is not in the index.
    others = store.database.recorder.query(unplaced)
    if keys is not None and others is None:
        candidates = _ask_order(store, "search_order_of", CODE, json.dumps([*keys]))
        if behind is None:
            yield candidates
            return
        yield [
            _going_on_from(behind, candidate)
            for candidate in candidates
            if candidate.name == behind.conversation
        ]
        yield [candidate for candidate in candidates if _is_other_behind(candidate, behind)]
        return
    if behind is not None:
        key = _BEHIND if keys is None else _key_of(store, behind.conversation)
        if keys is None or key in keys:
            candidate = _Candidate(key, behind.conversation, (True, 0))
            yield [_going_on_from(behind, candidate)]
    yield from _pages_in_order(store, keys, others, behind)


def _pages_in_order(
    store: Store,
    keys: Collection[int] | None,
    others: Collection[int] | None,
    behind: SearchPlace | None,
) -> Iterator[list[_Candidate]]:
    """Yield ever larger pages of the conversations with these ``keys``, or of all, except the
    conversation of ``behind``. The index lacks the place of ``others``; None stands for all.
    """
    from foldlog._reports.figures.writing import CODE

    chosen = None if keys is None else json.dumps([*keys])
    yielded = set[int]()
    last = behind or _FIRST
    most = _FIRST_PLACES
    if others and keys is not None:
        others = [key for key in others if key in keys]
    of_others = list[_Candidate]()
    if others:
        of_others = _ask_order(store, "search_order_of", CODE, json.dumps([*others]))
    while True:
        place = (int(last.is_timed), last.at, utf8(last.conversation))
        if others is None:
            page = _ask_order(store, "search_order", CODE, most, *place)[:most]
        else:
            count = most + len(others)
            if chosen is None:
                placed = _ask_order(store, "search_places", count, *place)
            else:
                placed = _ask_order(store, "search_places_of", count, *place, chosen)
            page = [
                candidate
                for candidate in of_others
                if _is_behind(candidate.at, candidate.name, last)
            ]
            page += [candidate for candidate in placed if candidate.key not in others]
            page = _sorted(page)[:most]
        yield [
            candidate
            for candidate in page
            if candidate.key not in yielded
            and (behind is None or candidate.name != behind.conversation)
        ]
        yielded.update(candidate.key for candidate in page)
        if len(page) < most:
            return
        last = SearchPlace(*page[-1].at, page[-1].name, 0)
        most *= _MORE_PLACES


def _key_of(store: Store, name: str) -> int:
    """Return the key of a conversation, or ``_BEHIND`` if there is none."""
    database = store.database
    state = database.recorder.query(
        lambda reader: database.find(reader, name, as_stored=True, binds=False)
    )
    return _BEHIND if state is None else state.key


def _is_other_behind(candidate: _Candidate, behind: SearchPlace) -> bool:
    """Return whether a candidate comes after a place, and is not the conversation of the place."""
    is_other = candidate.name != behind.conversation
    return is_other and _is_behind(candidate.at, candidate.name, behind)


def _ask_order(store: Store, statement: str, *parameters: int | str | bytes) -> list[_Candidate]:
    rows = store.database.recorder.query(lambda reader: reader.ask_all(statement, *parameters))
    return _sorted(
        [
            _Candidate(key, as_text(name), (bool(is_timed), _as_microseconds(at)))
            for name, is_timed, at, key in rows
        ]
    )


def _sorted(candidates: list[_Candidate]) -> list[_Candidate]:
    """Sort candidates by activity, because each of several stores returns its own order."""
    # The second sort is stable, so conversations with equal times stay sorted by their ids.
    candidates.sort(key=lambda candidate: utf8(candidate.name))
    candidates.sort(key=lambda candidate: candidate.at, reverse=True)
    return candidates


def _going_on_from(behind: SearchPlace, candidate: _Candidate) -> _Candidate:
    """Return the conversation of a place, to be searched only before the event of the place."""
    return candidate._replace(at=(behind.is_timed, behind.at), stop=behind.event)


def _as_microseconds(at: object) -> int:
    """Return a time in the index, which some statements return as a text of hexadecimal digits."""
    return int(as_text(at), 16) if isinstance(at, bytes) else int(at)  # type: ignore[call-overload]


def events_with(
    store: Store,
    conversation: str,
    words: SearchTerms,
    unread: list[str],
    text: Callable[[Event], str] = text_of,
) -> list[Event]:
    """Return the events of a conversation whose texts match ``words``, in order. The problems of
    events that cannot be read are added to ``unread``. ``text`` returns the text of an event to
    search. Cost: the function reads the stored bytes of the conversation.
    """
    candidates = candidates_in(store, conversation, words.may_be_in, unread)
    matching = {event.id: event for event in candidates if words.stand_in(on_one_line(text(event)))}
    return [matching[event_id] for event_id in sorted(matching)]


def candidates_in(
    store: Store, conversation: str, may_be_in: MayBeIn, unread: list[str]
) -> Iterator[Event]:
    """Yield the events for whose stored bytes ``may_be_in`` returns true. The order is not defined,
    and an event may be yielded twice. ``may_be_in`` gets the bytes in lower case. Redacted events
    are left out. Cost: the function reads the stored bytes of the conversation.
    """
    for place in _places(store, conversation, unread):
        try:
            for _, event in _Conversation(store, place, unread).candidates(may_be_in):
                if has_content(event):
                    yield event
        except ConversationErased:
            if place.row.id == conversation:
                raise
            # The fork was detached, and has its own copies of the shared events: search again.
            yield from candidates_in(store, conversation, may_be_in, unread)
            return


def _places(store: Store, conversation: str | None, unread: list[str]) -> list[_Place]:
    """Return all conversations, the last active first, or a single one. For a fork, the
    conversations whose events it shares are returned too.
    """
    if conversation is None:
        rows = [row for row in _rows(store, unread) if row.erased_at is None]
        if archived := sum(row.archived > 0 for row in rows):
            unread.append(_not_searched(archived))
            rows = [row for row in rows if not row.archived]
        return _last_active_first(store, rows, unread)
    row = store.conversation(conversation, as_stored=True)
    places = [_Place(row)]
    while row.parent is not None:
        stop = row.parent_version or 0
        if places[-1].stop:  # the fork shares not more than its child does
            stop = min(stop, places[-1].stop)
        row = store.conversation(row.parent, as_stored=True)
        places.append(_Place(row, stop))
    return places


def _not_searched(archived: int) -> str:
    count_text = gist.count(archived, "archived conversation")
    return f"{count_text} not searched; a search in one conversation restores it from the archive"


def _last_active_first(
    store: Store, rows: list[ConversationRow], unread: list[str]
) -> list[_Place]:
    """Return the places of conversations, the one that was active last first."""
    # This import loads condensers, which ``foldlog search --help`` need not load.
    from foldlog._reports.figures.activity import activity_of

    try:
        activity = activity_of(store)
    except StoreDamaged as error:
        unread.append(f"the times of conversations: {error}")

        def activity(row: ConversationRow) -> tuple[bool, float]:
            return True, event_microseconds(EventTime(row.updated_at)) or 0

    def place_of(row: ConversationRow) -> _Place:
        is_timed, at = activity(row)
        return _Place(row, at=(is_timed, max(0, int(at))))

    return sorted(map(place_of, rows), key=lambda place: place.at, reverse=True)


def _rows(store: Store, unread: list[str]) -> list[ConversationRow]:
    """Return the rows of all conversations. If the file is damaged, those that can be read are
    returned, and the problems of the others are added to ``unread``.
    """
    try:
        return [*store.iter_conversations()]
    except StoreDamaged:
        from foldlog.eventstore.maintenance.verify import Unlisted, readable_conversations

        rows = []
        for listed in readable_conversations(store.database.recorder):
            if isinstance(listed, Unlisted):
                unread.append(f"{listed.id}: {listed.problem}" if listed.id else listed.problem)
                continue
            try:
                rows.append(store.conversation(listed.id, as_stored=True))
            except StoreDamaged as error:
                unread.append(f"{listed.id}: {error}")
        if not rows:
            raise
        return rows


class SearchTerms:
    """A search term matches the beginning of a word. Terms in double quotes must follow one another
    in the text. A letter with an accent may be one character or two, in the terms and in the text.

    With ``every``, a text must contain all words. Without ``every``, one word is enough. Raises
    ``InvalidArgument`` if there is no word, unless ``may_be_none`` is set. With ``may_be_none``, a
    search without words matches every text.
    """

    def __init__(self, words: str, *, every: bool = True, may_be_none: bool = False) -> None:
        terms = [
            (quoted or word).rstrip("*").strip()
            for quoted, _, word in _TERM.findall(
                check_text("words", words).translate(_STRAIGHT_QUOTES)
            )
        ]
        terms = [normalize("NFC", term) for term in terms]
        terms = [term for term in dict.fromkeys(terms) if any(map(str.isalnum, term))]
        self.terms = terms
        if not terms and not may_be_none:
            raise InvalidArgument(
                f"there is no word to search for in {words!r}; give a word with a letter or a digit"
            )
        phrases = [term.replace('"', " ").split() for term in terms]
        self._is_every = every
        self.patterns = [_TermPattern(phrase) for phrase in phrases]
        # The longest part is the rarest. A search calls ``may_be_in`` for each event.
        self._needles = [sorted(_needles(term), key=len, reverse=True) for term in terms]
        self._sequences = [_sequence(term) for term in terms]

    def may_be_in(self, data: bytes) -> bool:
        """Return whether the words may be in some bytes, of which the text was not decoded."""
        is_every = self._is_every
        for needles in self._needles:
            if _has_all(data, needles) != is_every:
                return not is_every
        return is_every

    def may_be_in_event(self, data: bytes) -> bool:
        """Return whether an event may match. ``data`` is the event as the store encodes it, in
        lower case. This also compares the words of a phrase with their neighbours, because most
        events that have frequent words do not have them one after the other.
        """
        is_every = self._is_every
        for needles, sequence in zip(self._needles, self._sequences, strict=True):
            may_be = _has_all(data, needles) and (
                sequence is None
                or len(data) > _STEP
                or sequence.search(data) is not None
                or _has_other_forms(data)
            )
            if may_be != is_every:
                return not is_every
        return is_every

    def places_in(self, text: str) -> list[int]:
        """Return the first place of each term that the text contains."""
        places = (pattern.find(text) for pattern in self.patterns)
        return [place for place in places if place is not None]

    def stand_in(self, text: str) -> bool:
        """Return whether a text matches. The text must be as ``on_one_line`` returns it."""
        found = (pattern.find(text) is not None for pattern in self.patterns)
        return all(found) if self._is_every else any(found)


class _TermPattern:
    """The words of a term, which follow one another."""

    def __init__(self, words: Sequence[str]) -> None:
        self._in_ascii = _Expressions(rf"(?<!\w){re.escape(words[0])}", map(re.escape, words[1:]))
        first, *others = map(_in_both_forms, words)
        self._in_any = _Expressions(rf"(?<![\w{_MARKS}]){first}", others)
        self._first_length = len(normalize("NFD", words[0]))
        self._has_others = bool(others)

    def _expressions(self, text: str) -> _Expressions:
        return self._in_ascii if text.isascii() else self._in_any

    def find(self, text: str) -> int | None:
        """Return the first place of the words, or None. A long text is searched in steps: see
        ``_STEP``.
        """
        expressions = self._expressions(text)
        if len(text) <= _STEP:
            match = expressions.whole.search(text)
            return None if match is None else match.start()
        for begin in range(0, len(text), _STEP):
            end = begin + _STEP + self._first_length
            while (match := expressions.first.search(text, begin, end)) is not None:
                begin = match.start()
                if not self._has_others or expressions.whole.match(text, begin):
                    return begin
                begin += 1
        return None

    def spans_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Return the start and the end of each occurrence of the words."""
        return (match.span() for match in self._expressions(text).whole.finditer(text))


class _Expressions:
    """Expressions for the first word of a term, and for all of its words."""

    def __init__(self, first: str, others: Iterable[str]) -> None:
        self.first = re.compile(first, re.IGNORECASE)
        self.whole = re.compile(r"\W+".join([first, *others]), re.IGNORECASE)


def _in_both_forms(word: str) -> str:
    """Return an expression that matches each letter of a word as one character, and as a letter
    with its marks. Behind the last letter is no mark, because it would be another letter.
    """
    return f"{''.join(map(_letter_in_both_forms, word))}(?![{_MARKS}])"


def _letter_in_both_forms(letter: str) -> str:
    """Return a pattern for a letter as one character, or as a letter with separate accents."""
    parts = normalize("NFD", letter)
    # Without a letter in the other case, ``re.IGNORECASE`` would find parts that are no letter.
    if parts == letter or len(letter.upper()) > 1 or len(letter.lower()) > 1:
        return re.escape(letter)
    return f"(?:{re.escape(letter)}|{re.escape(parts)})"


def on_one_line(text: str) -> str:
    """Return the words of a text with a space between them. A letter and its marks are one
    character, as they are in the index: no search finds か in か with a voicing mark.
    """
    text = composed(text)
    words = list[str]()
    begin = 0
    while len(text) - begin > _STEP:
        end = text.find(" ", begin + _STEP)
        if end < 0:
            break
        words.append(" ".join(text[begin:end].split()))
        begin = end
    words.append(" ".join(text[begin:].split()))
    return " ".join(filter(None, words))


class _EventCriteria:
    """What an event must be. Only the caller can check ``tool``: a result often does not name its
    tool, so the caller looks for the call of the result.
    """

    def __init__(self, criteria: SearchCriteria) -> None:
        words, kinds, tool = criteria.words, criteria.kinds, criteria.tool
        since, until = criteria.since, criteria.until
        self._kinds = labels_of(kind_words(kinds))
        self.tool = tool
        is_chosen = bool(self._kinds) or tool is not None
        self.words = SearchTerms(words, may_be_none=not words and is_chosen)
        self._since = None if since is None else check_time("since", since)
        self._until = None if until is None else check_time("until", until)

    def hit(self, conversation: str, event: Event, recorded_at: datetime) -> Hit | None:
        """Return the hit of an event, or None if the event is not what is searched for."""
        if not has_content(event) or (self._kinds and label(event) not in self._kinds):
            return None
        at = happened_at(event, recorded_at)
        if self._since is not None and (at is None or at < self._since):
            return None
        if self._until is not None and (at is None or at >= self._until):
            return None
        text = on_one_line(text_of(event))
        if not self.words.stand_in(text):
            return None
        snippet, highlights = self._snippet(text)
        timestamp = time_of_event(event, recorded_at)
        return Hit(
            conversation, event.id, label(event), timestamp, recorded_at, snippet, highlights
        )

    def _snippet(self, text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
        """Return the text around the first word that was found, and the places of words in it."""
        start = max(0, min(self.words.places_in(text), default=0) - _BEFORE)
        start = text.rfind(" ", 0, start) + 1 if start else 0
        part = text[start : start + _SNIPPET]
        lead = "…" if start else ""
        spans = (span for pattern in self.words.patterns for span in pattern.spans_in(part))
        shifted = sorted((begin + len(lead), end + len(lead)) for begin, end in spans)
        end = "…" if start + _SNIPPET < len(text) else ""
        return f"{lead}{part}{end}", tuple(_without_overlaps(shifted))


def _needles(term: str) -> Iterator[bytes]:
    """Yield, for each word of a term, its longest part that stored bytes contain unescaped."""
    for word in term.split():
        parts = _ASCII.findall(word.lower().encode(errors="surrogatepass"))
        if parts:
            yield max(parts, key=len)


def _has_all(data: bytes, needles: Iterable[bytes]) -> bool:
    for needle in needles:  # noqa: SIM110 - ``all`` takes twice as long
        if needle not in data:
            return False
    return True


def _sequence(term: str) -> re.Pattern[bytes] | None:
    """Return an expression for the first words of a term with several words, or None. A quotation
    mark may end a field of the event, and the next field of the text may be anywhere.
    """
    words = _WORDS.findall(term)[:_SEQUENCE_WORDS]
    count = next((place for place, word in enumerate(words) if not word.isascii()), len(words))
    if count < 2:
        return None
    first, *later = [word.lower().encode() for word in words[:count]]
    expression = b""
    for word in reversed(later):
        next_word = _BETWEEN_WORDS + rb'(?:"|\Z|' + word + expression + b")"
        expression = rb'(?:"|\Z|' + next_word + b")"
    return re.compile(first + expression)


def _has_other_forms(data: bytes) -> bool:
    """Return whether the text may have letters outside ASCII that ``re.IGNORECASE`` compares with
    i, k and s.
    """
    if b"\\u" in data:
        for form in _ESCAPED_FORMS:
            if form in data:
                return True
    if not data.isascii():
        for form in _OTHER_FORMS:  # ``any`` takes twice as long
            if form in data:
                return True
    return False


def _without_overlaps(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield sorted spans, without those that begin inside an earlier one."""
    end = 0
    for start, stop in spans:
        if start >= end:
            yield start, stop
            end = stop


class _Conversation:
    """Searches the records and events of a conversation that are its own."""

    def __init__(self, store: Store, place: _Place, unread: list[str]) -> None:
        row, stop = place.row, place.stop
        self._store = store
        self._row = row
        self._stop = stop
        self._ranges = place.ranges
        self._unread = unread
        self._source: Source | None = None
        self._events_of_records: Made = {}
        self._begins = 0
        self._version = row.version if stop is None else min(stop, row.version)
        if not place.is_plain:
            self._read_source()

    def _read_source(self) -> None:
        """Read the source of the conversation, and which events its records became. If the index
        names the events to search, no record can match, so the source is not read.
        """
        store, row, stop = self._store, self._row, self._stop
        needs_source = self._ranges is None

        def read(reader: Reader) -> tuple[Source | None, Made, int, int]:
            sources = Sources(store.database, reader)
            conversation_row = check_not_erased(store.database.find(reader, row.id, as_stored=True))
            if conversation_row is None:
                return None, {}, 0, 0
            source = None
            if needs_source:
                source = sources.find_by_key(conversation_row.key, texts=())
            event_spans = {} if source is None else sources.made(source)
            return source, event_spans, conversation_row.begins, conversation_row.version

        self._source, self._events_of_records, self._begins, version = (
            store.database.recorder.query(read)
        )
        self._version = version if stop is None else min(stop, version)

    def newest_hits(self, criteria: _EventCriteria, most: int | None) -> list[Hit]:
        """Return the hits, the newest first: at least ``most`` of them, if there are so many. If
        the place has ``ranges``, records and other events are not searched.
        """
        if self._source is not None:
            return self._hits(criteria, self.candidates(criteria.words.may_be_in))
        hits = list[Hit]()
        every: Sequence[Range] = [(0, None)]
        ranges = every if self._ranges is None else self._ranges
        pages = self.pages_from_the_end(ranges, self._begins, self._version)
        for start, stop in pages:
            candidates = self._in_events(start, stop, criteria.words.may_be_in_event)
            hits += self._hits(criteria, candidates)
            if most is not None and len(hits) >= most:
                break
        return hits

    def _hits(
        self, criteria: _EventCriteria, candidates: Iterable[tuple[datetime, Event]]
    ) -> list[Hit]:
        """Return the hits among some events with their times, the newest event first."""
        hits = []
        for recorded_at, event in candidates:
            hit = criteria.hit(self._row.id, event, recorded_at)
            if hit is not None and criteria.tool in (None, self._tool_of(event)):
                hits.append(hit)
        return sorted(hits, key=lambda hit: -hit.id)

    @staticmethod
    def pages_from_the_end(
        ranges: Sequence[Range], begins: int, version: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the events from ``begins`` to before ``version`` that are in the ranges, as pages
        of events. Most searches end in the first page, so it is short.
        """
        size = _FIRST_PAGE
        end = version
        for first, stop in sorted(ranges, reverse=True):
            begin = max(first, begins)
            end = min(end, version if stop is None else stop)
            while begin < end:
                start = max(begin, end - size)
                yield start, end
                end = start
                size = _PAGE
            end = min(end, begin)

    def _tool_of(self, event: Event) -> str | None:
        """Return the tool of a call or of a result, which may be named by its call only."""
        call: Event | None = event
        if isinstance(event, Observation) and not event.tool:
            problems = list[str]()
            call = find_call(self._store, self._row.id, event, problems)
            for problem in problems:
                _note_once(self._unread, problem)
        return call.tool if isinstance(call, Action | Observation) else None

    def candidates(self, may_be_in: MayBeIn) -> Iterator[tuple[datetime, Event]]:
        """Yield the events that may match, with their times. Cost: the method reads the blocks of
        records, and the events that have no record.
        """
        if self._source is not None:
            yield from self._in_records(self._source, may_be_in)
        # Events of the source's own records were found by these records, so only the other events
        # are searched here. A copied fork has its own events of the records that it shares.
        start = self._begins
        own_from = 0 if self._source is None else self._source.from_record
        for first, count in sorted(
            place
            for number, place in self._events_of_records.items()
            if number >= own_from and place[0] >= start
        ):
            if first > start:
                yield from self._in_events(start, first, may_be_in)
            start = max(start, first + count)
        yield from self._in_events(start, self._version, may_be_in)

    def _in_records(self, source: Source, may_be_in: MayBeIn) -> Iterator[tuple[datetime, Event]]:
        """Yield the events of the records that may match."""
        unmade = list[int]()
        for block in own_blocks_with(
            self._store.database, source, lambda raw: may_be_in(raw.lower())
        ):
            for number, record in enumerate(block.records(), block.first):
                if number < source.from_record or not may_be_in(record.lower()):
                    continue
                if number >= source.made:
                    unmade.append(number)
                elif number in self._events_of_records:
                    first, count = self._events_of_records[number]
                    yield from self._events(first, min(first + count, self._version))
        if unmade and self._stop is None:
            yield from self._unmade_events(source, frozenset(unmade))

    def _events(self, start: int, stop: int) -> Iterator[tuple[datetime, Event]]:
        return sound(self._store, self._row.id, start, stop, self._unread)

    def _unmade_events(
        self, source: Source, numbers: frozenset[int]
    ) -> Iterator[tuple[datetime, Event]]:
        """Decode records whose events are not made yet. The events have the ids that they will have
        in the store.
        """
        from foldlog._reports.records.decoding import decode_records

        version = self._store.conversation(self._row.id, as_stored=True).version
        for number, events in decode_records(
            self._store, source, self._events_of_records, source.made, version, []
        ):
            if number in numbers:
                yield from ((self._row.created_at, event) for event in events)

    def _in_events(
        self, start: int, stop: int, may_be_in: MayBeIn
    ) -> Iterator[tuple[datetime, Event]]:
        """Yield the stored events from ``start`` to before ``stop`` that may match. A damaged
        event may have had the words, so its problem is noted.
        """
        name = self._row.id
        while start < stop:
            end = min(start + _PAGE, stop)

            def rows(reading: Any, first: int = start, end: int = end) -> list[Row]:
                return [
                    row
                    for row in reading.rows(first, end)
                    if row.encoding != PLAIN or may_be_in(row.body.lower())
                ]

            try:
                candidates = self._store.query(name, rows)
            except (CorruptEvent, StoreDamaged):
                yield from self._events(start, end)  # This call reads the events around the damage.
            else:
                is_sound = all(row.encoding == PLAIN for row in candidates)
                events = events_of_rows(candidates) if is_sound else None
                if events is None:
                    for first, last in _runs([row.id for row in candidates]):
                        yield from self._events(first, last + 1)
                else:
                    for row, event in zip(candidates, events, strict=True):
                        yield from_microseconds(row.recorded_at), event
            start = end


def find_call(
    store: Store, conversation: str, result: Observation, unread: list[str]
) -> Action | None:
    """Return the call that a result answers, or None if there is none. The problems of events that
    cannot be read are added to ``unread``. Cost: one event if the result names the event of its
    call. Otherwise the few events before the result, and 200 events if the call is not among them.
    """
    if result.cause is not None:
        named = sound(store, conversation, result.cause, result.cause + 1, unread)
        return next((logged.event for logged in named if isinstance(logged.event, Action)), None)
    stop = result.id
    for count in (_ANSWERED_SOON, ANSWERED_WITHIN):
        start = max(0, result.id - count)
        earlier = [logged.event for logged in sound(store, conversation, start, stop, unread)]
        for event in reversed(earlier):
            if isinstance(event, Action) and event.call_id == result.call_id:
                return event
        stop = start
    return None


def _runs(ids: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last id of each run of consecutive ids."""
    starts = [place for place in range(len(ids)) if place == 0 or ids[place - 1] + 1 < ids[place]]
    for start, end in pairwise([*starts, len(ids)]):
        yield ids[start], ids[end - 1]


def hits_document(store: Store, words: str, result: Searched, limit: int) -> HitsDocument:
    """Return the document of a search for ``limit + 1`` hits, of which it shows ``limit``, and says
    whether there are more.
    """
    # This import loads condensers, which ``foldlog search --help`` need not load.
    from foldlog._reports.figures.documents import tasks_of

    tasks = tasks_of(store, (hit.conversation for hit in result.hits[:limit]))
    hits = (
        HitDocument.of(
            hit,
            task=tasks.get(hit.conversation, UNSET),
            event=hit.id,
            recorded_at=hit.recorded_at.isoformat(),
            timestamp=None if hit.timestamp is None else hit.timestamp.isoformat(),
        )
        for hit in result.hits[:limit]
    )
    return HitsDocument(
        words=words,
        hits=tuple(hits),
        more=len(result.hits) > limit,
        read=result.read,
        conversations=result.conversations,
        unread=result.unread,
    )


__all__ = ["Hit", "Searched", "hits_document", "search"]
