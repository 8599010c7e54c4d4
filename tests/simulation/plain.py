"""Events of the model: how they are made, as events of the product, and back."""

import foldlog.eventstore as es
from tests.foldlog import records
from tests.simulation import model

_WORDS = "redacted"


def message(content, source="user", **fields):
    return model.event_of("message", source, shown=True, content=content) | fields


def action(tool, arguments, call_id, response_id=None, **fields):
    given = {"tool": tool, "arguments": arguments, "call_id": call_id, "response_id": response_id}
    return model.event_of("action", "agent", shown=True, thought="", thinking="", **given) | fields


def observation(content, call_id, tool="", **fields):
    given = {"content": content, "call_id": call_id, "tool": tool, "is_error": False}
    return model.event_of("observation", "environment", shown=True, **given) | fields


def annotation(name, data, **fields):
    return model.event_of("annotation", "environment", shown=False, name=name, data=data) | fields


def reasoning(text):
    """Return thinking that stays with what the agent says or does next."""
    return annotation("reasoning", _thinking(text)[0], source="agent", shown=True, stays=True)


def request(reason):
    return model.event_of("condensation_request", "agent", shown=False, reason=reason)


def retraction(version, reason):
    return model.event_of("retraction", "user", shown=False, version=version, reason=reason)


def condensation(ids, between=None, summary=None, offset=None):
    start, end = between or (None, None)
    given = {
        "forgotten_event_ids": ids,
        "forgotten_events_start_id": start,
        "forgotten_events_end_id": end,
    }
    return model.event_of(
        "condensation", "agent", shown=False, summary=summary, summary_offset=offset, **given
    )


def record(event, form):
    """Return an event as OpenHands writes it, in its version 0 or 1."""
    _, number = event["origin"]
    if form == "openhands-v0":
        return {
            "id": number,
            "source": event["source"],
            "action": "message",
            "args": {"content": event["content"]},
        }
    number = int(number.removeprefix("event-"))
    if event["kind"] == "condensation":
        return records.condensed(
            number, event["forgotten_event_ids"], event["summary"], event["summary_offset"]
        )
    return records.said(number, event["content"], event["source"])


def built(event):
    """Return the event to append."""
    origin = event["origin"]
    common = {
        "cause": event["cause"],
        "meta": event["meta"],
        "source": event["source"],
        "origin": None if origin is None else es.Origin(format=origin[0], id=origin[1]),
    }
    match event["kind"]:
        case "message":
            return es.Message(content=_content(event["content"]), **common)
        case "action":
            given = {
                name: event[name]
                for name in ("tool", "arguments", "call_id", "response_id", "thought")
            }
            return es.Action(**given, thinking=_thinking(event["thinking"]), **common)
        case "observation":
            given = {name: event[name] for name in ("tool", "call_id", "is_error")}
            return es.Observation(content=_content(event["content"]), **given, **common)
        case "annotation":
            given = {"name": event["name"], "data": event["data"], "shown": event["shown"]}
            return es.Annotation(**given, stays_with_next=event["stays"], **common)
        case "condensation_request":
            return es.CondensationRequest(reason=event["reason"], **common)
        case "retraction":
            return es.Retraction(version=event["version"], reason=event["reason"], **common)
        case "condensation":
            names = ("forgotten_event_ids", "forgotten_events_start_id", "forgotten_events_end_id")
            given = {name: event[name] for name in (*names, "summary", "summary_offset")}
            declined = event["summary"] is None and not list(model.forgotten(event))
            metadata = {"outcome": "declined", "reason": "drawn"} if declined else {}
            return es.CondensationAction(**given, metadata=metadata, **common)
    raise AssertionError(event["kind"])


def said(event):
    """Return an event of the store as the model has it, without what the model does not know."""
    origin = event.origin
    told = {
        "id": event.id,
        "cause": event.cause,
        "meta": event.meta,
        "source": event.source,
        "shown": event.shown,
        "stays": event.stays_with_next,
        "origin": None if origin is None else (origin.format, origin.id),
        "redacted": event.redacted is not None,
    }
    match event:
        case es.Message():
            return told | {"kind": "message", "content": _text(event.content)} | _thought(event)
        case es.Action():
            names = ("tool", "arguments", "call_id", "response_id", "thought")
            return (
                told
                | {"kind": "action"}
                | {name: getattr(event, name) for name in names}
                | _thought(event)
            )
        case es.Observation():
            names = ("tool", "call_id", "is_error")
            given = {name: getattr(event, name) for name in names}
            return told | {"kind": "observation", "content": _text(event.content)} | given
        case es.Annotation():
            return told | {"kind": "annotation", "name": event.name, "data": event.data}
        case es.CondensationRequest():
            return told | {"kind": "condensation_request", "reason": event.reason}
        case es.Retraction():
            return told | {"kind": "retraction", "version": event.version, "reason": event.reason}
        case es.Redaction():
            given = {"event_ids": tuple(event.event_ids), "by": event.by, "reason": event.reason}
            return told | {"kind": "redaction"} | given
        case es.DocumentChanges():
            return told | {"kind": "document_changes", "names": sorted(event.changed)}
        case es.CondensationAction():
            ids = frozenset(event.forgotten_event_ids or ())
            given = {
                "forgets": ids,
                "summary": event.summary,
                "summary_offset": event.summary_offset,
            }
            return told | {"kind": "condensation"} | given
    return told | {"kind": type(event).__name__}


def expected(event):
    """Return what ``said`` must give for an event of the model."""
    told = {name: value for name, value in event.items() if name not in ("at", "tag", "was")}
    if told["kind"] == "document_changes":
        told["names"] = sorted(told.pop("values"))
    elif told["kind"] == "condensation":
        told["forgets"] = frozenset(model.forgotten(event))
        for name in ("forgotten_event_ids", "forgotten_events_start_id", "forgotten_events_end_id"):
            del told[name]
    elif told["kind"] == "message":
        told.setdefault("thinking", "")
    return told


def as_stored(event):
    """Return an event that the product made, such as a digest's condensation, to be appended to the
    model.
    """
    told = said(event)
    if told["kind"] == "condensation":
        told["forgotten_event_ids"] = sorted(told.pop("forgets"))
        told["forgotten_events_start_id"] = told["forgotten_events_end_id"] = None
    told.pop("thinking", None) if told["kind"] == "message" else None
    return told


def _content(content):
    if isinstance(content, tuple):
        text, data = content
        return ({"type": "text", "text": text}, {"type": "raw", "data": data})
    return content


def _text(content):
    if isinstance(content, tuple | list):
        first, second = content
        return (first["text"], second["data"])
    return content


def _thinking(text):
    return ({"type": "thinking", "thinking": text, "signature": "s"},) if text else ()


def _thought(event):
    return {"thinking": event.thinking[0]["thinking"] if event.thinking else ""}
