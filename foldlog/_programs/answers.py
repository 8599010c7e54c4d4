"""The five tools of ``foldlog mcp``: what compaction dropped, why something is not known, and the
events themselves.

Each answer is a text of at most 2,000 estimated tokens, with ids for more. What conversations hold
is quoted or indented in it, so that it cannot pass for a line of ours.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from heapq import nlargest
from typing import Any

from foldlog._figures.places import in_folder, places
from foldlog._figures.stored import FiguresOfStore
from foldlog._history.facts import fact
from foldlog._history.recall import RecallTool
from foldlog._labels import label
from foldlog._programs.asking import Asked, Asking, Unclear
from foldlog._reports.as_sent import sent, why_sent
from foldlog._reports.dropped import Dropped, DroppedTerm, condensations, dropped_by
from foldlog._search import Hit, Searched, search
from foldlog._words.gist import gist
from foldlog._words.safe_text import printable
from foldlog._words.times import moment_of
from foldlog.condensers import is_masked
from foldlog.condensers.models.estimate import estimated
from foldlog.condensers.prompts.rendering import clipped
from foldlog.eventstore import Event, EventStoreError, Store, summary_of
from foldlog.projections import Views

TOKENS_MAX = 2_000
_SHORT = 100
_LONG = 240
_ERROR_MAX = 300
_NEWEST = 3
"""Compactions that are described in full where none is named."""
_NAMES = 12
"""Names and user's words of each."""
_HITS = 50
_LISTED = 10
_SEARCH_S = 5.0
_ALL = "*"
_EVENT_ID = re.compile(r"-?[0-9]{1,18}")


