"""The five tools of ``foldlog mcp``: what compaction dropped, why something is not known, and the events themselves.

Each answer is a text of at most 2,000 estimated tokens, with ids for more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path

from foldlog._history.facts import fact
from foldlog._history.recall import RecallTool
from foldlog._kinds import label
from foldlog._programs.asking import Asked, Asking, Unclear
from foldlog._reports.as_sent import sent, why_sent
from foldlog._reports.dropped import Dropped, condensations, dropped_by
from foldlog._reports.places import in_folder
from foldlog._reports.stored_figures import StoredFigures
from foldlog._search import search
from foldlog._words.gist import gist
from foldlog._words.times import moment_of
from foldlog.condensers import is_masked
from foldlog.condensers.models.estimate import estimated
from foldlog.eventstore import (
    Event,
    EventStoreError,
    InvalidArgument,
    Message,
    Observation,
    Store,
    summary_of,
)
from foldlog.projections import Views

TOKENS_MAX = 2_000
_LINE, _SHORT = 240, 100
_NEWEST = 3
"""Compactions that are told of in full where none is named."""
_EACH = 8
"""User's words, errors and names of each."""
_HITS = 50
_SEARCH_S = 5.0
_ALL = "*"


class Answers:
    """The tools over one store. Every method returns a text; it never raises for a question that cannot be answered."""

    def __init__(self, store: Store, asking: Asking) -> None:
        self._store, self._asking, self._views = store, asking, Views(store)

    def dropped(self, conversation: str = "", compaction: int | None = None) -> str:
        """Say what compactions dropped: the newest ones, or one by its id."""
        return self._answered(conversation, partial(self._dropped, compaction))

    def why(self, about: str, conversation: str = "", at: int | None = None) -> str:
        """Say whether something is known, and what forgot it: words, or an event by its id."""
        return self._answered(conversation, partial(self._why, about, at))

    def recall(self, query: str = "", ids: Sequence[int] | None = None, path: str = "", conversation: str = "") -> str:
        """Give back events by words, ids or a file: of one conversation, or by words of all (``*``)."""
        if conversation == _ALL:
            return self._found(query) if query else "to read ids or a path, name one conversation"
        return self._answered(conversation, partial(self._recalled, query, ids, path))

    def knew(self, at: int, conversation: str = "") -> str:
        """Say what the agent was sent when the conversation had ``at`` events."""
        return self._answered(conversation, partial(self._knew, at))

    def sessions(self, words: str = "", directory: str = "", since: str = "", limit: int = 10) -> str:
        """List conversations, the last active first: those with words in an event, of a folder, since a time."""
        try:
            after = None if not since else moment_of(since)
            wanted = None if not directory else {*in_folder(self._asking.places(), _real(directory), below=True)}
            most = max(1, limit)
            lines = self._with_words(words, wanted, after) if words.strip() else self._listed(wanted, after, most)
            return _fitted([*islice(lines, most)]) or "no conversation matches"
        except (EventStoreError, ValueError) as error:
            return f"cannot be answered: {error}"

    # -- one conversation ---------------------------------------------------------------------------------------------

    def _answered(self, conversation: str, answer: partial[Iterator[str]]) -> str:
        try:
            asked = self._asking.asked(conversation)
            return _fitted([*(f"NOTE: {note}" for note in asked.notes), *answer(asked)])
        except Unclear as error:
            return str(error)
        except (EventStoreError, ValueError) as error:
            return f"cannot be answered: {error}"

    def _dropped(self, compaction: int | None, asked: Asked) -> Iterator[str]:
        name, version = asked.conversation, self._store.version(asked.conversation)
        made = [action.id for action in condensations(self._store, name)]
        if compaction is not None:
            made = [compaction]
        if not made:
            yield f"{name}: no compaction in {version} events; all are shown"
            return
        shown = len(self._views.current(name))
        yield f"{name}: {version} events, {shown} shown now, {len(made)} compactions: {', '.join(map(str, made))}"
        for action_id in made[: -_NEWEST - 1 : -1]:
            found = dropped_by(self._store, self._views, name, action_id)
            if found is not None:
                yield from _of_compaction(found)
        yield "read any of these: recall(ids=[…])"

    def _why(self, about: str, at: int | None, asked: Asked) -> Iterator[str]:
        name, before = asked.conversation, "before this compaction: " if asked.missing else ""
        if about.strip().lstrip("-").isdigit():
            answer = why_sent(self._store, self._views, name, int(about), at)
            fate = f"it was {answer.fate}" if asked.missing else answer.fate
            yield f"{name}, event {about}: {before}{fate}; {answer.reason}"
            yield _line(answer.event)
            if answer.summary is not None:
                yield f"a summary replaced it: {_cut(answer.summary.content, 4 * _LINE)}"
            return
        found = fact(self._store, self._views, name, about, at)
        yield f"{name} at version {found.version}: {before}{found.reason}"
        for event_id in (*found.known_by[:2], *(i for i in found.events[::-1] if i not in found.known_by))[:_EACH]:
            yield from map(_line, self._event(name, event_id))

    def _recalled(self, query: str, ids: Sequence[int] | None, path: str, asked: Asked) -> Iterator[str]:
        tool = RecallTool(self._store, self._views, asked.conversation, TOKENS_MAX - 200)
        yield f"{asked.conversation}:"
        yield tool.recall(query, None if ids is None else [*ids], path)

    def _knew(self, at: int, asked: Asked) -> Iterator[str]:
        name = asked.conversation
        view = sent(self._store, name, self._views.at(name, at)).sent
        rows = [_line(event, _SHORT) for event in view]
        yield f"{name} at version {at}: {len(rows)} of {at} events were shown, the newest last"
        room, kept = TOKENS_MAX - 300, list[str]()
        for row in (*rows[:_NEWEST], *rows[_NEWEST:][::-1]):
            room -= estimated(row) + 1
            if room < 0:
                break
            kept.append(row)
        yield from kept[:_NEWEST]
        if len(kept) < len(rows):
            yield f"… {len(rows) - len(kept)} between"
        yield from kept[_NEWEST:][::-1]

    def _event(self, name: str, event_id: int) -> list[Event]:
        wanted = event_id if event_id >= 0 else summary_of(event_id)
        return [*self._store.events(name, wanted, wanted + 1)]

    # -- all conversations --------------------------------------------------------------------------------------------

    def _found(self, query: str) -> str:
        try:
            found = search(self._store, query, limit=_HITS, seconds=_SEARCH_S)
        except InvalidArgument as error:
            return str(error)
        lines = [f"{hit.conversation} [{hit.id}] {hit.kind}: {hit.snippet}" for hit in found.hits]
        lines += [] if found.read == found.conversations else [_unread(found.read, found.conversations)]
        return _fitted(lines) or "no event of any conversation has that"

    def _with_words(self, words: str, wanted: set[str] | None, after: datetime | None) -> Iterator[str]:
        found = search(self._store, words, since=after, limit=_HITS, seconds=_SEARCH_S)
        hits = Counter(hit.conversation for hit in found.hits)
        snippets = {hit.conversation: hit.snippet for hit in reversed(found.hits)}
        for name, number in hits.items():
            if wanted is None or name in wanted:
                yield f"{name} ({number} events): {_cut(snippets[name], _LINE)}"
        if found.read < found.conversations:
            yield _unread(found.read, found.conversations)

    def _listed(self, wanted: set[str] | None, after: datetime | None, limit: int) -> Iterator[str]:
        known = self._asking.places()
        rows = [row for row in self._store.iter_conversations() if row.erased_at is None]
        rows = [
            row for row in rows if (wanted is None or row.id in wanted) and (after is None or row.updated_at >= after)
        ]
        rows.sort(key=lambda row: row.updated_at, reverse=True)
        for row, figures in StoredFigures(self._store).of(rows[:limit], whole=False):
            about, place = figures.overview, known.get(row.id, {})
            where = " ".join(filter(None, (place.get("program") or about.format, place.get("cwd"))))
            last, title = (about.last_event_at or "")[:16], _cut(about.title or "", _SHORT)
            yield f"{row.id}: {about.events or row.version} events, {last}, {where}: {title}"


