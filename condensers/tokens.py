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
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from eventstore.events import SystemMessage

if TYPE_CHECKING:
    from condensers.base import AgentModel
    from projections import View

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
        """The tokens of the prompt, equal to counting it whole. Cost: the messages not counted before.

        Raises ``TokensUnknown`` where it cannot count: never 0 in its place.
        """
        return self._frame(messages, tools) + sum(self._of(message) for message in messages)

    def sums(self, view: View) -> tuple[int, ...]:
        """``len(view) + 1`` cumulative counts of the prompt that ``view`` makes, the last one exact.

        A message made of several events counts where the last of them stands, so that what a tail costs, the last sum
        less its own, is never less than the truth. Raises ``TokensUnknown``.
        """
        rendered = view.rendered()
        added = [0] * len(view)
        for message, positions in rendered:
            added[positions[-1]] += self._of(message)
        frame = self._frame([message for message, _ in rendered], offered_tools(view))
        return tuple(accumulate(added, initial=frame))

    def _of(self, message: Mapping[str, Any]) -> int:
        """What one message adds to any prompt."""
        key = _key(message)
        known = self._counts.get(key)
        if known is not None:
            return known
        return self._keep(key, self._count([message], ()) - self._constant())

    def _constant(self) -> int:
        """What any prompt has beside its messages. An empty message costs a known part of what two of them cost."""
        key = "constant"
        known = self._counts.get(key)
        if known is not None:
            return known
        one, two = (self._count([{"role": "user", "content": ""}] * n, ()) for n in (1, 2))
        return self._keep(key, 2 * one - two)

    def _frame(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any]) -> int:
        """What a prompt has beside its messages: a constant, and the tools, which weigh less beside a system prompt."""
        if not tools:
            return self._constant()
        role = "system" if any(message.get("role") == "system" for message in messages) else "user"
        key = (role, marshal.dumps(list(tools), _PLAIN))
        known = self._counts.get(key)
        if known is not None:
            return known
        probe = {"role": role, "content": ""}
        return self._keep(key, self._count([probe], tools) - self._of(probe))

    def _keep(self, key: Hashable, tokens: int) -> int:
        with self._lock:
            while len(self._counts) >= _MESSAGES_KEPT:
                del self._counts[next(iter(self._counts))]
            self._counts[key] = tokens
        return tokens


def offered_tools(view: View) -> tuple[Any, ...]:
    """The tools of the first system prompt that ``view`` shows, in OpenAI's shape: they are sent with every prompt.

    Logs also hold tools in other shapes, which litellm would count as next to nothing.
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


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """How large a prompt may grow.

    ``max_tokens`` is the user's own limit, ``margin_ratio`` the part of the model's input that is left free because
    servers add to a prompt what no one else can count.
    """

    max_tokens: int | None = None
    margin_ratio: float = 0.1

    def limit(self, agent_llm: AgentModel | None) -> int | None:
        """The most tokens that a prompt for this model may have; None where there is no limit to hold it to.

        The smaller of ``max_tokens`` and the model's input less the room for its answer less the margin. Many models
        share one window between input and output, and the price list gives both the whole of it, so that the room for
        an answer is never taken to be more than half. Without an agent's model nothing can be counted: no limit.
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
    """Where the longest tail starts that, with the first ``head`` events, makes a prompt of at most ``room`` tokens.

    ``sums`` are a View's (see ``AgentModel.token_sums``); ``len(sums) - 1`` means that no tail fits. Cost: the
    logarithm of the View's length.
    """
    return bisect_left(sums, sums[-1] + sums[head] - room, lo=head, hi=len(sums) - 1)


def _key(message: Mapping[str, Any]) -> Hashable:
    """A message as a key, equal only where the message is. Texts stand for themselves: they are shared by Views, and
    remember their hash.
    """
    values = [value if type(value) is str else marshal.dumps(value, _PLAIN) for value in message.values()]
    return (*values, *message)


_PLAIN = 2
"""The version of marshal's format that depends on values alone; later ones tell apart equal objects."""
