"""Write an event as JSON, for programs."""

from __future__ import annotations

import json
from datetime import datetime

import msgspec

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import Event, UnknownEvent
from foldlog.projections.conversations.labels import label


def event_document(event: Event, recorded_at: datetime | None = None) -> JsonObject:
    """Return the stored event with its id and its ``timestamp`` (perhaps None). If ``recorded_at``
    is set, the result also has the field ``recorded_at``. If this version does not know the kind of
    the event, the stored fields are returned unchanged.
    """
    if recorded_at is None:
        times = {}
    else:
        times = {"recorded_at": recorded_at.isoformat()}
    if isinstance(event, UnknownEvent):
        fields = {
            "schema": event.stored_schema,
            **json.loads(event.body),
            "kind": event.stored_kind,
        }
    else:
        fields = {"timestamp": None, **msgspec.to_builtins(event)}
    return {"id": event.id, **fields, **times}


def shown_document(event: Event, recorded_at: datetime | None = None) -> JsonObject:
    """Return ``event_document`` with the ``label`` of the event in lists and filters. The label of
    a failed observation is ``error``, or ``refused`` if a person refused the call.
    """
    return {**event_document(event, recorded_at), "label": label(event)}