class Answers:
    """The tools over one store. Every method returns a text; it never raises for a question that
    has no answer.
    """

    def __init__(self, store: Store, asking: Asking) -> None:
        self._store, self._asking, self._views = store, asking, Views(store)

    def dropped(self, conversation: str = "", compaction: int | None = None) -> str:
        """Say what compactions dropped: the newest ones, or one by its id."""
        return _answer(self._about(conversation, partial(self._dropped, compaction)))

    def why(self, about: str, conversation: str = "", at: int | None = None) -> str:
        """Say whether something is known, and what forgot it: words, or an event by its id."""
        return _answer(self._about(conversation, partial(self._why, about, at)))

    def recall(
        self,
        query: str = "",
        ids: list[int] | None = None,
        path: str = "",
        conversation: str = "",
    ) -> str:
        """Give back events by words, ids or a file: of one conversation, or by words of all
        (``*``).
        """
        if conversation == _ALL:
            return _answer(self._everywhere(query))
        return _answer(self._about(conversation, partial(self._recalled, query, ids, path)))

    def knew(self, at: int, conversation: str = "") -> str:
        """Say what the agent was sent when the conversation had ``at`` events."""
        return _answer(self._about(conversation, partial(self._knew, at)))

    def sessions(
        self, words: str = "", directory: str = "", since: str = "", limit: int = _LISTED
    ) -> str:
        """List conversations, the last active first: with words in an event, of a folder, since a
        time.
        """
        return _answer(self._sessions(words, directory, since, limit))

    # -- one conversation ----------------------------------------------------------------------

    def _about(self, conversation: str, answer: partial[Iterator[str]]) -> Iterator[str]:
        try:
            asked = self._asking.asked(conversation)
        except Unclear as error:
            listed = [*self._listed(error.choices, "", _LISTED)]
            if listed:
                yield f"{error}. Give the id of your conversation, if it is one of these:"
            else:
                yield f"{error}, and none is known that it could be; 'sessions' lists all"
            yield from listed
            return
        if asked.problem:
            yield f"NOTE: this is of the last import: {_quoted(asked.problem, _LONG)}"
        if asked.agents:
            agents = ", ".join(map(_name, asked.agents[:_LISTED]))
            yield (
                "NOTE: this is of the session itself; a sub-agent that asks gives its own id, one"
                f" of: {agents}"
            )
        if asked.missing is not None:
            yield (
                f"NOTE: a compaction began at {asked.missing.at}, and the program has not written"
                " it yet: what it dropped is missing here, and what follows is how it was before"
            )
        yield from answer(asked)

    def _dropped(self, compaction: int | None, asked: Asked) -> Iterator[str]:
        name = asked.conversation
        version = self._store.version(asked.conversation)
        made = [action.id for action in condensations(self._store, name)]
        compactions = ", ".join(map(str, made)) or "none"
        yield f"{_name(name)}: {version} events; compactions: {compactions}"
        for action_id in made[: -_NEWEST - 1 : -1] if compaction is None else [compaction]:
            found = dropped_by(self._store, self._views, name, action_id)
            if found is not None:
                yield from _of_compaction(found)

    def _why(self, about: str, at: int | None, asked: Asked) -> Iterator[str]:
        name = asked.conversation
        before = "before this compaction: " if asked.missing else ""
        if not _EVENT_ID.fullmatch(about.strip()):
            found = fact(self._store, self._views, name, about, at)
            yield (
                f"{_name(name)} at version {found.version}:"
                f" {before}{printable(found.reason, one_line=True)}"
            )
            others = [event for event in found.events[::-1] if event not in found.known_by]
            for event_id in [*found.known_by[:2], *others][:_NAMES]:
                yield from map(_line, self._event(name, event_id))
            return
        answer = why_sent(self._store, self._views, name, int(about), at)
        was = "it was " if asked.missing else ""
        reason = printable(answer.reason, one_line=True)
        yield f"{_name(name)}, event {about}: {before}{was}{answer.fate}; {reason}"
        yield _line(answer.event)
        if answer.summary is not None:
            yield f"a summary replaced it: {_quoted(answer.summary.content, 4 * _LONG)}"

    def _recalled(
        self, query: str, ids: list[int] | None, path: str, asked: Asked
    ) -> Iterator[str]:
        tool = RecallTool(self._store, self._views, asked.conversation, TOKENS_MAX - 500)
        yield f"{_name(asked.conversation)}:"
        yield tool.recall(query, ids, path)

    def _knew(self, at: int, asked: Asked) -> Iterator[str]:
        name = asked.conversation
        shown = [*sent(self._store, name, self._views.at(name, at)).sent]
        first = shown[:_NEWEST]
        others = shown[_NEWEST:]
        yield f"{_name(name)} at version {at}: {len(shown)} of {at} events were shown: first"
        yield from (_line(event, _SHORT) for event in first)
        yield "and the newest before the others:"
        yield from (_line(event, _SHORT) for event in reversed(others))

    def _event(self, name: str, event_id: int) -> Iterable[Event]:
        wanted = event_id if event_id >= 0 else summary_of(event_id)
        return self._store.events(name, wanted, wanted + 1)

    # -- all conversations ---------------------------------------------------------------------

    def _sessions(self, words: str, directory: str, since: str, limit: int) -> Iterator[str]:
        after = since and moment_of(since)
        wanted = None
        if directory:
            folder = os.path.realpath(os.path.expanduser(directory))
            wanted = {*in_folder(places(self._store), folder, below=True)}
        if not words.strip():
            yield from self._listed(wanted, after, limit)
            return
        found = self._search(words, after or None)
        hits: dict[str, list[Hit]] = {}
        for hit in found.hits:
            hits.setdefault(hit.conversation, []).append(hit)
        named = [name for name in hits if wanted is None or name in wanted]
        for name in named[: max(1, limit)]:
            yield f"{len(hits[name])} events, the newest: {_hit_line(hits[name][0])}"
        yield from _not_searched(found)

    def _everywhere(self, query: str) -> Iterator[str]:
        found = self._search(query)
        yield from map(_hit_line, found.hits)
        yield from _not_searched(found)

    def _search(self, words: str, after: Any = None) -> Searched:
        return search(self._store, words, since=after, limit=_HITS, seconds=_SEARCH_S)

    def _listed(self, wanted: Collection[str] | None, after: Any, limit: int) -> Iterator[str]:
        rows = (
            row
            for row in self._store.iter_conversations()
            if row.erased_at is None and (wanted is None or row.id in wanted)
        )
        newest = nlargest(min(max(1, limit), _HITS), rows, key=lambda row: row.updated_at)
        for row, figures in FiguresOfStore(self._store).of(newest, whole=False):
            if after and row.updated_at < after:
                return
            about = figures.overview
            attributes = about.attributes or {}
            program = attributes.get("program") or about.format
            told = (about.last_event_at, attributes.get("cwd"), about.title)
            events = about.events or row.version
            quoted = _quoted(" ".join(filter(None, told)), _LONG)
            yield f"{_name(row.id)}: {program}, {events} events, {quoted}"


