"""The events of one record that says, thinks and calls in an order of its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from foldlog._formats.claude_code.blocks import is_blank, said
from foldlog._formats.record import count_in, text_or_empty, usage_told
from foldlog.eventstore import Action, Annotation, Event, Message, Origin, Source


class RecordEvents:
    """A record while it is read: its events so far, and what was said and thought since the last of them.

    ``shown`` is whether its messages and calls are. ``close`` gives the events.
    """

    def __init__(self, first_id: int, origin: Origin, timestamp: datetime | None, *, shown: bool = True) -> None:
        self.events: list[Event] = []
        self.parts: list[dict[str, Any]] = []
        self.thinking: list[dict[str, Any]] = []
        self.meta: dict[str, Any] = {}
        """The ``meta`` of the next event."""
        self._first_id, self._origin, self._timestamp, self._shown = first_id, origin, timestamp, shown
        known = origin.id
        self._response = known if type(known) is str else f"message-{first_id}"

    def add(self, kind: Any, **fields: Any) -> None:
        place = len(self.events)
        common: dict[str, Any] = {"id": self._first_id + place, "timestamp": self._timestamp}
        common["origin"] = Origin(format=self._origin.format) if place else self._origin
        if self.meta:
            common["meta"], self.meta = self.meta, {}
        self.events.append(kind(**common, **fields))

    def tell(self, model: Any, cost: Any, counts: Any, **names: str | Sequence[str]) -> None:
        """Keep the model of a response, its cost, and its tokens: of ``counts``, each the one of this name, or the sum
        of those of these names.
        """
        usage = {
            ours: count_in(counts, *((theirs,) if isinstance(theirs, str) else theirs))
            for ours, theirs in names.items()
        }
        self.meta |= {"model": model} if type(model) is str else {}
        self.meta |= usage_told(usage, model=model, cost=cost)

    def call(self, tool: Any, arguments: Any, call_id: Any) -> None:
        """Add a call, with what was said and thought before it."""
        self.add(
            Action,
            tool=text_or_empty(tool),
            arguments=arguments if type(arguments) in (dict, str) else None,
            call_id=call_id if type(call_id) is str else None,
            response_id=self._response,
            thought=said(self.parts),
            thinking=tuple(self.thinking),
            shown=self._shown,
        )
        self.parts, self.thinking = [], []

    def say(self, source: Source, *, as_text: bool = False) -> None:
        """Add a message of the parts that no call took, if there are any; a single text as a text on request."""
        if self.parts:
            content = said(self.parts) if as_text else tuple(self.parts)
            shown, thinking = self._shown and not is_blank(content), tuple(self.thinking)
            self.add(Message, content=content, source=source, thinking=thinking, shown=shown)
            self.parts, self.thinking = [], []

    def close(self, name: str, data: Any) -> list[Event]:
        """Return the events; an annotation where there are no others."""
        if not self.events:
            self.add(Annotation, name=name, data=data)
        return self.events
