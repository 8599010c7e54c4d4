"""Count the tokens of the prompt of a View exactly.

litellm's count is additive: a constant, plus the count of each message by itself, plus a constant for the tools. So
each rendered message is counted once and its count is kept, and a step counts only new messages.
"""

from __future__ import annotations

import marshal
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

CountTokens = Callable[[Sequence[Mapping[str, Any]], Sequence[Any]], int]
"""Counts the tokens of a prompt of these messages and tools. Raises ``TokensUnknown``."""

_MESSAGES_KEPT = 20_000
"""The number of counts that a counter keeps. It also keeps their messages, which Views mostly share."""


class TokenCounter:
    """Counts prompts, each message once. Thread-safe; one counter serves many conversations.

    ``count`` must be additive over messages, as litellm's is; ``tests/condensers/test_tokens.py`` holds it to that.
    """

    def __init__(self, count: CountTokens) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._counts: dict[Hashable, int] = {}

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> int:
        """Return the tokens of the prompt, equal to counting it whole. Cost: the messages not counted before.

        Raises ``TokensUnknown`` if it cannot count; it never returns 0 instead.
        """
        has_system = any(message.get("role") == "system" for message in messages)
        return self.frame(tools, beside_system=has_system) + sum(map(self.of, messages))

    def of(self, *messages: Mapping[str, Any]) -> int:
        """Return the tokens that messages add to any prompt. They are counted by one call."""
        return self._once(tuple(map(_key, messages)), lambda: self._count(messages, ()) - self._constant())

    def _constant(self) -> int:
        """Return the tokens of a prompt without messages, found by comparing one empty message with two."""
        empty = [{"role": "user", "content": ""}]
        return self._once("constant", lambda: 2 * self._count(empty, ()) - self._count(2 * empty, ()))

    def frame(self, tools: Sequence[Any], *, beside_system: bool) -> int:
        """Return the tokens of a prompt besides its messages: a constant, and the tools, which take fewer tokens if
        there is a system prompt.
        """
        if not tools:
            return self._constant()
        probe = {"role": "system" if beside_system else "user", "content": ""}
        key = (probe["role"], marshal.dumps(list(tools), _PLAIN))
        return self._once(key, lambda: self._count([probe], tools) - self.of(probe))

    def _once(self, key: Hashable, count: Callable[[], int]) -> int:
        """Return the tokens that are kept under a key, or else count and keep them."""
        tokens = self._counts.get(key)
        if tokens is None:
            tokens = count()
            with self._lock:
                while len(self._counts) >= _MESSAGES_KEPT:
                    del self._counts[next(iter(self._counts))]
                self._counts[key] = tokens
        return tokens


def _key(message: Mapping[str, Any]) -> Hashable:
    """Return a key that is equal only for equal messages. A text is its own key: Views share texts, and a text keeps
    its hash.
    """
    values = [value if type(value) is str else marshal.dumps(value, _PLAIN) for value in message.values()]
    return (*values, *message)


_PLAIN = 2
"""The version of marshal's format that depends only on values. Later versions give equal objects different bytes."""
