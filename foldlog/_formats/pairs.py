"""Write events for formats in which a call and its result are one record."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from foldlog._formats.format import RecordEncoder
from foldlog._formats.told import NOT_WRITTEN
from foldlog.eventstore import Action, CondensationSummary, Event, Message, Observation, SystemMessage

Said = Message | SystemMessage | CondensationSummary
"""What stands for itself."""


class PairsEncoder(RecordEncoder):
    """A call waits for its result, or for the next message. What changes a View, and bookkeeping, has no record."""

    def __init__(self) -> None:
        self._open: list[Action] = []

    @abstractmethod
    def said(self, event: Said) -> Any:
        """Return the record of a message."""

    @abstractmethod
    def called(self, call: Action, result: Observation | None) -> Any:
        """Return the record of a call."""

    def records(self, event: Event) -> Sequence[Any] | None:
        match event:
            case Action():
                self._open.append(event)
                return []
            case Observation():
                return [self.called(self._taken(event), event)]
            case Message() | SystemMessage() | CondensationSummary():
                return [*self.end(), self.said(event)]
        return None if isinstance(event, NOT_WRITTEN) else []

    def end(self) -> Sequence[Any]:
        calls, self._open = self._open, []
        return [self.called(call, None) for call in calls]

    def _taken(self, result: Observation) -> Action:
        """Return the call of a result, which no longer waits."""
        for call in self._open:
            if result.cause == call.id or (result.call_id is not None and result.call_id == call.call_id):
                self._open.remove(call)
                return call
        return Action(id=result.id, tool=result.tool, call_id=result.call_id, timestamp=result.timestamp)


def arguments_of(call: Action) -> dict[str, Any]:
    """Return the arguments of a call as an object; another text under ``input``."""
    if not isinstance(call.arguments, str):
        return call.arguments or {}
    try:
        given = msgspec.json.decode(call.arguments)
    except msgspec.DecodeError:
        given = None
    return given if type(given) is dict else {"input": call.arguments}