def _of_compaction(found: Dropped) -> Iterator[str]:
    action = found.condensation
    kinds = ", ".join(f"{number} {kind}" for kind, number in Counter(map(label, found.events)).most_common())
    instead = "no summary" if found.summary is None else f"a summary of ≈ {estimated(found.summary.content)} tokens"
    when = "" if action.timestamp is None else f" at {action.timestamp.isoformat(timespec='seconds')}"
    yield (
        f"compaction {action.id}{when} dropped {len(found.events)} events (≈ {found.tokens} tokens): {kinds}; "
        f"{instead} stands for them"
    )
    if found.needed:
        named = ", ".join(f"{term.term} [{term.event}]" for term in found.needed[:_EACH])
        yield f"  {len(found.needed)} names in no shown event that the agent needed again: {named}"
    users = [event for event in found.events if isinstance(event, Message) and event.source == "user"]
    for event in users[-_EACH:]:
        yield f"  user {_line(event)}"
    errors = [event for event in found.events if isinstance(event, Observation) and event.is_error]
    for error in errors[-_NEWEST:]:
        yield f"  error {_line(error)}"
    again = {term.term for term in found.needed}
    lost = [term for term in found.terms[::-1] if term.term not in again]
    if lost:
        named = ", ".join(f"{term.term} [{term.event}]" for term in lost[: 2 * _EACH])
        yield f"  {len(found.terms)} names stand in no shown event, among them {named}"


def _line(event: Event, length: int = _LINE) -> str:
    masked = " (masked)" if is_masked(event) else ""
    return f"[{event.id}] {label(event)}{masked}: {gist(event, length)}"


def _cut(text: str, length: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _fitted(lines: Sequence[str]) -> str:
    """Return as many lines as an answer may have."""
    text = "\n".join(lines)
    if estimated(text) <= TOKENS_MAX:
        return text
    kept, room = list[str](), TOKENS_MAX - 60
    for line in lines:
        room -= estimated(line) + 1
        if room < 0:
            break
        kept.append(line)
    return "\n".join([*kept, f"… {len(lines) - len(kept)} more; ask for a narrower part"])


def _unread(read: int, conversations: int) -> str:
    return f"only {read} of {conversations} conversations were read: `foldlog search --all` reads all"


def _real(directory: str) -> str:
    return str(Path(directory).expanduser().resolve())
