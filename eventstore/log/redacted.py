"""Make the event that remains after a redaction.

A redaction does not change:

- the kind, the id, the position and the times of the event
- the fields that pair a call with its result: tool, call id, response id, cause and source
- the source id of an imported event, if the id is a number or a short word
- the number of an imported event in its source record
- the names of tools, annotations and documents
- the effect of a condensation or a retraction on a View
- the usage of model calls: the model, the numbers of tokens, and the cost. Tokens that a server
  counts in a map within its usage stay under foldlog's names.

Any other text becomes ``[redacted]``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from msgspec.structs import replace

from foldlog._base.json_types import JsonMap, JsonObject
from foldlog._base.telemetry import OF_APPENDS, SHOWN
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
from foldlog.eventstore.usage import (
    CALLS,
    CONDENSER_META,
    COPIED,
    COST,
    PLACED_FROM,
    USAGE_MAPS,
    USAGE_NAMES,
    USAGE_TEXTS,
    WRITTEN_AGAIN,
    cost_of,
    describes_call,
    recorded_calls,
    reports_usage,
    usage_of,
    without_tokens,
)

TEXT: Final = "[redacted]"
"""Replaces a redacted text. Stores already contain this text, and ``verify`` compares it, so a
change of ``TEXT`` needs a migration.
"""

_THINKING: Final = ({"type": "thinking", "thinking": TEXT},)
"""The block that replaces thinking. Thinking marks the beginning of a tool loop, so a redacted
event must still contain a block of thinking. The block ``_THINKING`` is never sent to a model,
because it has no signature.
"""
_is_name: Final = re.compile(r"[\w.:-]{1,64}", re.ASCII).fullmatch


def without_trace(event: Event) -> Event:
    """Return the event without its trace context and other metadata that an append adds."""
    if OF_APPENDS.isdisjoint(event.meta):
        return event
    return replace(
        event, meta={name: value for name, value in event.meta.items() if name not in OF_APPENDS}
    )


def can_be_redacted(event: Event) -> bool:
    # foldlog does not know which fields of an unknown event hold content.
    return isinstance(event, KnownEvent) and not isinstance(event, Redaction | Erased)


def has_content(event: Event) -> bool:
    return event.redacted is None


def without_content(event: Event, redacted: Redacted) -> Event:
    """Return the event that remains after a redaction. ``redacted`` describes the redaction."""
    return _redact(event, redacted)


def may_remain_of(remaining: Event, event: Event) -> bool:
    """Return whether ``remaining`` may be what a redaction left of ``event``. The redactions of
    earlier versions left no marks, and before that fewer counts.
    """
    redacted = remaining.redacted
    if redacted is None or not can_be_redacted(event):
        return False
    return any(
        _redact(event, redacted, all_counts=all_counts, marks=marks) == remaining
        for all_counts, marks in ((True, True), (True, False), (False, False))
    )


def _redact(
    event: Event, redacted: Redacted, *, all_counts: bool = True, marks: bool = True
) -> Event:
    usage_in = partial(_usage_in, all_counts=all_counts)
    # Figures read the calls of imported events by another rule.
    is_call = describes_call if event.origin is None else reports_usage
    remaining = {
        "meta": usage_in(event.meta, is_call=is_call),
        "extra": {},
        "origin": _origin(event.origin),
        **_fields_without_content(event, usage_in),
    }
    if marks and event.origin is not None:
        remaining["meta"] |= _marks_in(event.meta)
        if isinstance(event, Retraction) and event.reason == WRITTEN_AGAIN:
            remaining["reason"] = WRITTEN_AGAIN
    return replace(event, **remaining, redacted=redacted)


def _marks_in(meta: JsonMap) -> JsonObject:
    """Return the marks that say how figures count an imported event. They are no text of a user."""
    return {
        name: meta[name]
        for name, kinds in ((COPIED, (bool,)), (PLACED_FROM, (int, type(None))))
        if name in meta and type(meta[name]) in kinds
    }


def _usage_in(
    values: JsonObject,
    *,
    within: bool = False,
    all_counts: bool = True,
    is_call: Callable[[JsonMap], bool] = describes_call,
) -> JsonObject:
    """Return the fields that describe model calls: usage, and the View before each call.

    ``within``      whether ``values`` are usage, so that each number in them may be a count
    ``all_counts``  whether figures must be the same with the result. If not, the result has only
                    the numbers in maps of usage, as earlier versions left them.
    ``is_call``     the rule by which figures count fields outside of usage as a call
    """
    if not values:
        return {}  # most events describe no model call
    usage: JsonObject = {}
    for name, value in values.items():
        match value:
            case dict() if name in USAGE_MAPS:
                usage[name] = _usage_in(value, within=True, all_counts=all_counts)
            case list() if name in USAGE_MAPS:
                items = (item for item in value if isinstance(item, dict))
                usage[name] = [_usage_in(item, all_counts=all_counts) for item in items]
            case str() if name in USAGE_TEXTS or (name in USAGE_NAMES and _is_name(value)):
                usage[name] = value
            case str() if name == COST and all_counts and (cost := cost_of(value)) is not None:
                usage[name] = cost
            case int() | float() if name in (COST, SHOWN) or (within and name.isidentifier()):
                usage[name] = value
    if not all_counts:
        return usage
    if within:
        return _with_tokens_of(values, usage)
    return _with_call_of(values, usage, is_call) if is_call(values) else usage


def _with_tokens_of(values: JsonObject, usage: JsonObject) -> JsonObject:
    """Return ``usage``, the numbers of ``values``, with the same tokens: ``usage_of`` also reads
    texts of numbers, and maps such as ``prompt_tokens_details``. The result has a form that
    ``verify`` of earlier versions accepts.
    """
    tokens = usage_of(values)
    for fields in (usage, {**usage, **tokens}):
        if usage_of(fields) == tokens:
            return fields
    # A text that is left out stood before a number that did not count.
    return {**without_tokens(usage), **tokens}


def _with_call_of(
    values: JsonObject, usage: JsonObject, is_call: Callable[[JsonMap], bool]
) -> JsonObject:
    """Return ``usage``, what remains of ``values``, with the same tokens and calls: see
    ``_with_tokens_of``. A map of usage is itself a call, so only the fields of a call get one.
    """
    counts: JsonObject = {}
    if isinstance(values.get("usage"), dict):
        counts = usage["usage"]
    elif is_call is describes_call:
        # Figures read the tokens of a call without a map of usage in the fields beside its model.
        counts = {**usage_of(values)}
    calls = recorded_calls(values)
    if calls is not None and calls != recorded_calls({"usage": counts}):
        counts = {**counts, CALLS: calls}
    if not counts and not is_call(usage):
        counts = {CALLS: 1}  # What made the fields a call is left out.
    return {**usage, "usage": counts} if counts else usage


def _fields_without_content(
    event: Event, usage_in: Callable[[JsonObject], JsonObject]
) -> JsonObject:
    """Return the fields of an event that a redaction replaces, without their content.
    ``usage_in`` returns the usage that remains of some fields.
    """
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
            return {"data": usage_in({name: data}).get(name) if name == CONDENSER_META else None}
        case DocumentChanges(changed=changed):
            values = {name: {"value": {} if name == ATTRIBUTES else TEXT} for name in changed}
            return {
                "changed": {
                    name: change if "deleted" in change else values[name]
                    for name, change in changed.items()
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
                "metadata": declined | usage_in(metadata),
            }
        case CondensationSummary():
            return {"content": TEXT}
    raise TypeError(f"an event of type {type(event).__name__} cannot be redacted")


def _origin(origin: Origin | None) -> Origin | None:
    """Return the origin without a source id that may be content."""
    if origin is None or _is_name(str(origin.id)):
        return origin
    return replace(origin, id=None)
