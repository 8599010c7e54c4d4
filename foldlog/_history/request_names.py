"""Name the request that a reply answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from foldlog.eventstore import Event
from foldlog.projections import ModelRequest, View, begins_reply
from foldlog.projections.messages.requests import REQUEST, SentBeside


@dataclass(frozen=True)
class SentRequest:
    """The request that a reply answered, made again from the log.

    ``event_id``   the first event of the reply
    ``request``    the request, or None if its version or its dialect was not recorded
    ``same``       whether the request has the same bytes as then; None if that is not recorded
    ``changes``    what has changed since, in words
    """

    event_id: int
    request: ModelRequest | None
    same: bool | None
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.same is None:
            return "not recorded"
        return "the same bytes" if self.same else "; ".join(self.changes)


def name_request(events: Sequence[Event], request: ModelRequest) -> tuple[Event, ...]:
    """Return the events of a reply, of which the first names the request that they answer."""
    index = next(index for index, event in enumerate(events) if begins_reply(event))
    meta = {**events[index].meta, REQUEST: request.fingerprint}
    return (*events[:index], replace(events[index], meta=meta), *events[index + 1 :])


def name_requests(
    events: Sequence[Event], view: View, beside: SentBeside, *, follows: bool
) -> list[Event]:
    """Return events that a runtime appends, in which each reply names the request that it answers:
    the View, and the events before the reply. ``follows`` says whether the events follow the View;
    otherwise only a reply at their beginning names its request.
    """
    named = [*events]
    of_reply = False
    for index, event in enumerate(events):
        # Some runtimes write the text and the calls of a reply apart.
        if begins_reply(event) and not of_reply and (follows or index == 0):
            asked = view.then(replace(earlier, id=-1) for earlier in events[:index])
            request = asked.request(beside.dialect, tools=beside.tools, **beside.parameters)
            named[index:] = name_request(events[index:], request)
        of_reply = begins_reply(event)
    return named


def is_of_reply(event: Event, other: Event) -> bool:
    """Return whether both events of the agent belong to the same reply."""
    return begins_reply(event) and not begins_reply(event, other)
