"""This module counts what an agent needed again (terms, small numbers and plain words, by their
age), and how much of it a strategy showed. ``docs/internals/COMPACTION.md`` defines the counts.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Set
from itertools import chain, islice, pairwise
from typing import Any, Final, Literal, NamedTuple

from foldlog._base.values import named_in, parse
from foldlog._reports.answers.comparison import MissingDocument
from foldlog.condensers import is_masked
from foldlog.eventstore import Action, Annotation, CondensationSummary, Content, Event
from foldlog.projections import View, begins_reply
from foldlog.projections.messages.content import MEDIA

_TERM = re.compile(r"[^\W\d][\w./-]{5,}|\d{6,}")
_IN_A_NAME = re.compile(r"[\d_/.]|[^\W\d_A-Z][A-Z]")
"""What a term contains and an ordinary word does not, such as a digit or a capital letter inside.
"""
ID_OF_A_LINE = re.compile(r" \[(\d{1,18})\]$", re.MULTILINE)
"""The end of a line of a digest: the id of the event that the line describes. A longer number is no
id. Any summary may have one.
"""
_LENGTH_LEAST = 6
"""The least number of characters of a term."""
_EDGES = "./-"
"""Characters that belong to a term only inside of it."""
_OCCURRENCES_NAMED = 3
"""The maximum number of earlier events that a missing term names."""

_WORD = re.compile(r"[\w./-]+")
_WORD_LEAST = 4
"""Shorter words stand beside every fact, such as ``and``. A number counts at any length."""
NeedKind = Literal["names", "numbers", "words"]
Pair = tuple[str, str]
"""Two neighbouring words of a line, in lower case."""
_PLAIN = re.compile(r"(?<![\w./-])(?:[^\W\d_]{4,}|\d{2,5})(?![\w/-]|\.\w)")
_PAIR_EVENTS_MAX = 3
"""A pair that stands in more earlier events is an expression of the language, and no fact."""

AGES: Final = (0, 4, 21, 61)
"""The smallest age of each class of ages: how many events before its use a fact stood last. Any
window shows the youngest.
"""

_NEAR = 120
"""A prompt shows a fact (a term with its neighbours, see ``docs/internals/COMPACTION.md``) if at
most this number of characters is between the term and one of its neighbours.
"""


def terms_of(text: str) -> set[str]:
    """Return the terms of a text: paths, identifiers and long numbers. Words of a natural language
    are not terms.
    """
    return terms_in({*text.split()})


def terms_in(words: Iterable[str]) -> set[str]:
    """Return the terms in words of a text: see ``terms_of``."""
    text = " ".join([word for word in words if len(word) >= _LENGTH_LEAST])
    terms = (term.strip(_EDGES) for term in _TERM.findall(text))
    return {term for term in terms if len(term) >= _LENGTH_LEAST and _IN_A_NAME.search(term)}


def event_terms(event: Event) -> set[str]:
    """Return the terms in the texts of an event."""
    return terms_in(event_words(event))


def event_words(event: Event) -> set[str]:
    """Return the parts between spaces of the texts of an event."""
    return set().union(*map(str.split, event_texts(event)))


def event_texts(event: Event) -> list[str]:
    """Return the texts in an event, without images, files, sounds and videos."""
    match event:
        case Action():
            value: Any = (_without_media(event.thought), parse(event.arguments))
        case Annotation():
            value = event.data
        case _:
            value = _without_media(getattr(event, "content", ""))
    return [text for _, text in named_in(value)]


def words_beside(texts: Iterable[str], terms: Collection[str]) -> dict[str, frozenset[str]]:
    """Return the word before and the word after the last occurrence of each term. A term that is
    alone in its line has none.
    """
    beside = dict.fromkeys(terms, frozenset[str]())
    for text in texts:
        for line in text.splitlines():
            words = _words(line)
            for place, word in enumerate(words):
                if word in terms:
                    neighbours = (*words[max(0, place - 1) : place], *words[place + 1 : place + 2])
                    beside[word] = frozenset(neighbours) - {word}
    return beside


def _words(text: str) -> list[str]:
    """Return the words of a text that can stand beside a fact, in order: see ``_WORD_LEAST``."""
    words = (word.strip(_EDGES) for word in _WORD.findall(text))
    return [word for word in words if len(word) >= _WORD_LEAST or word.isdecimal()]


def pairs_of(texts: Iterable[str]) -> dict[Pair, NeedKind]:
    """Return the facts in plain words: pairs of neighbouring words of a line, or of a word and a
    number of two to five digits. Short words between them do not count, and terms are no words.
    """
    pairs: dict[Pair, NeedKind] = {}
    for line in chain.from_iterable(map(str.splitlines, texts)):
        plain = _PLAIN.findall(line.casefold())
        for pair in pairwise(plain):
            numbers = sum(map(str.isdecimal, pair))
            if numbers < 2:
                pairs[pair] = "numbers" if numbers else "words"
    return pairs


def is_near(text: str, term: str, words: Set[str]) -> bool:
    """Return whether a text has a term as a whole word, and one of ``words`` near it."""
    place = text.find(term)
    while place >= 0:
        end = place + len(term)
        before = text[max(0, place - _NEAR) : place]
        after = text[end : end + _NEAR]
        # A full stop after the term may end a sentence, so it is no part of a longer word.
        is_whole = not _WORD.match(before[-1:]) and not _WORD.match(after[:1].replace(".", " "))
        if is_whole and not words.isdisjoint((*_words(before), *_words(after))):
            return True
        place = text.find(term, end)
    return False


def _without_media(content: Content) -> Content:
    """Return content without its images, files, sounds and videos."""
    if isinstance(content, str):
        return content
    return tuple(part for part in content if part.get("type") not in MEDIA)


class Needs:
    """Counts the earlier terms that the agent uses again, and finds those that its prompt did not
    show. Call ``show`` with the View before each call of the agent's model, and call ``take`` with
    each event, in order.
    """

    def __init__(self) -> None:
        self.missing: list[MissingDocument] = []
        self.used: list[str] = []
        """The earlier terms that the agent used again. If a reply uses a term several times, the
        term is added once.
        """
        self.facts = 0
        """The number of terms in ``used`` that had neighbours (other words around the term) at
        their last earlier occurrence.
        """
        self.facts_shown = 0
        self.counts: dict[tuple[NeedKind, int], list[int]] = {}
        """Maps a kind of facts and the least age of a class of ``AGES`` to two numbers: how many
        such facts were needed, and how many of them the prompts showed.
        """
        self._texts: dict[int, str] = {}
        self._pairs: dict[Pair, list[int]] = {}
        """Maps a pair to the events with it, up to one more than ``_PAIR_EVENTS_MAX``."""
        self._occurred: dict[str, dict[int, frozenset[str]]] = {}
        """Maps each term to the events that contain it, and each of these events to the neighbours
        of the term.
        """
        self.show(View.from_events(()))

    def show(self, view: View) -> None:
        """Set the View with which the agent's model writes the next reply."""
        self._view = view
        self._shown: _Shown | None = None
        self._in_reply: set[str] = set()
        self._pairs_in_reply: set[Pair] = set()

    def take(self, event: Event, ids: Mapping[int, int]) -> None:
        """Look for earlier terms in an event. ``ids`` maps an id in the replay to the id in the
        history.
        """
        if not event.shown:
            return
        texts = event_texts(event)
        terms = set().union(*map(terms_of, texts))
        if begins_reply(event):
            for term in sorted(terms - self._in_reply):
                self._use(term, event.id, ids)
            self._in_reply |= terms
        pairs = pairs_of(texts)
        if begins_reply(event):
            for pair in pairs.keys() - self._pairs_in_reply:
                self._use_pair(pair, pairs[pair], event.id)
            self._pairs_in_reply |= pairs.keys()
        for pair in pairs:
            events = self._pairs.setdefault(pair, [])
            if len(events) <= _PAIR_EVENTS_MAX:
                events.append(event.id)
        self._texts[event.id] = "\n".join(texts)
        for term, words in words_beside(texts, terms).items():
            self._occurred.setdefault(term, {})[event.id] = words

    def _use(self, term: str, used_in: int, ids: Mapping[int, int]) -> None:
        """Count a term that the agent wrote in the event ``used_in``, if an event before the call
        has it too.
        """
        occurred = self._occurred.get(term, {})
        newest_before = list(
            islice(
                (event_id for event_id in reversed(occurred) if event_id < self._view.version),
                _OCCURRENCES_NAMED,
            )
        )
        if not newest_before:
            return
        last = newest_before[0]
        self.used.append(term)
        shown = self._shown_now
        is_shown = term in shown.changed_terms or _have_common(occurred, shown.whole)
        self._count("names", used_in - last, is_shown)
        if not is_shown:
            places = tuple(ids[event_id] for event_id in newest_before)
            is_named = _have_common(occurred, shown.named)
            self.missing.append(MissingDocument(term, ids[used_in], places, is_named))
        words = occurred[last]
        if words:
            self.facts += 1
            if last in shown.whole or self._is_near(term, words, shown):
                self.facts_shown += 1

    def _use_pair(self, pair: Pair, kind: NeedKind, used_in: int) -> None:
        """Do as ``_use``, for a pair of words."""
        events = self._pairs.get(pair, [])
        before = [event_id for event_id in events if event_id < self._view.version]
        if before and len(events) <= _PAIR_EVENTS_MAX:
            shown = self._shown_now
            is_shown = not shown.whole.isdisjoint(before) or pair in shown.changed_pairs
            self._count(kind, used_in - before[-1], is_shown)

    def _count(self, kind: NeedKind, age: int, is_shown: bool) -> None:
        """Count a needed fact in the class of its age, and whether the prompt showed it."""
        least = AGES[bisect_right(AGES, age) - 1]
        counts = self.counts.setdefault((kind, least), [0, 0])
        counts[0] += 1
        counts[1] += is_shown

    @property
    def _shown_now(self) -> _Shown:
        if self._shown is None:
            self._shown = _shown(self._view)
        return self._shown

    def _is_near(self, term: str, words: Set[str], shown: _Shown) -> bool:
        """Return whether the prompt shows a term near one of its neighbours ``words``."""
        if term in shown.changed_terms and is_near(shown.changed_text, term, words):
            return True
        return any(
            is_near(self._texts[event_id], term, words)
            for event_id in shown.whole
            if event_id in self._occurred[term]
        )


