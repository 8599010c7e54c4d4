"""The remains of an event whose content was erased. Pure.

These stay: the kind, the id, the place in the log, times, and the fields that pair a call with its
result (tool, call id, response id, cause, source), the place in its record, and the id that its
source gave it where that is a number or a short word. So do names of tools, annotations and
documents, the effect of a condensation or a retraction on a View, and what calls of models took:
which model, how many tokens, what it cost. Every other text becomes ``[redacted]``.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec.structs import replace

from foldlog._telemetry import OF_APPENDS, SHOWN
from foldlog._usage import COST, OF_A_CONDENSER, USAGE_MAPS, USAGE_NAMES, USAGE_TEXTS
from foldlog.eventstore.events import (
    ATTRIBUTES,
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    CondensationSummary,
    DocumentChanges,
    Erased,
    Event,
    KnownEvent,
    Message,
    Observation,
    Origin,
    Redacted,
    Redaction,
    Retraction,
    SystemMessage,
)

TEXT: Final = "[redacted]"
"""The text that replaces a text. It is stored, and ``verify`` compares it: a change needs a
migration.
"""

_THINKING: Final = ({"type": "thinking", "thinking": TEXT},)
"""The block that replaces thinking: thinking tells where a loop of calls begins. No model is sent a
block without a signature.
"""
_is_name: Final = re.compile(r"[\w.:-]{1,64}", re.ASCII).fullmatch


def untraced(event: Event) -> Event:
    """Return the event without what its append added, which is not what was appended."""
    if OF_APPENDS.isdisjoint(event.meta):
        return event
    return replace(
        event, meta={name: value for name, value in event.meta.items() if name not in OF_APPENDS}
    )


def can_be_redacted(event: Event) -> bool:
    """Return whether it is known which fields are content: not for a kind of a later version or a
    receipt.
    """
    return isinstance(event, KnownEvent) and not isinstance(event, Redaction | Erased)


def has_content(event: Event) -> bool:
    """Return whether the content of an event is there."""
    return event.redacted is None


def without_content(event: Event, redacted: Redacted) -> Event:
    """Return the event without its content. For one that has this receipt already, return an equal
    event.
    """
    kept = {"meta": _paid(event.meta), "extra": {}, "origin": _origin(event.origin)}
    return replace(event, **kept, redacted=redacted, **_fields_without_content(event))


def _paid(told: dict[str, Any], *, within: bool = False) -> dict[str, Any]:
    """Return what calls of models took, and which View they answer: numbers, and names, as of
    models.
    """
    paid: dict[str, Any] = {}
    for name, value in told.items():
        match value:
            case dict() if name in USAGE_MAPS:
                paid[name] = _paid(value, within=True)
            case list() if name in USAGE_MAPS:
                paid[name] = [_paid(each) for each in value if isinstance(each, dict)]
            case str() if name in USAGE_TEXTS or (name in USAGE_NAMES and _is_name(value)):
                paid[name] = value
            case int() | float() if name in (COST, SHOWN) or (within and name.isidentifier()):
                paid[name] = value
    return paid


def _fields_without_content(event: Event) -> dict[str, Any]:
    match event:
        case SystemMessage():
            return {"content": TEXT, "tools": ()}
        case Message(thinking=thinking):
            return {"content": TEXT, "thinking": _THINKING if thinking else ()}
        case Action(arguments=arguments, thought=thought, thinking=thinking):
            return {
                "arguments": None if arguments is None else {"redacted": TEXT},
                "thought": TEXT if thought else "",
                "thinking": _THINKING if thinking else (),
            }
        case Observation():
            return {"content": TEXT, "extras": {}}
        case Annotation(name=name, data=data):
            return {"data": _paid({name: data}).get(name) if name == OF_A_CONDENSER else None}
        case DocumentChanges(changed=changed):
            values = {name: {"value": {} if name == ATTRIBUTES else TEXT} for name in changed}
            return {
                "changed": {
                    name: each if "deleted" in each else values[name]
                    for name, each in changed.items()
                }
            }
        case CondensationRequest(reason=reason) | Retraction(reason=reason):
            return {"reason": TEXT if reason else ""}
        case CondensationAction(summary=summary, metadata=metadata):
            if metadata.get("outcome") == "declined":
                declined = {"outcome": "declined", "reason": TEXT}
            else:
                declined = {}
            return {
                "summary": None if summary is None else TEXT,
                "metadata": declined | _paid(metadata),
            }
        case CondensationSummary():
            return {"content": TEXT}
    raise TypeError(f"an event of type {type(event).__name__} cannot be redacted")


def _origin(origin: Origin | None) -> Origin | None:
    """Keep format, time, the place in a record of several events, and an id by which other records
    name this one.
    """
    kept = None if origin is None or not _is_name(str(origin.id)) else origin.id
    return None if origin is None else replace(origin, id=kept)
