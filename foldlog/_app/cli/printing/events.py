"""Print events."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from foldlog._app.cli import terminal
from foldlog._base.json_types import JsonObject
from foldlog._base.values import parse
from foldlog._reports.words import gist
from foldlog._reports.words.gist import id_words
from foldlog._reports.words.texts import thinking_texts
from foldlog._reports.words.times import time_text, time_words
from foldlog.eventstore import (
    CondensationAction,
    CondensationSummary,
    Content,
    Event,
    Origin,
    events,
)
from foldlog.eventstore.codec_json import describe_value
from foldlog.projections.conversations.labels import label
from foldlog.projections.conversations.unreadable import DAMAGED

STYLES = {
    "system": "dim",
    "user": "bold green",
    "agent": "bold cyan",
    "action": "cyan",
    "observation": "default",
    "error": "red",
    "refused": "yellow",
    "environment": "dim",
    "annotation": "dim",
    "documents": "dim",
    "request": "bold yellow",
    "condensation": "bold yellow",
    "retraction": "bold yellow",
    "redaction": "bold yellow",
    "summary": "bold magenta",
    "unknown": "red",
}
"""The style of a label, for the library rich."""

DAMAGED_STYLE = "bold red"
_ID = re.compile(r"(-?\d{1,18})|[Ss](\d{1,18})")
"""The id of an event, or of a summary as lists show it: S260 has the id -262. No conversation has
as many events as a number with more digits says.
"""
LABEL_COLUMNS = max(map(len, STYLES)) + 1
_Part = tuple[str, str]
"""The name of a text of an event, and the text."""


def event_id_in(text: str) -> int | None:
    """Return the id of the event for a text such as ``17`` or ``S260``. Return None for any other
    text.
    """
    match = _ID.fullmatch(text)
    if match is None:
        return None
    return -int(match[2]) - 2 if match[2] else int(match[1])


def event_spans(event: Event) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the id and the kind of an event, with their styles, for the beginning of its line."""
    kind = label(event)
    return (f"{id_words(event.id):>6}  ", "dim"), (f"{kind:<{LABEL_COLUMNS}}", STYLES[kind])


