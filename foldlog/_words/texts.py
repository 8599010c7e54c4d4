"""The words of an event as one text, for full-text indexes."""

from __future__ import annotations

import json
from typing import Any

from foldlog.eventstore import Content, Event, events, said


def text_of(event: Event) -> str:
    """Return the words of the event: its content, or its tool with thought and arguments, or its summary."""
    match event:
        case (
            events.SystemMessage(content=content)
            | events.Message(content=content)
            | events.Observation(content=content)
        ):
            return _words(content)
        case events.CondensationSummary(content=content):
            return content
        case events.Action(tool=tool, thought=thought, arguments=arguments):
            called = arguments if isinstance(arguments, str) else as_json(arguments)
            return f"{_words(thought)}\n{tool} {called}".strip()
        case events.Annotation(name=name, data=data):
            return f"{name} {as_json([*map(_readable, data)] if isinstance(data, list) else _readable(data))}"
        case events.DocumentChanges(changed=changed):
            return as_json(changed)
        case (
            events.CondensationRequest(reason=reason)
            | events.Retraction(reason=reason)
            | events.Redaction(reason=reason)
            | events.Erased(reason=reason)
        ):
            return reason
        case events.Entry():
            return ""
        case events.CondensationAction(summary=summary):
            return summary or ""
        case events.UnknownEvent(body=body):
            return body.decode("utf-8", "replace")


def _readable(block: Any) -> Any:
    """Return a block of a model's thinking without its signature, which has no words."""
    if not isinstance(block, dict):
        return block
    return {name: value for name, value in block.items() if name not in ("signature", "encrypted_content")}


def as_json(value: Any) -> str:
    """Return a value as JSON, and None as an empty text."""
    return "" if value is None else json.dumps(value, ensure_ascii=False, default=said)


def storable(text: str) -> str:
    """Return a text that every database holds: lone surrogates are shown as escapes."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _words(content: Content) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in content if isinstance(part.get("text"), str))
