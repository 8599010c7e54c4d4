"""What an interrupt of a graph asks about calls, and what its answer decides.

The value of an interrupt names a call if it contains the name and the arguments of the call. These
forms do: ``HumanInTheLoopMiddleware``, the older ``HumanInterrupt``, and a tool call of LangChain.
An answer decides if it has a form of the same SDKs, or if it is a bool.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from foldlog.adapters._shared import Approval
from foldlog.eventstore import Action
from foldlog.runtimes import text_or_none, within

_TYPES = {
    "approve": True,
    "accept": True,
    "edit": True,
    "reject": False,
    "ignore": False,
    "respond": False,
    "response": False,
}
"""Maps the type of an answer to whether the call may run."""


class Question(NamedTuple):
    """An interrupt.

    ``value``    the value of the interrupt, as JSON
    ``call_id``  the id of the call whose tool raised the interrupt, or None if it is not known
    ``answers``  the answer as JSON, or nothing
    ``by``       the person who answered
    """

    value: Any
    call_id: str | None
    answers: tuple[Any, ...] = ()
    by: str | None = None

    def approvals(self, open_calls: Sequence[Action]) -> Iterator[Approval]:
        """Yield what was asked and decided. ``open_calls`` are the calls without a result."""
        requests = [*_requests_in(self.value)] or [self.value]
        call_ids = [self._call_id(request) for request in requests]
        for call in open_calls:
            for place, request in enumerate(requests):
                if call_ids[place] is None and _names(request, call):
                    call_ids[place] = call.call_id
                    break
        for call_id, request in zip(call_ids, requests, strict=True):
            yield Approval.asked(call_id, request)
        for answer in self.answers:
            decisions = _list_of(within(answer, "decisions") or answer)
            if len(decisions) == len(requests):
                for call_id, decision in zip(call_ids, decisions, strict=True):
                    yield from self._decided(call_id, decision)

    def _call_id(self, request: Any) -> str | None:
        named = text_or_none(request, "tool_call_id") or text_or_none(request, "id")
        return named or self.call_id

    def _decided(self, call_id: str | None, decision: Any) -> Iterator[Approval]:
        kind = within(decision, "type") or decision
        approved = _TYPES.get(kind) if isinstance(kind, str) else kind
        if isinstance(approved, bool):
            args = within(decision, "args")
            reason = text_or_none(decision, "message") or text_or_none(args) or ""
            edited = within(decision, "edited_action") or (None if reason else args)
            yield Approval.decided(call_id, approved, by=self.by, reason=reason, edited=edited)


def _requests_in(value: Any) -> Iterator[Any]:
    match value:
        case {"name": str(), "args": dict()} | {"action": str(), "args": dict()}:
            yield value
        case dict():
            for child in value.values():
                yield from _requests_in(child)
        case list():
            for child in value:
                yield from _requests_in(child)


def _names(request: Any, call: Action) -> bool:
    tool = within(request, "name") or within(request, "action")
    return (tool, within(request, "args")) == (call.tool, call.arguments)


def _list_of(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
