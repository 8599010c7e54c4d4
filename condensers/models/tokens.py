"""Count the tokens of the prompts of Views exactly.

litellm's count is additive: a constant, plus the count of each message by itself, plus a constant for the tools. So
each rendered message is counted once and its count is kept. The View of a step shares its beginning with that of the
last step: only the rest is rendered, and only new messages are counted.
"""

from __future__ import annotations

import marshal
import threading
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import accumulate, compress, count
from operator import ne
from typing import Any, NamedTuple

from foldlog.eventstore import Action, Event, Message, SystemMessage
from foldlog.projections import Dialect, View, begins_reply, rendered, says_something

_MESSAGES_KEPT = 20_000
"""The number of counts that a counter keeps. It also keeps their messages, which Views mostly share."""

_COUNTED_AS: Mapping[Dialect, Dialect] = {"anthropic": "litellm", "anthropic-cached": "litellm", "responses": "openai"}
"""Messages are counted in a form that litellm takes. Reasoning that only its server can read is not counted."""

_CONVERSATIONS_KEPT = 64
"""The number of conversations whose last counted View a counter keeps."""


class TokenCounter:
    """Counts prompts, each message once, and the prompts of Views. Thread-safe; it remembers the last View of some
    conversations.

    ``count`` counts a prompt of messages and tools, or raises ``TokensUnknown``. It must be additive over messages, as
    litellm's is; ``tests/condensers/test_tokens.py`` holds it to that.
    """

    def __init__(self, count: Callable[[Sequence[Mapping[str, Any]], Sequence[Any]], int]) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._counts: dict[Hashable, int] = {}
        self._last: dict[tuple[int, Dialect], _Measured] = {}

    def count_tokens(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> int:
        """Return the tokens of the prompt, equal to counting it whole. Cost: the messages not counted before.

        Raises ``TokensUnknown`` if it cannot count; it never returns 0 instead.
        """
        has_system = any(message.get("role") == "system" for message in messages)
        return self._frame(tools, beside_system=has_system) + sum(map(self._of, messages))

    def _of(self, *messages: Mapping[str, Any]) -> int:
        """Return the tokens that messages add to any prompt. They are counted by one call."""
        return self._once(tuple(map(_key, messages)), lambda: self._count(messages, ()) - self._constant())

    def _constant(self) -> int:
        """Return the tokens of a prompt without messages, found by comparing one empty message with two."""
        empty = [{"role": "user", "content": ""}]
        return self._once("constant", lambda: 2 * self._count(empty, ()) - self._count(2 * empty, ()))

    def _frame(self, tools: Sequence[Any], *, beside_system: bool) -> int:
        """Return a prompt's tokens besides its messages: a constant, and its tools: fewer beside a system prompt."""
        if not tools:
            return self._constant()
        probe = {"role": "system" if beside_system else "user", "content": ""}
        key = (probe["role"], marshal.dumps(list(tools), _PLAIN))
        return self._once(key, lambda: self._count([probe], tools) - self._of(probe))

    def _once(self, key: Hashable, count: Callable[[], int]) -> int:
        """Return the tokens that are kept under a key, or else count and keep them."""
        tokens = self._counts.get(key)
        if tokens is None:
            tokens = count()
            self._keep(self._counts, key, tokens, _MESSAGES_KEPT)
        return tokens

    def _keep(self, kept: dict[Any, Any], key: Any, value: Any, most: int) -> None:
        with self._lock:
            kept.pop(key, None)
            while len(kept) >= most:
                del kept[next(iter(kept))]
            kept[key] = value

    def token_sums(self, view: View) -> tuple[int, ...]:
        """Return ``len(view) + 1`` cumulative counts of the prompt that ``view`` makes, the last one exact.

        A message of several events counts at the last of them, and so do calls with their results. So the cost of a
        tail, which is the last sum less the sum at its start, is never too low. Raises ``TokensUnknown``. Cost: the
        comparison with the last View of the conversation, and the rendering of the events after their shared beginning.
        """
        events, fit = view.events, view.fit_positions
        dialect = _COUNTED_AS.get(view.dialect, view.dialect)
        key = (id(events[0]) if events else 0, dialect)
        before = self._last.get(key)
        if before is not None and before.events is events:
            return before.sums
        tools, sent_system = (), False
        if SystemMessage in map(type, events):
            sent = (events[position] for position in fit)
            sent_system = any(isinstance(event, SystemMessage) and says_something(event.content) for event in sent)
            tools = offered_tools(view)
        sums: tuple[int, ...] = (self._frame(tools, beside_system=sent_system),)
        start, calls = 0, None
        if before is not None and before.sums[0] == sums[0]:
            start = _shared_beginning(before, view)
            calls = _calls(events, start)
            if any(before.calls.get(call_id, start) < start for call_id in calls):  # the later one is renamed
                start, calls = 0, None
            elif start:
                sums, calls = before.sums[: start + 1], before.calls | calls
        added = [0] * (len(events) - start)
        group, last = list[dict[str, Any]](), start  # a call with its results, which follow it: they count at the last
        messages = rendered(events, fit[bisect_left(fit, start) :], dialect, opening=not start)
        for message, positions in reversed(messages):
            group, last = [message, *group], max(last, positions[-1])
            if message["role"] != "tool":
                added[last - start] += self._of(*group)
                group, last = [], start
        sums = (*sums[:-1], *accumulate(added, initial=sums[-1]))
        measured = _Measured(events, fit, sums, _calls(events, 0) if calls is None else calls)
        self._keep(self._last, key, measured, _CONVERSATIONS_KEPT)
        return sums


def _key(message: Mapping[str, Any]) -> Hashable:
    """Return a key that is equal only for equal messages. A text is its own key: Views share it and its hash."""
    values = [value if type(value) is str else marshal.dumps(value, _PLAIN) for value in message.values()]
    return (*values, *message)


_PLAIN = 2
"""The version of marshal's format that depends only on values. Later versions give equal objects different bytes."""


class _Measured(NamedTuple):
    """The counts of one View: its events, which of them are sent, the sums of the prompt, and where call ids occur."""

    events: tuple[Event, ...]
    fit: tuple[int, ...]
    sums: tuple[int, ...]
    calls: dict[str, int]


def offered_tools(view: View) -> tuple[Any, ...]:
    """Return the tools of the first system prompt in ``view``, in OpenAI's shape: they are sent with every prompt.

    Logs also hold tools in other shapes, for which litellm would count almost no tokens.
    """
    prompt = next((event for event in view.events if isinstance(event, SystemMessage)), None)
    return tuple(_in_openais_shape(tool) for tool in prompt.tools) if prompt else ()


def _in_openais_shape(tool: Any) -> Any:
    if not isinstance(tool, Mapping) or "function" in tool:
        return tool
    schema: Any = next((tool[key] for key in ("parameters", "inputSchema", "input_schema") if tool.get(key)), {})
    name = tool.get("name") or tool.get("title") or ""
    function = {"name": name, "description": tool.get("description") or "", "parameters": schema}
    return {"type": "function", "function": function}


def _shared_beginning(before: _Measured, view: View) -> int:
    """Return where the prompts of both Views part: up to there they are the same, message for message.

    A reply of the model is there, so no two messages of the user are merged, and none opens the rest. No call is split
    from its observation.
    """
    events, fit, sums, length = view.events, view.fit_positions, before.sums, len(before.events)
    if events[:length] == before.events and fit[: bisect_left(fit, length)] == before.fit:
        places: Sequence[int] = (length,)  # the same calls are sent, so their observations are among these events
    else:  # a mask has changed an event since
        fit = fit[: _alike(before.fit, fit)]
        places = view.cut_points[: bisect_left(view.cut_points, _alike(before.events, events))][::-1]
    starts = ((at, bisect_left(fit, at)) for at in places)
    start = next((at for at, n in starts if fit[n : n + 1] == (at,) and _begins_message(events, fit, n)), 0)
    counted = (place for place in before.fit[: bisect_left(before.fit, start)] if sums[place + 1] > sums[place])
    return start if any(not isinstance(before.events[place], SystemMessage) for place in counted) else 0


def _alike(some: Sequence[Any], others: Sequence[Any]) -> int:
    """Return the number of equal items at the beginning."""
    return next(compress(count(), map(ne, some, others)), min(len(some), len(others)))


def _begins_message(events: Sequence[Event], fit: Sequence[int], place: int) -> bool:
    """Return whether the event at ``fit[place]`` begins a message of the model: those around it are not merged."""
    event = events[fit[place]]
    replies = (events[fit[earlier]] for earlier in range(place - 1, -1, -1))
    before = next(filter(begins_reply, replies), None)
    return begins_reply(event, before) and (not isinstance(event, Message) or says_something(event.content))


def _calls(events: Sequence[Event], start: int) -> dict[str, int]:
    """Return where calls occur from ``start`` on, by their ids in messages: their own, or those of the rendering."""
    calls = ((event, place) for place, event in enumerate(events[start:], start) if isinstance(event, Action))
    return {call_id: place for call, place in calls for call_id in (call.call_id, f"call_{call.id}") if call_id}
