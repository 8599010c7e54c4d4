"""Events of the model as events of the product, and back.

The tests compare ``product_fields`` of an event of the product with ``model_fields`` of an event of
the model.
"""

import foldlog.eventstore as es
from foldlog.eventstore.codec import KINDS
from tests.simulation import model

_FIELDS = {
    "action": ("tool", "arguments", "call_id", "response_id", "thought"),
    "observation": ("tool", "call_id", "is_error"),
    "annotation": ("name", "data"),
    "condensation_request": ("reason",),
    "retraction": ("version", "reason"),
    "redaction": ("by", "reason"),
    "condensation": ("summary", "summary_offset"),
}
"""The fields of each kind of event that have the same names and values in model and product."""
FORGOTTEN = ("forgotten_event_ids", "forgotten_events_start_id", "forgotten_events_end_id")


def to_product(event):
    """Return an event of the model as the event to append."""
    kind = event["kind"]
    origin = event["origin"]
    names = ("cause", "meta", "source", *_FIELDS.get(kind, ()))
    fields = {name: event[name] for name in names}
    if origin is not None:
        fields["origin"] = es.Origin(format=origin[0], id=origin[1])
    match kind:
        case "message" | "observation":
            fields["content"] = _to_parts(event["content"])
        case "action":
            fields["thinking"] = _to_thinking(event["thinking"])
        case "annotation":
            fields |= {"shown": event["shown"], "stays_with_next": event["stays"]}
        case "condensation":
            fields |= {name: event[name] for name in FORGOTTEN}
            if model.is_declined(event):
                fields["metadata"] = {"outcome": "declined", "reason": "drawn"}
    return KINDS[kind](**fields)


def product_fields(event):
    """Return an event of the product as the model has it, without what the model does not know."""
    kind = event.__struct_config__.tag
    origin = event.origin
    fields = {
        "id": event.id,
        "cause": event.cause,
        "meta": event.meta,
        "source": event.source,
        "shown": event.shown,
        "stays": event.stays_with_next,
        "origin": None if origin is None else (origin.format, origin.id),
        "redacted": event.redacted is not None,
        "kind": kind,
    }
    fields |= {name: getattr(event, name) for name in _FIELDS.get(kind, ())}
    match event:
        case es.Message() | es.Observation():
            fields["content"] = _from_parts(event.content)
        case es.Redaction():
            fields["event_ids"] = tuple(event.event_ids)
        case es.DocumentChanges():
            fields["names"] = sorted(event.changed)
        case es.CondensationAction():
            fields["forgets"] = frozenset(event.forgotten_event_ids or ())
    if isinstance(event, es.Message | es.Action):
        fields["thinking"] = event.thinking[0]["thinking"] if event.thinking else ""
    return fields


def model_fields(event):
    """Return what ``product_fields`` must return for an event of the model."""
    fields = {name: value for name, value in event.items() if name not in ("at", "tag", "was")}
    match event["kind"]:
        case "document_changes":
            fields["names"] = sorted(fields.pop("values"))
        case "condensation":
            fields["forgets"] = frozenset(model.forgotten(event))
            for name in FORGOTTEN:
                del fields[name]
        case "message":
            fields.setdefault("thinking", "")
    return fields


def to_model(event):
    """Return an event that the product made, such as a digest's condensation, as an event of the
    model.
    """
    fields = product_fields(event)
    if fields["kind"] == "condensation":
        fields |= dict.fromkeys(FORGOTTEN) | {FORGOTTEN[0]: sorted(fields.pop("forgets"))}
    elif fields["kind"] == "message":
        del fields["thinking"]
    return fields


def _to_parts(content):
    if isinstance(content, tuple):
        text, data = content
        return ({"type": "text", "text": text}, {"type": "raw", "data": data})
    return content


def _from_parts(content):
    if isinstance(content, tuple | list):
        first, second = content
        return (first["text"], second["data"])
    return content


def _to_thinking(text):
    return (model.thinking_part(text),) if text else ()
