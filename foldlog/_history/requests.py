"""This module makes the request again that a reply answered, and says whether it has the same
bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog.eventstore import DocumentChanges, Event, InvalidArgument
from foldlog.formats.record import dict_or_empty
from foldlog.projections import RENDERING, ModelRequest, View, begins_reply
from foldlog.projections.conversations.labels import label
from foldlog.projections.messages.requests import SentBeside, digest

if TYPE_CHECKING:
    from foldlog._history.history import History

REQUEST: Final = "request"
"""The field of ``meta`` with the fingerprint of a request, and the document with its tools and
parameters.
"""


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


def sent_request(history: History, event_id: int) -> SentRequest:
    """Cost: the function reads the View of the reply, and renders it."""
    reply = _reply_of(history, event_id)
    first = reply[0]
    if first.redacted is not None:
        return SentRequest(first.id, None, None, (f"event {first.id} was redacted",))
    recorded = first.meta.get(REQUEST)
    if not isinstance(recorded, Mapping) or "rendering" not in recorded:
        return SentRequest(first.id, None, None)
    view = history.sent(recorded["view"])
    beside = beside_of(history, reply)
    request = view.request(
        recorded["dialect"], tools=beside.get("tools", ()), **beside.get("parameters", {})
    )
    present = request.fingerprint
    if present == recorded:
        return SentRequest(first.id, request, True)
    return SentRequest(first.id, request, False, tuple(_changes(view, recorded, present)))


def beside_of(history: History, reply: Sequence[Event]) -> JsonObject:
    """Return the tools and parameters of the request that a reply answered, if they were recorded
    with it.
    """
    # ``append_reply`` writes the document directly after the events of the reply, and a runtime
    # perhaps after its tools' results and later replies, which it appends together with the reply.
    recorded = dict_or_empty(reply[0].meta.get(REQUEST)).get("beside")
    newest = history.version()
    beside = _document_at(history, min(reply[-1].id + 2, newest))
    if recorded is None or digest(beside).hex() == recorded:
        return beside
    for event in history.events(reply[-1].id + 1):
        if isinstance(event, DocumentChanges) and REQUEST in event.changed:
            return _document_at(history, event.id + 1)
    return beside


def _document_at(history: History, version: int) -> JsonObject:
    return dict_or_empty(history.document(REQUEST, version=version))  # it may be redacted


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
            asked = view.then(replace(each, id=-1) for each in events[:index])
            request = asked.request(beside.dialect, tools=beside.tools, **beside.parameters)
            named[index:] = name_request(events[index:], request)
        of_reply = begins_reply(event)
    return named


def is_of_reply(event: Event, other: Event) -> bool:
    """Return whether both events of the agent belong to the same reply."""
    return begins_reply(event) and not begins_reply(event, other)


def _reply_of(history: History, event_id: int) -> list[Event]:
    before = [*takewhile(begins_reply, history.events(0, event_id + 1, reverse=True))]
    if not before:
        raise InvalidArgument(
            f"event {event_id} of {history.id!r} is not the reply of a model; name an event of a"
            " reply, such as one of its calls"
        )
    of_reply = partial(is_of_reply, other=before[0])
    after = takewhile(of_reply, history.events(event_id + 1))
    return [*reversed([before[0], *takewhile(of_reply, before[1:])]), *after]


def _changes(view: View, recorded: JsonMap, present: JsonMap) -> Iterator[str]:
    if recorded["rendering"] != RENDERING:
        yield f"rendered by foldlog's rules {recorded['rendering']}, and now by {RENDERING}"
    redacted = [event for event in view if event.redacted is not None]
    for event in redacted:
        mark = event.redacted
        assert mark is not None
        why = f": {mark.reason}" if mark.reason else ""
        yield f"{label(event)} {event.id} ({mark.bytes} bytes) was redacted by {mark.by}{why}"
    if recorded["beside"] != present["beside"]:
        yield "the recorded tools or parameters were redacted or changed"
    if recorded["messages"] != present["messages"] and not redacted:
        yield "the messages differ, and the log does not say why"