def damaged_spans(event_id: int) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return what ``event_spans`` returns, for an event that cannot be read."""
    return (f"{event_id:>6}  ", "dim"), (f"{DAMAGED:<{LABEL_COLUMNS}}", DAMAGED_STYLE)


def event_line(event: Event, width: int) -> str:
    """Return an event as one line without styles."""
    return f"{id_words(event.id):>6}  {label(event):<{LABEL_COLUMNS}}{gist.gist(event, width)}"


def interval_words(intervals: Sequence[tuple[int, int]], most: int = gist.INTERVALS_MAX) -> str:
    """Return intervals of ids as text, such as ``3-9, 12, 40-77``. On a terminal, the text has at
    most ``most`` intervals.
    """
    return gist.interval_words(intervals, most if terminal.has_edge() else gist.UNLIMITED)


def summary_at(summary: CondensationSummary, action: CondensationAction) -> CondensationSummary:
    """Return a summary with the time and the redaction of the condensation that made it."""
    if action.origin is None:
        origin = None
    else:
        origin = Origin(format=action.origin.format, time=action.origin.time)
    return replace(summary, timestamp=action.timestamp, origin=origin, redacted=action.redacted)


def event_moment(event: Event, recorded_at: datetime) -> str:
    """Return the time of the event for people. A time without a zone is not converted.
    Return an empty text if the event has no time.
    """
    return time_words(time_text(event, recorded_at) or "")


def show_event(event: Event, recorded_at: datetime, *, is_uncounted: bool = False) -> None:
    """Print the event with its line breaks. On a terminal, the text of the event is wrapped, never
    cut.
    """
    (number, _), kind = event_spans(event)
    terminal.say_wrapped(
        (number, "bold"), kind, (event_moment(event, recorded_at) or "no time of its own", "dim")
    )
    why = (
        "figures leave out this event, because it is a copy, because the import supplied it, or"
        " because its source dropped or repeated it later"
    )
    back = (("not counted", why),) if is_uncounted else ()
    for name, value in (*_short_fields(event, recorded_at), *back):
        terminal.say_wrapped((f"{name:>15}  ", "dim"), value)
    for name, text in _long_fields(event):
        if name:
            terminal.say((f"{name:>15}:", "dim"))
        terminal.print_indented(8, text)
    terminal.say()


def _short_fields(event: Event, recorded_at: datetime) -> Iterator[_Part]:
    """Yield the fields of an event that fit on a line."""
    yield "source", event.source
    if event.timestamp != recorded_at:
        yield "recorded at", time_words(recorded_at)
    if event.origin is not None:
        if event.origin.id is None:
            named = ""
        else:
            named = f", id {json.dumps(event.origin.id, ensure_ascii=False)}"
        yield "imported from", f"{event.origin.format}{named}"
        if event.origin.time:
            yield "time", f"{event.origin.time} (without a zone)"
    for name in ("tool", "call_id", "response_id", "cause", "version", "reason", "name"):
        value = getattr(event, name, None)
        if value not in (None, ""):
            yield name.replace("_", " "), str(value)
    if getattr(event, "is_error", False):
        yield "is error", "yes"
    redacted = event.redacted
    if redacted is not None:
        words = f"{time_words(redacted.at)} by {redacted.by}: {redacted.reason}"
        yield "redacted", f"{words} ({redacted.bytes:,} bytes, hash {redacted.hash})"
    for event_id, its_hash in zip(
        getattr(event, "event_ids", ()), getattr(event, "hashes", ()), strict=False
    ):
        yield "redacts", f"event {id_words(event_id)} (hash {its_hash})"
    if by := getattr(event, "by", ""):
        yield "by", by
    if not event.shown:
        yield "shown", "never to a model"


def _long_fields(event: Event) -> Iterator[_Part]:
    """Yield the texts of an event, and the fields that are printed as JSON."""
    if getattr(event, "thinking", ()):
        yield (
            "thinking",
            "\n".join(thinking_texts(event)) or "encrypted: only the model's server can read it",
        )
    match event:
        case events.CondensationAction():
            yield from _condensation(event)
        case events.UnknownEvent(body=body):
            yield "as it was written", body.decode("utf-8", "replace")
        case _:
            yield from _content("", getattr(event, "content", ""))
            yield from _content("thought", getattr(event, "thought", ""))
            yield from _arguments(getattr(event, "arguments", None))
    for name in ("extras", "data", "changed", "meta", "extra"):
        value = getattr(event, name, None)
        if value is not None and value != {}:
            yield name, _json(value)
    if tools := getattr(event, "tools", ()):
        yield f"tools ({len(tools)})", _json(tools)


def _condensation(event: CondensationAction) -> Iterator[_Part]:
    """Yield what a condensation forgot, and its summary."""
    intervals, summaries = event.forgotten
    yield "forgotten", interval_words(intervals, len(intervals)) or "no events"
    if summaries:
        yield "and summaries", ", ".join(map(id_words, summaries))
    if event.summary is not None:
        yield f"summary, at View index {event.summary_offset}", event.summary
    if event.metadata:
        yield "metadata", _json(event.metadata)


def _content(name: str, content: Content) -> Iterator[_Part]:
    """Yield the parts of a content. Other parts than texts are printed as JSON."""
    if isinstance(content, str):
        if content:
            yield name, content
        return
    for part in content:
        text = part.get("text")
        if part.get("type") == "text" and isinstance(text, str):
            yield name, text
        else:
            yield str(part.get("type", "part")), _json(part)


def _arguments(arguments: JsonObject | str | None) -> Iterator[_Part]:
    """Yield the arguments of a call as one JSON text, and then each argument with line breaks as a
    text of its own.
    """
    fields = parse(arguments)
    if not isinstance(fields, dict):
        if fields is not None:
            yield "arguments", fields if isinstance(fields, str) else _json(fields)
        return
    long = {
        name: value for name, value in fields.items() if isinstance(value, str) and "\n" in value
    }
    if rest := {name: value for name, value in fields.items() if name not in long}:
        yield "arguments", _json(rest)
    yield from long.items()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=describe_value)
