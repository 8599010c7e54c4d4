"""A tool with which an agent reads what was forgotten: the log still has it."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import islice
from textwrap import indent
from typing import Any, NamedTuple

from foldlog._search import SearchTerms, events_with
from foldlog._values import parsed, texts_in
from foldlog.eventstore import (
    Action,
    ConversationNotFound,
    Event,
    InvalidArgument,
    Observation,
    Store,
    SystemMessage,
)
from foldlog.eventstore.inside import check_whole, has_content, is_structural
from foldlog.projections import Dialect, Views, contains, intervals_kept
from foldlog.projections.messages.turns import checked

TOKENS_LEAST = 300
TOKENS = 2_000
_SHOWN_MOST = 8
_NAMED_MOST = 10
_LENGTH_LEAST = 40
_LENGTH_GOOD = 480
_LENGTHS_TRIED = 512
_ANSWERED_WITHIN = 200
"""A call without a cause in its result is looked for among this many events before it, or after it
for its result.
"""
_OWN_NAME = re.compile(r"recall|.*foldlog\W*_*(recall|why|dropped|knew|sessions)")
"""The names that runtimes and programs give this tool, and the tools of ``foldlog mcp``."""

_DESCRIPTION = (
    "Read earlier events of this conversation that are no longer shown to you, such as the result"
    " of a call, a message or a file as you read it. Give one of: query, words to search for; ids,"
    " the numbers in brackets at the ends of lines of a summary; path, a file that you read or"
    " changed."
)
_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "Words to search for; the events with most of them come first.",
        },
        "ids": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "Ids of events to read.",
        },
        "path": {
            "type": "string",
            "description": "A file: the calls that named it, with their results.",
        },
    },
    "additionalProperties": False,
}


class _Found(NamedTuple):
    event: Event
    text: str
    place: int
    """Where in the text what was searched for stands."""


class RecallTool:
    """The tool ``recall(query | ids | path)`` over one conversation: ``History.recall_tool`` makes
    it.

    Offer ``schema()`` to the model, and answer its call with ``history.append_tool_result(call,
    tool(call))``. An SDK that makes tools of functions takes ``tool.recall``. Words are searched
    for as ``Histories.search`` does; files in base64 are found by their ids. Events that were taken
    back or redacted, system prompts and earlier results of this tool and of ``foldlog mcp`` are not
    found.
    """

    name = "recall"
    hint = (
        "Summaries stand for earlier events; recall(query | ids | path) reads the events"
        " themselves."
    )
    """A line for the system prompt."""

    def __init__(
        self, store: Store, views: Views, conversation: str, max_tokens: int = TOKENS
    ) -> None:
        self._store = store
        self._views = views
        self._id = conversation
        self.max_tokens = check_whole("max_tokens", max_tokens, TOKENS_LEAST)

    def schema(self, dialect: Dialect = "openai") -> dict[str, Any]:
        """Return the tool as servers of this dialect take it. Raises ``ValueError`` for another
        dialect.
        """
        about = {"name": self.name, "description": _DESCRIPTION}
        if checked(dialect).startswith("anthropic"):
            return {**about, "input_schema": deepcopy(_PARAMETERS)}
        told = {**about, "parameters": deepcopy(_PARAMETERS)}
        if dialect == "responses":
            return {"type": "function", **told}
        return {"type": "function", "function": told}

    def __call__(self, call: Action | Mapping[str, Any] | str) -> str:
        """Return the result of a call: the action, or its arguments as a map or as the text that
        the model wrote.

        Arguments that cannot be used give a result that says so to the model. Raises what
        ``recall`` raises.
        """
        given: Any = call.arguments if isinstance(call, Action) else call
        if isinstance(given, str):
            given = parsed(given or "{}")
        if not isinstance(given, Mapping) or given.keys() - _PARAMETERS["properties"].keys():
            return (
                "recall takes query, ids or path as a JSON object; these arguments were given:"
                f" {str(given)[:200]}"
            )
        query = given.get("query") or ""
        ids = given.get("ids") or []
        path = given.get("path") or ""
        ids = [ids] if isinstance(ids, int) else ids
        if not (isinstance(query, str) and isinstance(path, str)):
            return "recall takes query and path as texts"
        if not (isinstance(ids, list) and all(type(each) is int for each in ids)):
            return "recall takes ids as a list of whole numbers"
        return self.recall(query, ids, path)

    def recall(self, query: str = "", ids: list[int] | None = None, path: str = "") -> str:
        """Read earlier events of this conversation that are no longer shown. Give one of query, ids
        and path.

        Args:
            query: Words to search for; the events with most of them come first.
            ids: Ids of events: the numbers in brackets at the ends of lines of a summary.
            path: A file: the calls that named it, with their results, the newest first.

        Returns:
            The events with their ids, cut so that the text has at most ``max_tokens`` estimated
            tokens.
        """
        if bool(query.strip()) + bool(ids) + bool(path.strip()) != 1:
            return "recall takes one of query, ids and path"
        unread = list[str]()
        try:
            if ids:
                return self._by_ids(list(dict.fromkeys(ids)))
            if path.strip():
                found = self._by_path(path.strip(), unread)
            else:
                found = self._by_words(query, unread)
        except (
            ConversationNotFound,
            InvalidArgument,
        ):  # there is no event, or no word to search for
            found = []
        if len(found) > 1:
            note = f"{len(found)} events found"
        else:
            note = "one event found"
        note = note if found else "no event of this conversation has that"
        if unread:
            note += f"; {len(unread)} could not be read"
        return self._fitted(found, note) if found else note

    def _by_ids(self, ids: Sequence[int]) -> str:
        version = self._store.conversation(self._id).version
        found: dict[int, _Found] = {}
        for event_id in ids:
            one = (
                self._store.events(self._id, event_id, event_id + 1)
                if 0 <= event_id < version
                else ()
            )
            for event in self._readable(one):
                found[event_id] = _Found(event, _text(event), 0)
        unknown = [event_id for event_id in ids if event_id not in found]
        if unknown:
            missed = f"not to be read: {', '.join(map(str, unknown[:_NAMED_MOST]))}"
        else:
            missed = ""
        return self._fitted([*found.values()], missed) if found else missed

    def _by_words(self, query: str, unread: list[str]) -> list[_Found]:
        """Return the events with words of the query: those with most of them first, of these
        forgotten ones, of these the newest.
        """
        words = SearchTerms(query, every=False)
        in_view = {event.id for event in self._views.current(self._id)}
        ranked = []
        for event in self._readable(events_with(self._store, self._id, words, unread, _text)):
            text = _text(event)
            if places := words.places_in(text):
                rank = len(places), event.id not in in_view, event.id
                ranked.append((rank, _Found(event, text, min(places))))
        return [
            found for _, found in sorted(ranked, key=lambda ranked_one: ranked_one[0], reverse=True)
        ]

    def _by_path(self, path: str, unread: list[str]) -> list[_Found]:
        """Return the calls that name this file, the newest first, each before its result. The
        results of more calls than are shown are not looked for.
        """
        named = re.compile(rf"(?<![\w.-]){re.escape(path)}(?!\w)").search
        with_words = self._readable(
            events_with(self._store, self._id, SearchTerms(f'"{path}"'), unread, _text)
        )
        calls = [
            e
            for e in with_words
            if isinstance(e, Action) and any(map(named, texts_in(parsed(e.arguments))))
        ]
        found = list[Event]()
        for call in reversed(calls):
            found.append(call)
            if len(found) <= _SHOWN_MOST:
                found += self._readable(self._result_of(call))
        return [_Found(event, _text(event), 0) for event in found]

    def _readable(self, events: Iterable[Event]) -> list[Event]:
        """Return the events that the tool may show: what a model was shown and was not taken back,
        without its own.
        """
        kept = self._kept(self._store.conversation(self._id).version)
        shown = (event for event in events if _is_told(event) and contains(kept, event.id))
        return [event for event in shown if not self._is_own(event)]

    def _is_own(self, event: Event) -> bool:
        """Return whether an event is a call of a tool that reads the past, or the result of such a
        call.
        """
        call = self._call_of(event) if isinstance(event, Observation) else event
        return (
            isinstance(call, Action)
            and call.source == "agent"
            and bool(_OWN_NAME.fullmatch(call.tool))
        )

    def _call_of(self, result: Observation) -> Event | None:
        if result.cause is not None:
            return next(iter(self._store.events(self._id, result.cause, result.cause + 1)), None)
        before = self._store.events(
            self._id, max(0, result.id - _ANSWERED_WITHIN), result.id, reverse=True
        )
        return next(
            (
                event
                for event in before
                if isinstance(event, Action) and event.call_id == result.call_id
            ),
            None,
        )

    def _result_of(self, call: Action) -> list[Event]:
        later = self._store.events(self._id, call.id + 1, call.id + 1 + _ANSWERED_WITHIN)
        results = (event for event in later if isinstance(event, Observation))
        own = (
            event
            for event in results
            if event.cause == call.id or (event.cause is None and _answers(event, call))
        )
        return [*islice(own, 1)]

    def _kept(self, version: int) -> Any:
        return self._store.query(
            self._id, lambda reading: intervals_kept(reading.structural_events(0, version), version)
        )

    def _fitted(self, found: Sequence[_Found], note: str) -> str:
        """Return as much of the first events as fits, each cut to the same length, and the ids of
        the others.
        """
        from foldlog.condensers.models.estimate import estimated

        def told(count: int, length: int) -> str:
            others = [str(each.event.id) for each in found[count:]]
            more = ", …" if len(others) > _NAMED_MOST else ""
            if others:
                named = f"to be read by their ids: {', '.join(others[:_NAMED_MOST])}{more}"
            else:
                named = ""
            head = "; ".join(filter(None, (note, named)))
            blocks = (_block(each, length) for each in found[:count])
            return "\n\n".join(filter(None, (head, *blocks)))

        def tokens(count: int, length: int) -> int:
            return estimated(told(count, length))

        for count in range(min(_SHOWN_MOST, len(found)), 0, -1):
            longest = max(len(each.text) for each in found[:count])
            lengths = [
                *range(_LENGTH_LEAST, longest, max(1, longest // _LENGTHS_TRIED)),
                max(longest, _LENGTH_LEAST),
            ]
            fitting = bisect_right(lengths, self.max_tokens, key=partial(tokens, count))
            if fitting and (lengths[fitting - 1] >= min(longest, _LENGTH_GOOD) or count == 1):
                return told(count, lengths[fitting - 1])
        return told(0, 0)


def _answers(result: Observation, call: Action) -> bool:
    return call.call_id is not None and result.call_id == call.call_id


def _is_told(event: Event) -> bool:
    return (
        event.shown
        and has_content(event)
        and not isinstance(event, SystemMessage)
        and not is_structural(event)
    )


def _text(event: Event) -> str:
    from foldlog.condensers.prompts.rendering import event_text

    return event_text(event)


def _block(found: _Found, length: int) -> str:
    """Return an event with its id. Its text is indented, so that no line of it can pass for one of
    ours.
    """
    return f"[event {found.event.id}]\n{indent(_cut(found, length), '  ')}"


def _cut(found: _Found, length: int) -> str:
    """Return this many characters of the text: both its ends, or those around the place that was
    found.
    """
    from foldlog.condensers.prompts.rendering import truncated

    text = found.text
    place = found.place
    if len(text) <= length or place < length // 2:
        return truncated(text, length)
    start = min(place - length // 3, len(text) - length)
    return f"[… from character {start} of {len(text)}] {text[start : start + length]}"
