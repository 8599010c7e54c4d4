"""This module counts the exact tokens of prompts.

Litellm's count of a prompt is a sum: a constant, the counts of the single messages, and a constant
for the tools. A counter counts each rendered message once and caches the count. In most steps, the
View begins with the messages of the previous step's View. Then only the new messages are counted.
"""

from __future__ import annotations

import marshal
import threading
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import accumulate, compress, count
from operator import is_not
from typing import Any, NamedTuple

from foldlog._base.json_types import JsonMap
from foldlog.eventstore import Event, SystemMessage
from foldlog.projections import Dialect, Rendered, View, says_something

_MESSAGES_KEPT = 20_000
"""The maximum number of counts in the cache. The keys are the texts of messages, most of which
occur in many Views of a conversation.
"""

_COUNTED_AS: Mapping[Dialect, Dialect] = {
    "anthropic": "litellm",
    "anthropic-cached": "litellm",
    "responses": "openai",
}
"""Maps a dialect that a counter cannot count to the dialect in which its messages are counted. The
messages of ``openai`` contain no reasoning, so the reasoning in the items of ``responses`` is not
counted. Only the provider's server could count it, because most of it is encrypted.
"""

_CONVERSATIONS_KEPT = 64


class TokenCounter:
    """The counter counts a message once and caches the count. The counter remembers the last View
    of some conversations. Many threads may use a single ``TokenCounter``.

    The argument ``count`` is a function that counts a prompt of messages and tools, or raises
    ``TokensUnknown``. The count of several messages must be a constant plus the sum of the single
    counts. ``tests/condensers/test_tokens.py`` checks that litellm counts in this way.
    """

    def __init__(self, count: Callable[[Sequence[JsonMap], Sequence[Any]], int]) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._counts: dict[Hashable, int] = {}
        self._last: dict[tuple[int, Dialect], _Counted] = {}

    def count_tokens(self, messages: Sequence[JsonMap], tools: Sequence[Any] = ()) -> int:
        """Return the number of tokens of a prompt. Cost: the method counts only messages that it
        has not counted before.

        Raises ``TokensUnknown`` if the tokens cannot be counted, and never returns 0 instead.
        """
        has_system = any(message.get("role") == "system" for message in messages)
        return self._count_tools(tools, beside_system=has_system) + sum(
            map(self._count_messages, messages)
        )

    def tokens_at_most(self, view: View) -> int | None:
        """Return a number that the tokens of a View do not exceed, if it is known without a
        tokenizer.
        """
        return None

    def _count_messages(self, *messages: JsonMap) -> int:
        return self._once(
            tuple(map(_key, messages)),
            lambda: self._count(messages, ()) - self._count_no_messages(),
        )

    def _count_no_messages(self) -> int:
        # The tokens of a prompt without messages are twice the tokens of an empty message, minus
        # the tokens of two empty messages.
        empty = [{"role": "user", "content": ""}]
        return self._once(
            "constant", lambda: 2 * self._count(empty, ()) - self._count(2 * empty, ())
        )

    def _count_tools(self, tools: Sequence[Any], *, beside_system: bool) -> int:
        # Tools have fewer tokens if the prompt has a system prompt.
        if not tools:
            return self._count_no_messages()
        probe = {"role": "system" if beside_system else "user", "content": ""}
        key = (probe["role"], marshal.dumps(list(tools), _PLAIN))
        return self._once(key, lambda: self._count([probe], tools) - self._count_messages(probe))

    def _once(self, key: Hashable, count: Callable[[], int]) -> int:
        tokens = self._counts.get(key)
        if tokens is None:
            tokens = count()
            self._keep(self._counts, key, tokens, _MESSAGES_KEPT)
        return tokens

    def _keep(self, cache: dict[Any, Any], key: Any, value: Any, max_entries: int) -> None:
        with self._lock:
            cache.pop(key, None)
            while len(cache) >= max_entries:
                del cache[next(iter(cache))]
            cache[key] = value

    def token_sums(self, view: View) -> tuple[int, ...]:
        """Return the counts that ``AgentModel.token_sums`` describes. If several events make a
        message, the last of these events gets the tokens of the message. A call and its results
        count as a single message. So the last sum minus an earlier sum is at least the number of
        tokens of the events in between. Raises ``TokensUnknown`` if the tokens cannot be counted.
        Cost: a pass over all messages. Only the messages that are new since the last View of the
        conversation are counted.
        """
        events = view.events
        dialect = _COUNTED_AS.get(view.dialect, view.dialect)
        key = (id(events[0]) if events else 0, dialect)
        former = self._last.get(key)
        if former is not None and former.events is events:
            return former.sums
        messages = view.shared_messages(dialect)
        groups = _shared_groups(former, messages) if former is not None else []
        start = groups[-1].end if groups else 0
        # A group is a message, or a call with the results that follow the call.
        group = list[dict[str, Any]]()
        last_position = 0
        for end, (message, positions) in enumerate(messages[start:], start + 1):
            group = [*group, message]
            last_position = max(last_position, positions[-1])
            if end == len(messages) or messages[end].message.get("role") != "tool":
                groups.append(_Group(end, last_position, self._count_messages(*group)))
                group = []
                last_position = 0
        added = [0] * len(events)
        for counted_group in groups:
            added[counted_group.position] += counted_group.tokens
        tools = ()
        sent_system = False
        if SystemMessage in map(type, events):
            sent_events = (events[position] for position in view.fit_positions)
            sent_system = any(
                isinstance(event, SystemMessage) and says_something(event.content)
                for event in sent_events
            )
            tools = offered_tools(view)
        sums = tuple(accumulate(added, initial=self._count_tools(tools, beside_system=sent_system)))
        self._keep(self._last, key, _Counted(events, messages, groups, sums), _CONVERSATIONS_KEPT)
        return sums


