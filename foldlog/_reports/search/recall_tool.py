"""A tool with which an agent reads forgotten events in the log."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from itertools import islice
from operator import itemgetter
from textwrap import indent
from typing import Any, NamedTuple

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._base.values import parse, texts_in
from foldlog._reports.search.searching import (
    ANSWERED_WITHIN,
    SearchTerms,
    events_with,
    find_call,
)
from foldlog.eventstore import (
    Action,
    ConversationNotFound,
    Event,
    InvalidArgument,
    Observation,
    Store,
    SystemMessage,
)
from foldlog.eventstore.arguments import check_whole
from foldlog.eventstore.events import is_structural
from foldlog.eventstore.log.redacted import has_content
from foldlog.projections import Dialect, Intervals, Views, contains, intervals_kept
from foldlog.projections.conversations.unreadable import sound
from foldlog.projections.messages.turns import check_dialect

TOKENS_LEAST = 300
TOKENS = 2_000
"""The least and the default number of estimated tokens of a result."""
_SHOWN_MOST = 8
"""The number of events whose text a result contains."""
_NAMED_MOST = 10
"""The number of further events that a result names by their ids."""
_LENGTH_LEAST = 40
_LENGTH_GOOD = 480
"""A result cuts the text of each event to at least ``_LENGTH_LEAST`` characters. It shows fewer
events if each would otherwise have fewer than ``_LENGTH_GOOD`` characters.
"""
_LENGTHS_TRIED = 512
_OWN_NAME = re.compile(r"recall|.*foldlog\W*_*(recall|why|dropped|knew|sessions)")
"""The names of the recall tool, and of the tools of ``foldlog mcp``."""

_DESCRIPTION = (
    "Read earlier events of this conversation that are no longer shown to you, such as the result"
    " of a call, a message, or the text of a file that you read. Use one of these arguments: query"
    " (words to search for), ids (the numbers in brackets at the ends of lines of a summary), or"
    " path (a file that you read or changed)."
)
_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "Words to search for; events with the most of these words come first.",
        },
        "ids": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "Ids of events to read.",
        },
        "path": {
            "type": "string",
            "description": "Path of a file: reads the calls that name the file, with results.",
        },
    },
    "additionalProperties": False,
}


class _Hit(NamedTuple):
    """An event with its text. ``position`` is the first place of a word of the query in it.
    ``is_checked`` is false if the event may be a result of the tool itself.
    """

    event: Event
    text: str
    position: int
    is_checked: bool = True


class RecallTool:
    """The tool ``recall(query | ids | path)`` for a conversation. ``History.recall_tool`` makes the
    tool.

    Offer ``schema()`` to the model, and answer the model's call with
    ``history.append_tool_result(call, tool(call))``. For an SDK that makes tools from functions,
    use ``tool.recall``. Words are searched as in ``Histories.search``. To read a file that is
    stored in base64, the model must give the id of its event. The tool does not find retracted or
    redacted events, system prompts, or earlier results of this tool and of ``foldlog mcp``.
    """

    name = "recall"
    hint = "Summaries replace earlier events. recall(query | ids | path) reads the original events."
    """A line about the tool, for the system prompt."""

    def __init__(
        self, store: Store, views: Views, conversation: str, max_tokens: int = TOKENS
    ) -> None:
        self._store = store
        self._views = views
        self._id = conversation
        self.max_tokens = check_whole("max_tokens", max_tokens, TOKENS_LEAST)

    def schema(self, dialect: Dialect = "openai") -> JsonObject:
        """Return the definition of the tool in the format of an API, such as OpenAI's. Raises
        ``ValueError`` for an unknown dialect.
        """
        name_and_text = {"name": self.name, "description": _DESCRIPTION}
        if check_dialect(dialect).startswith("anthropic"):
            return {**name_and_text, "input_schema": deepcopy(_PARAMETERS)}
        function = {**name_and_text, "parameters": deepcopy(_PARAMETERS)}
        if dialect == "responses":
            return {"type": "function", **function}
        return {"type": "function", "function": function}

    def __call__(self, call: Action | JsonMap | str) -> str:
        """Return the result of a call. ``call`` is the ``Action``, or only its arguments: a map, or
        the JSON text that the model wrote.

        If the arguments of the call cannot be used, the result tells the model what is wrong.
        Raises the errors of ``recall``.
        """
        arguments: Any = call.arguments if isinstance(call, Action) else call
        if isinstance(arguments, str):
            arguments = parse(arguments or "{}")
        if isinstance(arguments, Mapping) and arguments.keys() <= _PARAMETERS["properties"].keys():
            return self.recall(**arguments)
        return (
            "call recall with query, ids or path as a JSON object; these are not valid"
            f" arguments: {str(arguments)[:200]}"
        )

    def recall(self, query: str = "", ids: list[int] | None = None, path: str = "") -> str:
        """Read earlier events of this conversation that are no longer shown. Use one of query, ids
        and path.

        Args:
            query: Words to search for; events with the most of these words come first.
            ids: Ids of events: the numbers in brackets at the ends of lines of a summary.
            path: Path of a file: reads the calls that name the file, with results, newest first.

        Returns:
            The text of the events with their ids, cut to at most ``max_tokens`` estimated tokens.
        """
        return self._recall(query, ids, path)

    def _recall(self, query: Any, ids: Any, path: Any) -> str:
        """Return the answer to a call of the tool. The answer says so if an argument is wrong."""
        # A model may pass values of any type.
        if type(ids) is int:  # also 0, the id of the first event
            ids = [ids]
        query = query or ""
        ids = ids or []
        path = path or ""
        if not (isinstance(query, str) and isinstance(path, str)):
            return "query and path of recall must be texts"
        if not (isinstance(ids, list) and all(type(event_id) is int for event_id in ids)):
            return "ids of recall must be a list of whole numbers"
        if bool(query.strip()) + bool(ids) + bool(path.strip()) != 1:
            return "use one of query, ids and path of recall"
        unread_problems = list[str]()
        try:
            if ids:
                return self._by_ids(list(dict.fromkeys(ids)))
            if path.strip():
                hits = self._by_path(path.strip(), unread_problems)
            else:
                hits = self._by_words(query, unread_problems)
        except ConversationNotFound:
            hits = []
        except InvalidArgument:  # The query has no word to search for.
            hits = []
        match len(hits):
            case 0:
                note = "no event of this conversation matches"
            case 1:
                note = "one event found"
            case count:
                up_to = "" if all(hit.is_checked for hit in hits) else "up to "
                note = f"{up_to}{count} events found"
        if unread_problems:
            note += f"; {len(unread_problems)} could not be read"
        return self._fit(hits, note) if hits else note

    def _by_ids(self, ids: Sequence[int]) -> str:
        """Return the texts of the events with these ids, and a note that names ids that cannot be
        read.
        """
        version = self._store.conversation(self._id).version
        events = (
            logged.event
            for event_id in ids
            if 0 <= event_id < version
            for logged in sound(self._store, self._id, event_id, event_id + 1, [])
        )
        readable = self._readable(events, self._kept_intervals())
        hits = {event.id: _Hit(event, _text(event), 0) for event in readable}
        unknown_ids = [event_id for event_id in ids if event_id not in hits]
        note = ""
        if unknown_ids:
            note = f"cannot be read: {', '.join(map(str, unknown_ids[:_NAMED_MOST]))}"
        return self._fit([*hits.values()], note) if hits else note

    def _by_words(self, query: str, unread_problems: list[str]) -> list[_Hit]:
        """Return the events that contain words of the query. Events with more of the words come
        first. If the number of words is equal, forgotten events come before shown events, and newer
        events before older events.
        """
        words = SearchTerms(query, every=False)
        shown_ids = {event.id for event in self._views.current(self._id)}
        kept_ids = self._kept_intervals()
        ranked = []
        for event in events_with(self._store, self._id, words, unread_problems, _text):
            if not _may_be_shown(event, kept_ids):
                continue
            text = _text(event)
            if positions := words.places_in(text):
                rank = len(positions), event.id not in shown_ids, event.id
                ranked.append((rank, _Hit(event, text, min(positions))))
        ranked.sort(key=itemgetter(0), reverse=True)
        return self._without_own([hit for _, hit in ranked])

    def _without_own(self, ranked: Iterable[_Hit]) -> list[_Hit]:
        """Leave out the calls and results of the tool itself, except results behind the events that
        an answer may show or name: their calls are not read, so these results are not checked.
        """
        hits = list[_Hit]()
        for hit in ranked:
            if len(hits) >= _SHOWN_MOST + _NAMED_MOST and isinstance(hit.event, Observation):
                hits.append(hit._replace(is_checked=False))
            elif not self._is_own(hit.event):
                hits.append(hit)
        return hits

    def _by_path(self, path: str, unread_problems: list[str]) -> list[_Hit]:
        """Return the calls that name a file, the newest first, each with its result. Only as many
        results are read as can be shown.
        """
        names_path = re.compile(rf"(?<![\w.-]){re.escape(path)}(?!\w)").search
        kept_ids = self._kept_intervals()
        with_words = events_with(
            self._store, self._id, SearchTerms(f'"{path}"'), unread_problems, _text
        )
        calls = [
            event
            for event in with_words
            if isinstance(event, Action)
            and any(map(names_path, texts_in(parse(event.arguments))))
            and _may_be_shown(event, kept_ids)
            and not self._is_own(event)
        ]
        events = list[Event]()
        for call in reversed(calls):
            events.append(call)
            if len(events) <= _SHOWN_MOST:
                events += self._readable(self._result_of(call), kept_ids)
        return [_Hit(event, _text(event), 0) for event in events]

    def _readable(self, events: Iterable[Event], kept_ids: Intervals) -> list[Event]:
        """Return the events that the tool may show: not retracted, and not a call or a result of
        the tool itself. ``kept_ids`` comes from ``_kept_intervals``. Cost: for each result, the
        method reads its call.
        """
        return [
            event for event in events if _may_be_shown(event, kept_ids) and not self._is_own(event)
        ]

    def _is_own(self, event: Event) -> bool:
        """Return whether the event is a call of the tool itself, or the result of one."""
        call: Event | None = event
        if isinstance(event, Observation):
            call = find_call(self._store, self._id, event, [])
        return (
            isinstance(call, Action)
            and call.source == "agent"
            and bool(_OWN_NAME.fullmatch(call.tool))
        )

    def _result_of(self, call: Action) -> list[Event]:
        """Return the result of a call, if it came soon after the call."""
        later = sound(self._store, self._id, call.id + 1, call.id + 1 + ANSWERED_WITHIN, [])
        results = (logged.event for logged in later if isinstance(logged.event, Observation))
        of_call = (
            event
            for event in results
            if event.cause == call.id or (event.cause is None and _has_call_id(event, call))
        )
        return [*islice(of_call, 1)]

    def _kept_intervals(self) -> Intervals:
        """Return the ids of the events that were not retracted, as intervals. Cost: the method
        reads all structural events of the conversation.
        """
        return self._store.query(
            self._id,
            lambda reading: intervals_kept(reading.structural_events(), reading.version),
        )

    def _fit(self, hits: Sequence[_Hit], note: str) -> str:
        """Return ``note`` and the texts of events, cut to ``max_tokens`` tokens."""
        from foldlog.condensers.models.estimate import estimate

        def text_with(count: int, length: int) -> str:
            other_ids = [str(hit.event.id) for hit in hits[count:]]
            ellipsis = ", …" if len(other_ids) > _NAMED_MOST else ""
            ids_text = ""
            if other_ids:
                listed = ", ".join(other_ids[:_NAMED_MOST])
                ids_text = f"to be read by their ids: {listed}{ellipsis}"
            head = "; ".join(filter(None, (note, ids_text)))
            blocks = (_block(hit, length) for hit in hits[:count])
            return "\n\n".join(filter(None, (head, *blocks)))

        def count_tokens(count: int, length: int) -> int:
            return estimate(text_with(count, length))

        # A few long texts are better than many short fragments. Stop at the first count at which
        # every event gets enough text, or all its text.
        for count in range(min(_SHOWN_MOST, len(hits)), 0, -1):
            longest = max(len(hit.text) for hit in hits[:count])
            lengths = [
                *range(_LENGTH_LEAST, longest, max(1, longest // _LENGTHS_TRIED)),
                max(longest, _LENGTH_LEAST),
            ]
            fitting = bisect_right(lengths, self.max_tokens, key=partial(count_tokens, count))
            if fitting and (lengths[fitting - 1] >= min(longest, _LENGTH_GOOD) or count == 1):
                return text_with(count, lengths[fitting - 1])
        return text_with(0, 0)


def _has_call_id(result: Observation, call: Action) -> bool:
    return call.call_id is not None and result.call_id == call.call_id


def _may_be_shown(event: Event, kept_ids: Intervals) -> bool:
    """Return whether an event is part of the conversation that a model may see, and was neither
    retracted nor redacted. ``kept_ids`` comes from ``_kept_intervals``.
    """
    return (
        event.shown
        and has_content(event)
        and not isinstance(event, SystemMessage)
        and not is_structural(event)
        and contains(kept_ids, event.id)
    )


def _text(event: Event) -> str:
    from foldlog.condensers.prompts.rendering import event_text

    return event_text(event)


def _block(hit: _Hit, length: int) -> str:
    """Return the text of an event under its id. The text is indented, so that no line of it can be
    mistaken for a line of the tool.
    """
    return f"[event {hit.event.id}]\n{indent(_cut(hit, length), '  ')}"


def _cut(hit: _Hit, length: int) -> str:
    """Cut the text of an event to about ``length`` characters around the word that was found."""
    from foldlog.condensers.prompts.rendering import truncate

    text = hit.text
    position = hit.position
    if len(text) <= length or position < length // 2:
        return truncate(text, length)
    start = min(position - length // 3, len(text) - length)
    return f"[… from character {start} of {len(text)}] {text[start : start + length]}"