def _have_common(occurred: Collection[int], ids: Set[int]) -> bool:
    # The cost is that of the smaller collection: a name that stands in every command occurs in
    # thousands of events, of which a prompt shows few.
    fewer, more = (occurred, ids) if len(occurred) < len(ids) else (ids, occurred)
    return any(event_id in more for event_id in fewer)


class _Shown(NamedTuple):
    """What a prompt shows. ``whole`` has the ids of the events that the prompt shows in full.
    ``changed_text`` is the text of its summaries and masked events, and ``changed_terms`` and
    ``changed_pairs`` are the terms and pairs in this text. ``named`` has the ids of events before
    the prompt that ``changed_text`` names.
    """

    whole: frozenset[int]
    changed_text: str
    changed_terms: frozenset[str]
    changed_pairs: Collection[Pair]
    named: frozenset[int]


def _masked_text(event: Event) -> str:
    """Return what a prompt shows of a masked event: its content and its arguments."""
    return f"{getattr(event, 'content', '')}{getattr(event, 'arguments', '')}"


def _shown(view: View) -> _Shown:
    """Return what a View shows a model: whole events, and the terms and ids in other texts."""
    sent = [view[position] for position in view.fit_positions]
    changed = [event for event in sent if event.id < 0 or is_masked(event)]
    ends = (
        ID_OF_A_LINE.findall(event.content)
        for event in sent
        if isinstance(event, CondensationSummary)
    )
    ends_with_ids = map(int, chain.from_iterable(ends))
    named = {event_id for event_id in ends_with_ids if event_id < view.version}
    named |= {event.id for event in changed if f"[{event.id}]" in _masked_text(event)}
    whole = {event.id for event in sent} - {event.id for event in changed}
    texts = list(chain.from_iterable(map(event_texts, changed)))
    terms = set().union(*map(terms_of, texts))
    return _Shown(
        frozenset(whole),
        "\n".join(texts),
        frozenset(terms),
        pairs_of(texts),
        frozenset(named),
    )
