"""Add up the calls of models by day, by model, and by the price range of their prompts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from copy import copy
from datetime import UTC
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from foldlog.eventstore.usage import whole
from foldlog.formats.hash_set import HashSet
from foldlog.formats.model_calls import ModelCall
from foldlog.formats.record import time_in

NO_DAY = "(no time)"
"""The day of calls without a time."""
DIGITS = 12
"""The number of decimal places of a cost. Further digits are rounding errors, because costs are
binary fractions.
"""
USAGE = (
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "cache_write_1h_tokens",
    "reasoning_tokens",
)
PRICED_FROM = (-1, 0, *(size * 1_000 for size in (32, 100, 128, 200, 256, 272, 512)))
"""The sizes of prompts, in tokens, above which a price in litellm's table changes. Only prompts
between the same two neighboring sizes are added up together.
"""
HASH_BYTES: Final = 8
"""The number of bytes by which a reply is recognized."""
_POINTS: Final = 64
"""The maximum number of points of a curve."""
_OPEN_MAX: Final = 16
"""The largest number of open replies. A reply is open as long as more lines of it may follow.
Parallel sub-agents write their lines alternately.
"""


class Calls(NamedTuple):
    """Calls of one model on one day. ``cost`` is in US dollars, or None if no cost is recorded.
    ``above`` is the largest size in ``PRICED_FROM`` that every prompt of the calls exceeds, or -1
    if the sizes of the prompts are unknown.
    """

    day: str
    model: str
    usage: dict[str, int]
    cost: float | None
    calls: int
    above: int = -1
    by_condenser: bool = False

    @property
    def tokens(self) -> int:
        """Return the tokens of prompts and replies together."""
        usage = self.usage
        return usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)

    def negative(self) -> Calls:
        """Return a copy with negative figures. Adding the copy to a sum subtracts the calls."""
        usage = {name: -number for name, number in self.usage.items()}
        cost = None if self.cost is None else -self.cost
        return self._replace(usage=usage, cost=cost, calls=-self.calls)


def calls_in(call: ModelCall, *, is_run: bool = False) -> Calls:
    """Return the usage of a model's call. If ``is_run`` is true, the call is a sum of several
    calls.
    """
    day = NO_DAY if call.at is None else call.at.astimezone(UTC).date().isoformat()
    usage = whole(call.usage)
    above = -1
    if call.calls == 1 and not is_run:
        above = PRICED_FROM[bisect_left(PRICED_FROM, max(1, usage.get("prompt_tokens", 0))) - 1]
    return Calls(day, call.model, usage, call.cost, max(1, call.calls), above, call.by_condenser)


def hash_of_reply(reply: str, calls: Calls) -> int:
    """Return a number by which a reply is recognized. Some servers use one id for many replies, so
    the hash includes the model and the tokens. An id of several parts, such as a message and its
    request, is already unique.
    """
    text = repr(reply if " " in reply else (reply, calls.model, sorted(calls.usage.items())))
    return int.from_bytes(blake2b(text.encode(), digest_size=HASH_BYTES).digest())


class _Sum(Struct):
    """The sum of calls so far."""

    usage: dict[str, int]
    cost: float | None
    calls: int


class Sums:
    """Adds up calls of one day, one model and one price range. Calls of condensers have separate
    sums. Calls without a cost have separate sums too, because a sum with a missing cost would look
    complete.
    """

    def __init__(self, calls: Iterable[Calls] = ()) -> None:
        self._sums = dict[tuple[Any, ...], _Sum]()
        for call_group in calls:
            self.add(call_group)

    def add(self, call_group: Calls) -> None:
        """Add calls to their sum."""
        day, model, usage, cost, calls, *rest = call_group
        is_priced = "prompt_tokens" in usage, "completion_tokens" in usage
        key = day, model, cost is None, is_priced, *rest
        sums = self._sums.get(key)
        if sums is None:
            self._sums[key] = _Sum(dict(usage), cost, calls)
            return
        added_up = sums.usage
        for name, number in usage.items():
            added_up[name] = added_up.get(name, 0) + number
        sums.cost = None if cost is None else round(cost + (sums.cost or 0.0), DIGITS)
        sums.calls += calls

    def calls(self) -> list[Calls]:
        """Return the sums."""
        return [
            Calls(day, model, dict(sums.usage), sums.cost, sums.calls, *rest)
            for (day, model, _, _, *rest), sums in self._sums.items()
        ]


def add_up(call_groups: Iterable[Calls]) -> list[Calls]:
    """Return the sums of calls, one for each day, model and price range."""
    return Sums(call_groups).calls()


class Curve(Struct):
    """A series of numbers in at most 64 points. Each point is the highest of ``stride`` consecutive
    numbers. ``newest`` is how many numbers the last point covers so far.
    """

    points: list[int] = []
    stride: int = 1
    newest: int = 0

    def add(self, number: int) -> None:
        """Add the next number. A full curve then has half the points."""
        if self.points and self.newest < self.stride:
            self.points[-1] = max(self.points[-1], number)
            self.newest += 1
            return
        self.points.append(number)
        self.newest = 1
        if len(self.points) == _POINTS:
            self.points = [*map(max, self.points[::2], self.points[1::2])]
            self.stride *= 2
            self.newest = self.stride


class CountedReplies(Struct):
    """The stored usage of the replies of models in a source.

    ``open``         the time, model and tokens of the last replies. An open reply may get further
                     lines.
    ``costs``        the recorded costs of open replies, in US dollars.
    ``calls``        the sums of all complete replies.
    ``hashes``       eight bytes for each complete reply, to recognize the reply in other sources.
    ``last_prompt``  the tokens of the last prompt.
    ``context``      the tokens of the prompts, as a curve.
    """

    open: dict[str, tuple[str | None, str, dict[str, int]]] = {}
    calls: list[Calls] = []
    hashes: bytes = b""
    last_prompt: int | None = None
    context: Curve = field(default_factory=Curve)
    costs: dict[str, float] = {}


class ReplyCounter:
    """Counts the replies of models in one source. A later copy of a reply is not counted. A reply
    takes about nine bytes of memory.
    """

    def __init__(self, state: CountedReplies) -> None:
        """Continue from ``state``."""
        self._open = state.open
        self._costs = state.costs
        self._last_prompt = state.last_prompt
        self._context = state.context
        self._sums = Sums(state.calls)
        self._counted_hashes = HashSet(slice(0, HASH_BYTES))
        for start in range(0, len(state.hashes), HASH_BYTES):
            self._counted_hashes.add(state.hashes[start : start + HASH_BYTES])

    def add_line(
        self,
        key: str,
        at: str | None,
        model: str,
        usage: dict[str, int],
        cost: float | None = None,
    ) -> None:
        """Store the usage and the cost in a line of a reply, in place of those in earlier lines."""
        if key not in self._open and len(self._open) >= _OPEN_MAX:
            oldest = next(iter(self._open))
            self.add(_call_of(oldest, *self._open.pop(oldest), self._costs.pop(oldest, None)))
        self._open[key] = at, model, usage
        if cost is not None:
            self._costs[key] = cost

    def add(self, call: ModelCall) -> None:
        """Count a complete reply, unless it was counted before."""
        calls = calls_in(call)
        tokens = calls.usage.get("prompt_tokens")
        if tokens:
            self._last_prompt = tokens
            self._context.add(tokens)
        if call.reply is None or self._remember_reply(call.reply, calls):
            self._sums.add(calls)

    def state(self) -> CountedReplies:
        """Return what a store keeps, to continue later."""
        hashes = b"".join(self._counted_hashes.pages())
        return CountedReplies(
            self._open, self._sums.calls(), hashes, self._last_prompt, self._context, self._costs
        )

    def total(self) -> CountedReplies:
        """Return the figures as if the open replies were complete."""
        completed = copy(self)
        completed._open = {}
        completed._costs = {}
        completed._sums = Sums(self._sums.calls())
        completed._context = replace(self._context, points=[*self._context.points])
        completed._counted_hashes = self._counted_hashes.copy()
        for reply, fields in self._open.items():
            completed.add(_call_of(reply, *fields, self._costs.get(reply)))
        return completed.state()

    def _remember_reply(self, reply: str, calls: Calls) -> bool:
        """Remember a reply. Return whether the reply must be counted."""
        return self._counted_hashes.add(hash_of_reply(reply, calls).to_bytes(HASH_BYTES))


def _call_of(
    reply: str, at: str | None, model: str, usage: dict[str, int], cost: float | None
) -> ModelCall:
    return ModelCall(time_in(at), model, usage, cost, 1, reply)
