"""Exact token counts of what a View makes a prompt of, and the budget that they are held against.

litellm's count is additive: a constant, plus the count of each message by itself, plus a constant for the tools. So
each rendered message is counted once and its count kept, and a step counts only the messages that are new.
"""

from __future__ import annotations

import marshal
import threading
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from condensers.base import AgentModel

__all__ = ["TokenBudget", "TokenCounter", "start_of_tail_that_fits"]

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


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """How large a prompt may grow.

    ``max_tokens`` is the user's own limit, ``margin_ratio`` the part of the model's input that is left free because
    servers add to a prompt what no one else can count.
    """

    max_tokens: int | None = None
    margin_ratio: float = 0.1

    def limit(self, agent_llm: AgentModel | None) -> int | None:
        """Return the most tokens that a prompt for this model may have; None if there is no limit.

        The smaller of ``max_tokens`` and the model's input less the room for its answer less the margin. The room for
        an answer is never taken to be more than half: docs/decisions/0040-room-for-the-answer.md says why. Without
        a model there is no limit, as in the reference: who steps without one passes an estimate, see ``counting``.
        """
        if agent_llm is None:
            return None
        limits = [] if self.max_tokens is None else [self.max_tokens]
        window = agent_llm.max_input_tokens
        if window is not None:
            reserve = min(agent_llm.max_output_tokens or 0, window // 2)
            limits.append(max(0, window - reserve - int(window * self.margin_ratio)))
        return min(limits, default=None)


def start_of_tail_that_fits(sums: Sequence[int], head: int, room: int) -> int:
    """Return where the longest tail starts that, with the first ``head`` events, takes at most ``room`` tokens.

    ``sums`` are a View's (see ``AgentModel.token_sums``); ``len(sums) - 1`` means that no tail fits. Cost: the
    logarithm of the View's length.
    """
    return bisect_left(sums, sums[-1] + sums[head] - room, lo=head, hi=len(sums) - 1)


def _key(message: Mapping[str, Any]) -> Hashable:
    """Return a message as a key, equal only if the message is. Texts stand for themselves: Views share them, and they
    remember their hash.
    """
    values = [value if type(value) is str else marshal.dumps(value, _PLAIN) for value in message.values()]
    return (*values, *message)


_PLAIN = 2
"""The version of marshal's format that depends on values alone; later ones tell apart equal objects."""
