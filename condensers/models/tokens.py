"""Exact token counts of what a View makes a prompt of.

litellm's count is additive: a constant, plus the count of each message by itself, plus a constant for the tools. So
each rendered message is counted once and its count kept, and a step counts only the messages that are new.
"""

from __future__ import annotations

import marshal
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

__all__ = ["TokenCounter"]

CountTokens = Callable[[Sequence[Mapping[str, Any]], Sequence[Any]], int]
"""The tokens of a prompt made of these messages and tools, counted from nothing. Raises ``TokensUnknown``."""

_MESSAGES_KEPT = 20_000
"""How many counts one counter keeps; with them it keeps the messages that they are of, which Views mostly share."""


class TokenCounter:
    """Counts prompts, each message once. Thread-safe, and of no one conversation.

    ``count`` must be additive over messages, as litellm's is; ``tests/condensers/test_tokens.py`` holds it to that.
    """

    def __init__(self, count: CountTokens) -> None:
        self._count = count
        self._lock = threading.Lock()
        self._counts: dict[Hashable, int] = {}

    def count(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any] = ()) -> int:
        """Return the tokens of the prompt, equal to counting it whole. Cost: the messages not counted before.

        Raises ``TokensUnknown`` where it cannot count: never 0 in its place.
        """
        has_system = any(message.get("role") == "system" for message in messages)
        return self.frame(tools, beside_system=has_system) + sum(map(self.of, messages))

    def of(self, message: Mapping[str, Any]) -> int:
        """Return the tokens that one message adds to any prompt."""
        key = _key(message)
        known = self._counts.get(key)
        if known is not None:
            return known
        return self._keep(key, self._count([message], ()) - self._constant())

    def _constant(self) -> int:
        """Return the tokens of any prompt beside its messages, found by comparing one empty message with two."""
        key = "constant"
        known = self._counts.get(key)
        if known is not None:
            return known
        one, two = (self._count([{"role": "user", "content": ""}] * n, ()) for n in (1, 2))
        return self._keep(key, 2 * one - two)

    def frame(self, tools: Sequence[Any], *, beside_system: bool) -> int:
        """Return the tokens beside the messages: a constant, and the tools, which weigh less beside a system prompt."""
        if not tools:
            return self._constant()
        role = "system" if beside_system else "user"
        key = (role, marshal.dumps(list(tools), _PLAIN))
        known = self._counts.get(key)
        if known is not None:
            return known
        probe = {"role": role, "content": ""}
        return self._keep(key, self._count([probe], tools) - self.of(probe))

    def _keep(self, key: Hashable, tokens: int) -> int:
        with self._lock:
            while len(self._counts) >= _MESSAGES_KEPT:
                del self._counts[next(iter(self._counts))]
            self._counts[key] = tokens
        return tokens


def _key(message: Mapping[str, Any]) -> Hashable:
    """Return a message as a key, equal only if the message is. Texts stand for themselves: Views share them, and they
    remember their hash.
    """
    values = [value if type(value) is str else marshal.dumps(value, _PLAIN) for value in message.values()]
    return (*values, *message)


_PLAIN = 2
"""The version of marshal's format that depends on values alone; later ones tell apart equal objects."""
