"""Which events come back from their stored form as they are, told without reading them back.

Most events are flat: texts, flags, numbers, and maps of texts. Whether such a one can be read again is a matter of its
fields' types, its *shape*. So of each shape one event is read back, and those that follow are known by it.
"""

from __future__ import annotations

from datetime import UTC
from typing import Any, Final

from msgspec.structs import astuple, replace

from eventstore.events import Action, Event, Message, Observation

__all__ = ["Shapes"]

_Flat = Message | Action | Observation
_SOURCES: Final = frozenset({"user", "agent", "environment"})


class Shapes:
    """The shapes of the flat events that were read back so far. There are few, as JSON has few types."""

    def __init__(self) -> None:
        self._known: set[tuple[type, ...]] = set()

    def own_copy(self, event: Event) -> Event | None:
        """Return the event as a reader of its stored form sees it, sharing no mutable value with ``event``; None if
        that is not known. Its texts may still be ones that JSON cannot hold.
        """
        if event.origin is not None or _shape(event) not in self._known or not _is_flat(event):
            return None
        if isinstance(event, Action):
            arguments = event.arguments
            if type(arguments) is dict:
                arguments = arguments.copy()
            return replace(event, meta=event.meta.copy(), extra={}, arguments=arguments)
        if isinstance(event, Observation):
            return replace(event, meta=event.meta.copy(), extra={}, extras=event.extras.copy())
        return replace(event, meta=event.meta.copy(), extra={})

    def learn(self, event: Event, read_back: Event) -> None:
        """``read_back`` is what came of the stored form of ``event``. One that is redacted is looked at each time."""
        if event.origin is None and event.redacted is None and _shape(event) == _shape(read_back) and _is_flat(event):
            self._known.add(_shape(event))


def _shape(event: Event) -> tuple[type, ...]:
    return type(event), *map(type, astuple(event))


def _is_flat(event: Event) -> bool:
    """Whether an event whose fields are of the right types has no value that could come back as another one."""
    if not isinstance(event, _Flat) or event.extra or event.source not in _SOURCES:
        return False
    if event.timestamp is not None and event.timestamp.tzinfo is not UTC:
        return False
    if event.meta and not _holds_texts(event.meta):
        return False
    if isinstance(event, Action):
        arguments = event.arguments
        return (
            type(event.thought) is str
            and not event.thinking
            and (type(arguments) is not dict or _holds_texts(arguments))
        )
    if isinstance(event, Message) and event.thinking:
        return False
    return type(event.content) is str and (type(event) is not Observation or _holds_texts(event.extras))


def _holds_texts(texts: dict[str, Any]) -> bool:
    for name, value in texts.items():  # noqa: SIM110  all() would make a generator for each event
        if type(name) is not str or type(value) is not str:
            return False
    return True
