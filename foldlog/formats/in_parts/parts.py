"""Convert records that are made of parts: one event for each part, and back.

The first event of a record has in ``origin.rest`` the difference between the record and its prediction from the events,
and the number of events; the others say there that they follow. A record is read and written without the records before
it, so any part of a history that begins with a record can be written.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import force_setattr

from foldlog.eventstore import (
    Action,
    CondensationAction,
    CondensationSummary,
    Content,
    DocumentChanges,
    Event,
    Message,
    Observation,
    Origin,
    Retraction,
    SystemMessage,
)
from foldlog.formats.format import Format, Options, name_left_out
from foldlog.formats.key_order import KeyOrder
from foldlog.formats.record import rest_of

_COUNT, _LATER = "events", "later"
"""Marks in ``origin.rest``: on the first of several events, the number of events of the record; on the others, that
they follow.
"""


@dataclass(frozen=True)
class InParts:
    """The properties of one format whose records are made of parts.

    ``name``       the name of the format
    ``accepts``    whether a JSON value can pass for a record, and ``matches``, whether it most likely is one
    ``events``     the events of a record, with ids from the second argument on. Raises ``NotAnEvent``
    ``predicted``  the record that events seem to come from, with the id of its source; also that of one event of ours
    ``source_id``  the id that the source gave a record
    """

    name: str
    accepts: Callable[[Any], bool]
    matches: Callable[[Any], bool]
    events: Callable[[Any, int], list[Event]]
    predicted: Callable[[Sequence[Event], Any], dict[str, Any]]
    source_id: Callable[[Any], Any]

    def format(self) -> Format:
        """Return the format."""
        return Format(
            name=self.name,
            matches=self.matches,
            accepts=self.accepts,
            decoder=self._decoder,
            encoder=lambda: _Encoder(self),
            live=True,
            standalone=True,
            source_id=self.source_id,
        )

    def _decoder(self, records: Iterable[Any], options: Options) -> _Decoder:
        return _Decoder(self, options.first_id)


class _Decoder:
    def __init__(self, format: InParts, first_id: int) -> None:
        self._format, self._next_id = format, first_id

    def restart(self, next_id: int) -> None:
        self._next_id = next_id

    def events(self, record: Any) -> list[Event]:
        events = self._format.events(record, self._next_id)
        source_id = self._format.source_id(record)
        difference = KeyOrder("content").difference(self._format.predicted(events, source_id), record)
        marks = {_COUNT: len(events)} if len(events) > 1 else {}
        for event in events[1:]:
            _set_origin(event, Origin(format=self._format.name, time=_naive(event), rest={_LATER: True}))
        rest = {**marks, **difference} or None
        _set_origin(events[0], Origin(format=self._format.name, id=source_id, time=_naive(events[0]), rest=rest))
        self._next_id += len(events)
        return events


def _naive(event: Event) -> str | None:
    return None if event.origin is None else event.origin.time


def _set_origin(event: Event, origin: Origin) -> None:
    force_setattr(event, "origin", origin)  # no other code has it before it is returned


class _Encoder:
    """Return the records that are complete with ``event``. An event that was added later is a separate record, and so
    is a summary in a View.
    """

    def __init__(self, format: InParts) -> None:
        self.left_out: Counter[str] = Counter()
        self._format = format
        self._group: list[Event] = []

    def restart(self, next_id: int) -> None:
        """Do nothing: this format remembers nothing of earlier records."""

    def records(self, event: Event) -> list[Any]:
        imported = event.origin is not None and event.origin.format == self._format.name
        if imported and (self._group or _LATER not in rest_of(event, self._format.name)):
            return self._imported(event)
        if isinstance(event, CondensationAction | Retraction | DocumentChanges):
            declined = isinstance(event, CondensationAction) and event.metadata.get("outcome") == "declined"
            self.left_out[name_left_out(event) or "condensation"] += not declined
            return []
        if isinstance(event, Message | SystemMessage | CondensationSummary | Action | Observation):
            return [self._format.predicted([event], None)]
        return []

    def end(self) -> list[Any]:
        if self._group:
            wanted = rest_of(self._group[0], self._format.name).get(_COUNT, 1)
            raise ValueError(f"the last record has {wanted} parts, and {len(self._group)} of them are here")
        return []

    def _imported(self, event: Event) -> list[Any]:
        self._group.append(event)
        rest = rest_of(self._group[0], self._format.name)
        if len(self._group) < rest.get(_COUNT, 1):
            return []
        group, self._group = self._group, []
        source_id = None if group[0].origin is None else group[0].origin.id
        return [KeyOrder("content").record(self._format.predicted(group, source_id), rest, group)]


# -- values in events -------------------------------------------------------------------------------------------------


def text_of(value: Any) -> str:
    """Return a text, or a value as JSON; empty for None, and for what JSON cannot hold."""
    if type(value) is str:
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (ValueError, RecursionError):
        return ""


def value_of(content: Content, *, imported: bool) -> Any:
    """Return the value that ``text_of`` most likely got."""
    if not isinstance(content, str):
        return list(content)
    if not imported or content[:1] not in ("{", "["):
        return content
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content


def image_of_bytes(data: Any, media_type: Any) -> dict[str, Any] | None:
    """Return a part with an image whose bytes a record has as ``{"$bytes": base64}``; None where it is not an image."""
    if type(data) is not dict or type(data.get("$bytes")) is not str or not str(media_type).startswith("image/"):
        return None
    return {"type": "image_url", "image_url": {"url": f"data:{media_type};base64,{data['$bytes']}"}}


def bytes_of_image(url: str) -> tuple[dict[str, str], str] | None:
    """Return the bytes of such an image and their type; None for any other URL."""
    if not url.startswith("data:") or ";base64," not in url:
        return None
    media_type, _, data = url.removeprefix("data:").partition(";base64,")
    return {"$bytes": data}, media_type
