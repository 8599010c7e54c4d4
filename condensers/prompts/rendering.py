"""This module renders events as text for a model that summarizes them. The text contains all
arguments of a call, up to the user's character limit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from foldlog._base.json_types import JsonMap
from foldlog._base.values import parse
from foldlog.eventstore import Action, CondensationSummary, Event, events
from foldlog.projections import as_json, words_of


def event_text(event: Event) -> str:
    """Return the text of an event for a prompt: who said or did it, and its content."""
    match event:
        case events.SystemMessage():
            return f"System prompt:\n{words_of(event.content)}"
        case events.Message():
            return f"{event.source.capitalize()}:\n{words_of(event.content)}"
        case events.Action():
            call = f"Calls {event.tool} with {readable(event.arguments)}"
            return "\n".join(filter(None, (words_of(event.thought), call)))
        case events.Observation():
            outcome = "Error from" if event.is_error else "Result of"
            return f"{outcome} {event.tool or 'a tool'}:\n{words_of(event.content)}"
        case events.CondensationSummary():
            return f"Summary of what came before:\n{event.content}"
        case events.UnknownEvent():
            return f"{event.stored_kind}:\n{readable(event.body.decode('utf-8', 'replace'))}"
        case events.Annotation():
            return f"{event.name}:\n{readable(event.data)}"
    return type(event).__name__


def event_blocks(events: Sequence[Event], limit: int | None) -> str:
    return "\n\n".join(
        event_block(event, limit) for event in events if not isinstance(event, CondensationSummary)
    )


def event_block(event: Event, limit: int | None) -> str:
    # A closing tag in the text is escaped.
    return f"<EVENT id={event.id}>\n{_quote(truncate(event_text(event), limit))}\n</EVENT>"


def previous_summary(summaries: Iterable[str], limit: int | None) -> str:
    texts = [_quote(truncate(summary, limit)) for summary in summaries]
    return "\n\n".join(texts) or "(none: this is the first)"


_CLOSING_TAG = re.compile(r"<(?=\s*/\s*(EVENT|PREVIOUS\s+SUMMARY)\s*>)", re.IGNORECASE)
"""Matches the beginning of a closing tag, which a model would take for the end of a quoted text."""
_ESCAPES = re.compile(r"""(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))+""")


def _quote(text: str) -> str:
    return _CLOSING_TAG.sub("<\\\\", text)


def truncate(text: str, limit: int | None, where: str = "") -> str:
    """Cut the middle out of a text with more than ``limit`` characters, and put a note in its
    place. If the limit is None or negative, the whole text is returned. If the limit is too small
    for the note, the beginning of the text is returned without a note.
    """
    if limit is None or limit < 0 or len(text) <= limit:
        return text
    note = f"\n[... {len(text) - limit} of {len(text)} characters and more left out{where} ...]\n"
    room = limit - len(note)
    if room <= 0:
        return text[:limit]
    head = (room + 1) // 2
    return text[:head] + note + text[len(text) - (room - head) :]


def clip_line(line: str, length_max: int) -> str:
    return line if len(line) <= length_max else f"{line[: length_max - 1]}…"


def arguments_of(call: Action) -> JsonMap:
    """Return the arguments of a call by their names. A text that is not JSON becomes an argument
    with the name ``arguments``. Of any other JSON value, such as a list or a number, the result is
    empty.
    """
    arguments = parse(call.arguments)
    if isinstance(arguments, dict):
        return arguments
    if isinstance(arguments, str):
        return {"arguments": arguments}
    return {}


def readable(value: Any) -> str:
    """Return a value as text that is easy to read. A text that does not begin like a JSON object
    is returned unchanged.
    """
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        return value
    return unescape(as_json(value))


def unescape(text: str) -> str:
    # Most texts escape only line breaks, quotation marks and tabs. After an escaped backslash, a
    # backslash stays.
    plain = text.replace("\\n", "\n").replace('\\"', '"').replace("\\t", "\t")
    if "\\" not in plain:
        return plain
    return _ESCAPES.sub(lambda escapes: _characters(escapes[0]), text)


@lru_cache(1_000)  # most escapes are line breaks and quotation marks
def _characters(escapes: str) -> str:
    return str(json.loads(f'"{escapes}"'))
