"""Count what an agent needed again, and how much of it a strategy showed: docs/RECALL.md defines the measure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

from foldlog._documents import MissingDocument
from foldlog._values import named_in, parsed
from foldlog.condensers import is_masked
from foldlog.eventstore import Action, Annotation, CondensationSummary, Content, Event
from foldlog.projections import View, begins_reply

_TERM = re.compile(r"[^\W\d][\w./-]{5,}|\d{6,}")
_OF_A_NAME = re.compile(r"[\d_/.]|[^\W\d_A-Z][A-Z]")
ID_OF_A_LINE = re.compile(r" \[(\d+)\]$", re.MULTILINE)
_LENGTH_LEAST = 6
_EDGES = "./-"
_OCCURRENCES_NAMED = 3


def terms_of(text: str) -> set[str]:
    """Return the terms of a text: paths, identifiers and long numbers. Words of a language are none."""
    found = (term.strip(_EDGES) for term in _TERM.findall(text))
    return {term for term in found if len(term) >= _LENGTH_LEAST and _OF_A_NAME.search(term)}


def event_terms(event: Event) -> set[str]:
    """Return the terms of what a model is sent of an event, without names of tools and of arguments."""
    match event:
        case Action():
            said: Any = (_in_words(event.thought), parsed(event.arguments))
        case Annotation():
            said = event.data
        case _:
            said = _in_words(getattr(event, "content", ""))
    return set().union(*(terms_of(text) for _, text in named_in(said)))


def _in_words(content: Content) -> Content:
    """Return a content without its images and files."""
    if isinstance(content, str):
        return content
    return tuple(part for part in content if part.get("type") not in ("image_url", "image", "file"))


class Needs:
    """Follows a replay: call ``show`` before each call of the agent's model, and ``take`` with each event, in order.

    Memory: each term, and a number for each event that has it.
    """

    def __init__(self) -> None:
        self.missing: list[MissingDocument] = []
        self.used: list[str] = []
        """Each use of a term that had occurred before, once for a reply."""
        self._occurred: dict[str, list[int]] = {}
        self.show(View.from_events(()))

    def show(self, view: View) -> None:
        """Take note of what the next reply is made from."""
        self._view = view
        self._shown: tuple[set[int], set[str], set[int]] | None = None
        self._in_reply: set[str] = set()

    def take(self, event: Event, ids: Mapping[int, int]) -> None:
        """Count the uses in an event of the agent. ``ids`` has the ids to report by those of the replay."""
        if not event.shown:
            return
        terms = event_terms(event)
        if begins_reply(event):
            for term in sorted(terms - self._in_reply):
                before = [event_id for event_id in self._occurred.get(term, ()) if event_id < self._view.version]
                if before:
                    self.used.append(term)
                    if self._shown is None:
                        self._shown = _shown(self._view)
                    whole, others, named = self._shown
                    if term not in others and whole.isdisjoint(before):
                        occurred = tuple(ids[event_id] for event_id in before[: -_OCCURRENCES_NAMED - 1 : -1])
                        is_named = not named.isdisjoint(before)
                        self.missing.append(MissingDocument(term, ids[event.id], occurred, is_named))
            self._in_reply |= terms
        for term in terms:
            self._occurred.setdefault(term, []).append(event.id)


def _left(event: Event) -> str:
    return f"{getattr(event, 'content', '')}{getattr(event, 'arguments', '')}"


def _shown(view: View) -> tuple[set[int], set[str], set[int]]:
    """Return what a prompt shows: the ids of the events that are whole, the terms in its summaries and masked events,
    and the ids at the ends of lines of a summary, or in what is left of a cleared event.
    """
    sent = [view[position] for position in view.fit_positions]
    changed = [event for event in sent if event.id < 0 or is_masked(event)]
    ends = (ID_OF_A_LINE.findall(event.content) for event in sent if isinstance(event, CondensationSummary))
    named = {int(each) for each in chain.from_iterable(ends)}
    named |= {event.id for event in changed if f"[{event.id}]" in _left(event)}
    whole = {event.id for event in sent} - {event.id for event in changed}
    return whole, set().union(*map(event_terms, changed)), named