def _key(message: JsonMap) -> Hashable:
    # A text is used as a key without a copy. Views share the text, and Python caches its hash.
    values = [
        value if type(value) is str else marshal.dumps(value, _PLAIN) for value in message.values()
    ]
    return (*values, *message)


_PLAIN = 2
"""The version of marshal's format in which equal values always have equal bytes."""


class _Group(NamedTuple):
    """Messages that are counted together. ``end`` is the index of the first message after the
    group. ``position`` is the index in the View of the group's last event.
    """

    end: int
    position: int
    tokens: int


class _Counted(NamedTuple):
    events: tuple[Event, ...]
    messages: list[Rendered]
    groups: list[_Group]
    sums: tuple[int, ...]


def offered_tools(view: View) -> tuple[Any, ...]:
    """Return the tools of the first system prompt, in OpenAI's format: for another format, litellm
    would count almost no tokens.
    """
    prompt = next((event for event in view.events if isinstance(event, SystemMessage)), None)
    if prompt:
        return tuple(in_openais_shape(tool) for tool in prompt.tools)
    return ()


def in_openais_shape(tool: Any) -> Any:
    """Return the definition of a tool in OpenAI's format. Any other value is returned unchanged."""
    if not isinstance(tool, Mapping) or "function" in tool:
        return tool
    schema: Any = next(
        (tool[key] for key in ("parameters", "inputSchema", "input_schema") if tool.get(key)), {}
    )
    name = tool.get("name") or tool.get("title") or ""
    function = {"name": name, "description": tool.get("description") or "", "parameters": schema}
    return {"type": "function", "function": function}


def _shared_groups(former: _Counted, messages: Sequence[Rendered]) -> list[_Group]:
    # More results may have joined the last shared group, so that group is counted again.
    shared_count = next(
        compress(count(), map(is_not, former.messages, messages)),
        min(len(former.messages), len(messages)),
    )
    return former.groups[: bisect_left(former.groups, (shared_count,))]