def _of_compaction(found: Dropped) -> Iterator[str]:
    summary = "no summary"
    if found.summary is not None:
        summary = f"a summary of ≈ {estimated(found.summary.content)} tokens"
    at = found.condensation.timestamp
    when = "" if at is None else f" at {at.isoformat(timespec='seconds')}"
    dropped = f"dropped {len(found.events)} events (≈ {found.tokens} tokens)"
    yield f"compaction {found.condensation.id}{when} {dropped}; {summary} stands for them"
    needed = found.needed
    lost = found.terms[: -_NAMES - 1 : -1]
    if needed:
        names = _names(needed[:_NAMES])
        yield f"  {len(needed)} names in no shown event that the agent needed again: {names}"
    if lost:
        yield f"  {len(found.terms)} names stand in no shown event, among them {_names(lost)}"
    asked = [event for event in found.events if label(event) == "user"]
    errors = [event for event in found.events if label(event) == "error"]
    lines = [*map(_line, asked[-_NAMES:]), *map(_line, errors[-_NEWEST:])]
    yield from (f"  {line}" for line in lines)


def _names(terms: Iterable[DroppedTerm]) -> str:
    return ", ".join(f"{clipped(term.term, _SHORT)} [{term.event}]" for term in terms)


def _line(event: Event, length: int = _LONG) -> str:
    masked = " (masked)" if is_masked(event) else ""
    return f"[{event.id}] {label(event)}{masked}: {_quoted(gist(event, length), length)}"


def _hit_line(hit: Hit) -> str:
    return f"{_name(hit.conversation)}, event {hit.id}, {hit.kind}: {_quoted(hit.snippet, _LONG)}"


def _not_searched(found: Searched) -> Iterator[str]:
    if found.read < found.conversations or found.unread:
        read = f"{found.read} of {found.conversations} conversations were searched"
        yield f"{read}, and {len(found.unread)} parts could not be read"


def _name(conversation: str) -> str:
    is_plain = conversation.isascii() and conversation.isprintable() and " " not in conversation
    return f"conversation {conversation if is_plain else json.dumps(conversation)}"


def _quoted(text: str, length: int) -> str:
    """Return a text of the past on one line, in quotation marks that it cannot end."""
    text = printable(" ".join(text.split()), one_line=True)
    return json.dumps(clipped(text, length), ensure_ascii=False)


def _answer(lines: Iterable[str]) -> str:
    """Return as many of the first lines as an answer may have."""
    answer = list[str]()
    room = TOKENS_MAX - 60
    left = 0
    try:
        for line in lines:
            room -= estimated(line) + 1
            if room >= 0:
                answer.append(line)
            else:
                left += 1
    except (EventStoreError, ValueError) as error:
        return f"cannot be answered: {_quoted(str(error), _ERROR_MAX)}"
    if left:
        answer.append(f"… {left} more; ask for a narrower part")
    return "\n".join(answer) or "nothing matches"
