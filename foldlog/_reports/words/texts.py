"""Join the texts of an event into one text, for full-text indexes."""

from __future__ import annotations

from typing import Any

from foldlog._base.values import values_in
from foldlog.eventstore import Event, events
from foldlog.projections import content_texts

SIGNATURES = frozenset({"signature", "encrypted_content"})
"""The encrypted fields in a model's thinking. Only the model's server can read them."""


def text_of(event: Event) -> str:
    """Join the texts of an event into one text. The model's thinking comes first."""
    # imported here, because the help of a command needs no condenser
    from foldlog.condensers.prompts.rendering import readable

    # The most frequent kinds come first.
    match event:
        case events.Action(tool=tool, thought=thought, arguments=arguments):
            called = "" if arguments is None else readable(arguments)
            return "\n".join(
                (*thinking_texts(event), *content_texts(thought), f"{tool} {called}")
            ).strip()
        case (
            events.Observation(content=content)
            | events.Message(content=content)
            | events.SystemMessage(content=content)
        ):
            return "\n".join((*thinking_texts(event), *content_texts(content)))
        case events.CondensationSummary(content=content):
            return content
        case events.Annotation(name=name, data=data):
            shown = (
                [*map(_without_signature, data)]
                if isinstance(data, list)
                else _without_signature(data)
            )
            return f"{name} {readable(shown)}"
        case events.DocumentChanges(changed=changed):
            return readable(changed)
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
            return readable(body.decode("utf-8", "replace"))


def thinking_texts(event: Event) -> list[str]:
    """Return the texts of the model's thinking in an event, without what is signed or encrypted."""
    if not (isinstance(event, events.Action | events.Message) and event.thinking):
        return []
    named_texts = values_in([*map(_without_signature, event.thinking)])
    return [
        text for name, text in named_texts if isinstance(text, str) and name not in ("type", "id")
    ]


def _without_signature(block: Any) -> Any:
    """Return a block of thinking without its signature and its encrypted data."""
    if not isinstance(block, dict):
        return block
    if block.get("type") == "redacted_thinking":
        encrypted = SIGNATURES | {"data"}
    else:
        encrypted = SIGNATURES
    return {name: value for name, value in block.items() if name not in encrypted}


def storable(text: str) -> str:
    """Return a text that every database can store: escapes replace lone surrogates."""
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()
