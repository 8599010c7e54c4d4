"""Print an event in full: all its fields, arguments formatted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rich.console import Console
from rich.text import Text

from foldlog._cli import terminal
from foldlog._cli.moments import event_moment, moment_words
from foldlog._cli.styles import LABEL_COLUMNS, STYLES, interval_words
from foldlog._kinds import label
from foldlog._words.gist import parsed
from foldlog.eventstore import Content, Event, events, said

_Part = tuple[str, str]
"""Heading and text."""


def show_event(console: Console, event: Event, recorded_at: datetime) -> None:
    """Print the event with its line breaks. On a terminal its text is wrapped, never cut."""
    kind = label(event)
    heading = Text.assemble((f"{event.id:>6}  ", "bold"), (f"{kind:<{LABEL_COLUMNS}}", STYLES[kind]))
    heading.append(event_moment(event, recorded_at) or "no time of its own", style="dim")
    console.print(heading, soft_wrap=not terminal.has_edge())
    for name, value in _facts(event, recorded_at):
        line = Text.assemble((f"{name:>15}  ", "dim"), terminal.printable(value, one_line=True))
        console.print(line, soft_wrap=not terminal.has_edge())
    for name, text in _parts(event):
        if name:
            console.print(Text(f"{name:>15}:", style="dim"), soft_wrap=True)
        terminal.print_indented(console, Text(terminal.printable(text)), 8)
    console.print()


def _facts(event: Event, recorded_at: datetime) -> Iterator[tuple[str, str]]:
    """Yield the short fields of an event, for a line each."""
    yield "source", event.source
    if event.timestamp != recorded_at:
        yield "recorded at", moment_words(recorded_at)
    if event.origin is not None:
        named = "" if event.origin.id is None else f", id {json.dumps(event.origin.id, ensure_ascii=False)}"
        yield "imported from", f"{event.origin.format}{named}"
        if event.origin.time is not None:
            yield "time", f"{event.origin.time} (without a zone)"
    for name in ("tool", "call_id", "response_id", "cause", "version", "reason", "name"):
        value = getattr(event, name, None)
        if value not in (None, ""):
            yield name.replace("_", " "), str(value)
    if getattr(event, "is_error", False):
        yield "is error", "yes"
    redacted = event.redacted
    if redacted is not None:
        said = f"{moment_words(redacted.at)} by {redacted.by}: {redacted.reason}"
        yield "redacted", f"{said} ({redacted.bytes:,} bytes, hash {redacted.hash})"
    for event_id, its_hash in zip(getattr(event, "event_ids", ()), getattr(event, "hashes", ()), strict=False):
        yield "redacts", f"event {event_id} (hash {its_hash})"
    if by := getattr(event, "by", ""):
        yield "by", by
    if not event.shown:
        yield "shown", "never to a model"


def _parts(event: Event) -> Iterator[_Part]:
    """Yield the long fields of an event."""
    match event:
        case events.SystemMessage(content=content, tools=tools):
            yield from _content("", content)
            if tools:
                yield f"tools ({len(tools)})", _json(tools)
        case events.Message(content=content) | events.CondensationSummary(content=content):
            yield from _content("", content)
        case events.Action():
            yield from _content("thought", event.thought)
            if event.thinking:
                yield "thinking", _json(event.thinking)
            yield from _arguments(event.arguments)
        case events.Observation(content=content, extras=extras):
            yield from _content("", content)
            if extras:
                yield "extras", _json(extras)
        case events.Annotation(data=data):
            if data is not None:
                yield "data", _json(data)
        case events.DocumentChanges(changed=changed):
            yield "changed", _json(changed)
        case events.CondensationAction():
            yield from _condensation(event)
        case events.UnknownEvent(body=body):
            yield "as it was written", body.decode("utf-8", "replace")
    for name in ("meta", "extra"):
        if value := getattr(event, name):
            yield name, _json(value)


def _condensation(event: Any) -> Iterator[_Part]:
    intervals, summaries = event.forgotten
    yield "forgotten", interval_words(intervals, len(intervals)) or "no events"
    if summaries:
        yield "and summaries", ", ".join(map(str, summaries))
    if event.summary is not None:
        yield f"summary (at {event.summary_offset})", event.summary
    if event.metadata:
        yield "metadata", _json(event.metadata)


def _content(name: str, content: Content) -> Iterator[_Part]:
    """Yield a content: its texts as they are, its other parts as JSON."""
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


def _arguments(arguments: dict[str, Any] | str | None) -> Iterator[_Part]:
    """Yield the arguments of a call: each text of several lines by itself, the rest as JSON."""
    given = parsed(arguments)
    if not isinstance(given, dict):
        if given is not None:
            yield "arguments", given if isinstance(given, str) else _json(given)
        return
    long = {name: value for name, value in given.items() if isinstance(value, str) and "\n" in value}
    if rest := {name: value for name, value in given.items() if name not in long}:
        yield "arguments", _json(rest)
    yield from long.items()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=said)
