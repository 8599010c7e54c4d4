"""The five tools of ``foldlog mcp``. The tools tell what a compaction dropped, why an agent does
not know something, and which events a conversation has.

An answer is a text of at most 2,000 estimated tokens, with ids for further questions. Texts of
conversations are quoted or indented, so that they cannot pass for foldlog's own words.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from heapq import nlargest

from foldlog._app.coding_agents.asked_conversation import Asked, Asking, Unclear
from foldlog._reports.answers.views import DroppedTermDocument
from foldlog._reports.as_sent import sent, why_sent
from foldlog._reports.dropped import Dropped, condensations, dropped_by
from foldlog._reports.facts import fact
from foldlog._reports.figures.documents import tasks_of
from foldlog._reports.figures.of_store import FiguresOfStore
from foldlog._reports.figures.source_places import in_folder, places
from foldlog._reports.hand_overs import hand_overs
from foldlog._reports.search.recall_tool import RecallTool
from foldlog._reports.search.searching import Hit, Searched, search
from foldlog._reports.words.gist import count, count_shown, gist, task_words
from foldlog._reports.words.safe_text import printable
from foldlog._reports.words.times import moment_of
from foldlog.condensers import is_masked
from foldlog.condensers.models.estimate import estimate
from foldlog.condensers.prompts.rendering import clip_line
from foldlog.eventstore import CorruptEvent, Event, EventStoreError, Store, summary_of
from foldlog.projections import NoSuchEvent, Views
from foldlog.projections.conversations.labels import label

TOKENS_MAX = 2_000
"""The maximum number of estimated tokens of an answer."""
_OF_LAST_LINE = 60
"""The tokens that an answer keeps for its last line, which says how much was left out."""
_OF_FIRST_LINES = 500
"""The tokens that ``recall`` keeps for the lines before its events."""
_SHORT = 100
"""The maximum number of characters of a short line about an event."""
_LONG = 240
"""The maximum number of characters of a line about an event."""
_ERROR_MAX = 300
"""The maximum number of characters of an error."""
_NEWEST = 3
"""The number of compactions that ``dropped`` describes by default."""
_NAMES = 12
"""The maximum number of names or user messages in the description of a compaction."""
_HITS_MAX = 50
"""The number of hits that a search returns: more do not fit into an answer."""
_LISTED = 10
"""The number of conversations in a list by default."""
_LISTED_MAX = 50
"""The number of conversations that a list can have: more do not fit into an answer."""
_COUNTED_MAX = 50
"""The number of conversations whose figures a tool counts at most before it answers. A store that
was never counted would otherwise make the coding agent wait until all its events are read.
"""
_SEARCH_S = 5.0
"""A search ends after this time, and the answer says how much it read."""
_ALL = "*"
"""The conversation that stands for all conversations."""
_EVENT_ID = re.compile(r"-?[0-9]{1,18}")


class Answers:
    """The tools of one store. Every method returns a text. If a question has no answer, the text
    says so.
    """

    def __init__(self, store: Store, asking: Asking) -> None:
        self._store = store
        self._asking = asking
        self._views = Views(store)

    def dropped(self, conversation: str = "", compaction: int | None = None) -> str:
        """Return what a compaction dropped. Without the id of a compaction, describe the newest
        compactions.
        """
        return _answer(
            self._answer_about(conversation, partial(self._describe_dropped, compaction))
        )

    def why(self, about: str, conversation: str = "", at: int | None = None) -> str:
        """Explain why the agent knows, or does not know, some words or an event."""
        return _answer(self._answer_about(conversation, partial(self._why, about, at)))

    def recall(
        self,
        query: str = "",
        ids: list[int] | None = None,
        path: str = "",
        conversation: str = "",
    ) -> str:
        """Return events of a conversation by words, ids or a file. If ``conversation`` is ``*``,
        search ``query`` in all conversations.
        """
        if conversation == _ALL:
            return _answer(self._everywhere(query))
        return _answer(self._answer_about(conversation, partial(self._recall, query, ids, path)))

    def knew(self, at: int, conversation: str = "") -> str:
        """Return the events that the agent was shown at a version."""
        return _answer(self._answer_about(conversation, partial(self._knew, at)))

    def sessions(
        self, words: str = "", directory: str = "", since: str = "", limit: int = _LISTED
    ) -> str:
        """List conversations. The conversation that was active last comes first. The arguments
        select conversations:

            words      an event has these words
            directory  the agent ran in this folder
            since      the conversation was active since this time
        """
        return _answer(self._sessions(words, directory, since, limit))

    # -- one conversation ----------------------------------------------------------------------

    def _answer_about(self, conversation: str, answer: partial[Iterator[str]]) -> Iterator[str]:
        """Yield the lines of an answer about the conversation that the caller means, with notes
        about its state. If that is unclear, list the conversations that the caller may mean.
        """
        try:
            subject = self._asking.find(conversation)
        except Unclear as error:
            choices = [*self._list_lines(error.choices, None, _LISTED)]
            if choices:
                yield f"{error}. If your conversation is one of these, call again with its id:"
            else:
                yield f"{error}, and no conversation fits; 'sessions' lists all"
            yield from choices
            return
        if subject.problem:
            yield f"NOTE: this is the state of the last import: {_quote(subject.problem, _LONG)}"
        if subject.agents:
            agents = ", ".join(map(_name, subject.agents[:_LISTED]))
            yield (
                "NOTE: this is about the session itself. If you are a sub-agent, call again with "
                f"your own id, one of: {agents}"
            )
        if subject.missing is not None:
            yield (
                f"NOTE: a compaction began at {subject.missing}, but the program has not "
                f"written it to the transcript yet; this is the state before this compaction"
            )
        yield from answer(subject)

    def _describe_dropped(self, compaction: int | None, subject: Asked) -> Iterator[str]:
        """Yield what a compaction dropped, or what the newest compactions dropped."""
        name = subject.conversation
        version = self._store.version(subject.conversation)
        compaction_ids = [action.id for action in condensations(self._store, name)]
        compactions = ", ".join(map(str, compaction_ids)) or "none"
        yield f"{_name(name)}: {count(version, 'event')}; compactions: {compactions}"
        newest_first = compaction_ids[::-1]
        described = newest_first[:_NEWEST] if compaction is None else [compaction]
        for action_id in described:
            dropped = dropped_by(self._store, self._views, name, action_id)
            if dropped is not None:
                yield from _compaction_lines(dropped)

    def _why(self, about: str, at: int | None, subject: Asked) -> Iterator[str]:
        """Yield whether the agent knows some words or an event, and why."""
        name = subject.conversation
        about = about.strip()
        before = "before this compaction: " if subject.missing else ""
        if not _EVENT_ID.fullmatch(about):
            yield from self._why_words(about, at, name, before)
            return
        try:
            answer = why_sent(self._store, self._views, name, int(about), at)
        except NoSuchEvent as error:
            yield f"cannot be answered: {_quote(str(error), _ERROR_MAX)}"
            yield f'to ask about the text {about}, put it in double quotes: "{about}"'
            return
        prefix = "it was " if subject.missing else ""
        reason = printable(answer.reason, one_line=True)
        yield f"{_name(name)}, event {about}: {before}{prefix}{answer.fate}; {reason}"
        yield _line(answer.event)
        if answer.summary is not None:
            yield f"a summary replaced it: {_quote(answer.summary.content, 4 * _LONG)}"

    def _why_words(self, words: str, at: int | None, name: str, before: str) -> Iterator[str]:
        """Yield whether the agent knows some words, the events with them, and what its sub-agents
        know of them.
        """
        result = fact(self._store, self._views, name, words, at)
        reason = printable(result.reason, one_line=True)
        yield f"{_name(name)} at version {result.version}: {before}{reason}"
        newest_first = result.events[::-1]
        others = [event_id for event_id in newest_first if event_id not in result.known_by]
        for event_id in [*result.known_by[:2], *others][:_NAMES]:
            yield from map(_line, self._event(name, event_id))
        trees = self._figures().trees
        if trees.children(name):
            _, *sub_agents = hand_overs(self._store, self._views, trees, name, words).agents
            for agent in sub_agents:
                agent_reason = _quote(agent.reason, 2 * _LONG)
                yield f"sub-agent {_name(agent.conversation)}: {agent_reason}"

    def _recall(
        self, query: str, ids: list[int] | None, path: str, subject: Asked
    ) -> Iterator[str]:
        """Yield what the tool ``recall`` answers."""
        room = TOKENS_MAX - _OF_FIRST_LINES
        tool = RecallTool(self._store, self._views, subject.conversation, room)
        yield f"{_name(subject.conversation)}:"
        yield tool.recall(query, ids, path)

    def _knew(self, at: int, subject: Asked) -> Iterator[str]:
        """Yield the first events that were sent at a version, and then the others, the newest
        first, because the end of a long answer is left out.
        """
        name = subject.conversation
        shown_events = [*sent(self._store, name, self._views.at(name, at)).sent]
        first = shown_events[:_NEWEST]
        others = shown_events[_NEWEST:]
        yield (
            f"{_name(name)} at version {at}: {len(shown_events)} of {count(at, 'event')} shown."
            " First events:"
        )
        yield from (_line(event, _SHORT) for event in first)
        yield "The other events, the newest first:"
        yield from (_line(event, _SHORT) for event in reversed(others))

    def _event(self, name: str, event_id: int) -> Iterable[Event]:
        """Return the event with an id. For a summary, it is the condensation that made it."""
        stored_id = event_id if event_id >= 0 else summary_of(event_id)
        return self._store.events(name, stored_id, stored_id + 1)

    # -- all conversations ---------------------------------------------------------------------

    def _sessions(self, words: str, directory: str, since: str, limit: int) -> Iterator[str]:
        """Yield the conversations that the arguments select."""
        after = moment_of(since) if since else None
        in_folder_ids = None
        if directory:
            folder = os.path.realpath(os.path.expanduser(directory))
            damaged = dict[str, CorruptEvent]()
            in_folder_ids = {*in_folder(places(self._store, damaged), folder, below=True)}
            for name, error in damaged.items():
                yield (
                    f"{_name(name)} may be of this folder too, but its source is damaged"
                    f" ({error.problem})"
                )
        if not words.strip():
            yield from self._list_lines(in_folder_ids, after, limit)
            return
        most = min(max(1, limit), _LISTED_MAX)
        result = search(
            self._store,
            words,
            among=in_folder_ids,
            since=after,
            limit=most * _HITS_MAX,
            limit_each=_HITS_MAX,
            seconds=_SEARCH_S,
        )
        hits: dict[str, list[Hit]] = {}
        for hit in result.hits:
            hits.setdefault(hit.conversation, []).append(hit)
        for name in [*hits][:most]:
            (newest,) = self._hit_lines(hits[name][:1])
            or_more = " or more" if len(hits[name]) == _HITS_MAX else ""
            yield f"{count(len(hits[name]), 'event')}{or_more}, the newest: {newest}"
        yield from _unsearched_lines(result)

    def _everywhere(self, query: str) -> Iterator[str]:
        """Yield the events with some words, in all conversations."""
        result = search(self._store, query, limit=_HITS_MAX, seconds=_SEARCH_S)
        yield from self._hit_lines(result.hits)
        yield from _unsearched_lines(result)

    def _hit_lines(self, hits: Sequence[Hit]) -> Iterator[str]:
        """Yield a line for each hit."""
        tasks = tasks_of(self._store, (hit.conversation for hit in hits))
        for hit in hits:
            name = _name(hit.conversation)
            if hit.conversation in tasks:
                name += f" in the task of {_name(tasks[hit.conversation])}"
            yield f"{name}, event {hit.id}, {hit.kind}: {_quote(hit.snippet, _LONG)}"

    def _figures(self) -> FiguresOfStore:
        """Return the figures of the store, with some new conversations counted."""
        figures = FiguresOfStore(self._store, is_quick=True)
        figures.refresh(_COUNTED_MAX)
        return figures

    def _list_lines(
        self, wanted_ids: Collection[str] | None, after: datetime | None, limit: int
    ) -> Iterator[str]:
        """Yield a line for each conversation, the one that was active last first."""
        rows = (
            row
            for row in self._store.iter_conversations()
            if row.erased_at is None and (wanted_ids is None or row.id in wanted_ids)
        )
        newest = nlargest(min(max(1, limit), _LISTED_MAX), rows, key=lambda row: row.updated_at)
        figures_of_store = self._figures()
        for row, figures in figures_of_store.of(newest, whole=False):
            if after and row.updated_at < after:
                return
            overview = figures.overview
            attributes = overview.attributes or {}
            program = attributes.get("program") or overview.format
            parts = (overview.last_event_at, attributes.get("cwd"), overview.title)
            events = overview.events or row.version
            quoted = _quote(" ".join(filter(None, parts)), _LONG)
            task = figures_of_store.tasks([figures]).get(row.id)
            of_task = f", {task_words(task)}" if task else ""
            yield f"{_name(row.id)}: {program}, {count(events, 'event')}, {quoted}{of_task}"


def _compaction_lines(dropped: Dropped) -> Iterator[str]:
    """Yield what a compaction dropped: its size, names, messages of the user, and errors."""
    summary = "no summary"
    if dropped.summary is not None:
        summary = f"a summary of ≈ {estimate(dropped.summary.content)} tokens"
    at = dropped.condensation.timestamp
    when = "" if at is None else f" at {at.isoformat(timespec='seconds')}"
    counts = f"dropped {count_shown(dropped.ids)} (≈ {dropped.tokens} tokens)"
    yield f"compaction {dropped.condensation.id}{when} {counts}; {summary} replaces them"
    needed = dropped.needed
    last_terms = dropped.terms[::-1][:_NAMES]
    if needed:
        names = _names(needed[:_NAMES])
        yield f"  {count(len(needed), 'dropped name')} that the agent needed again: {names}"
    if last_terms:
        names = _names(last_terms)
        yield f"  {count(len(dropped.terms), 'name')} dropped, among them {names}"
    requests = [event for event in dropped.events if label(event) == "user"]
    errors = [event for event in dropped.events if label(event) == "error"]
    lines = [*map(_line, requests[-_NAMES:]), *map(_line, errors[-_NEWEST:])]
    yield from (f"  {line}" for line in lines)


def _names(terms: Iterable[DroppedTermDocument]) -> str:
    """Return terms with the ids of their events."""
    return ", ".join(f"{clip_line(term.term, _SHORT)} [{term.event}]" for term in terms)


def _line(event: Event, length: int = _LONG) -> str:
    """Return an event as one line."""
    masked = " (masked)" if is_masked(event) else ""
    return f"[{event.id}] {label(event)}{masked}: {_quote(gist(event, length), length)}"


def _unsearched_lines(result: Searched) -> Iterator[str]:
    """Yield a line if a search has not read everything."""
    if result.read < result.conversations or result.unread:
        read = f"searched {result.read} of {count(result.conversations, 'conversation')}"
        yield f"{read}; {count(len(result.unread), 'part')} could not be read"


def _name(conversation: str) -> str:
    """Return a conversation by its id. An id that could pass for other words is quoted."""
    is_plain = conversation.isascii() and conversation.isprintable() and " " not in conversation
    return f"conversation {conversation if is_plain else json.dumps(conversation)}"


def _quote(text: str, length: int) -> str:
    """Return a text of a conversation on one line in quotation marks. Quotation marks in the text
    are escaped.
    """
    text = printable(" ".join(text.split()), one_line=True)
    return json.dumps(clip_line(text, length), ensure_ascii=False)


def _answer(lines: Iterable[str]) -> str:
    """Join the lines of an answer. Lines beyond ``TOKENS_MAX`` are counted."""
    answer = list[str]()
    room = TOKENS_MAX - _OF_LAST_LINE
    left_out = 0
    try:
        for line in lines:
            room -= estimate(line) + 1
            if room >= 0:
                answer.append(line)
            else:
                left_out += 1
    except (EventStoreError, ValueError) as error:
        return f"cannot be answered: {_quote(str(error), _ERROR_MAX)}"
    if left_out:
        answer.append(f"… {left_out} more; ask for a narrower part")
    return "\n".join(answer) or "nothing matches"
