"""Read fields of events for the encoders of formats: role, time, parts, and call id."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeVar
from uuid import NAMESPACE_OID, uuid5

from foldlog._base.json_types import JsonObject
from foldlog.eventstore import (
    Action,
    Annotation,
    CondensationAction,
    CondensationRequest,
    Content,
    DocumentChanges,
    Event,
    Message,
    Observation,
    Redaction,
    Retraction,
    SystemMessage,
)
from foldlog.eventstore.log.redacted import TEXT
from foldlog.formats.json_text import value_of
from foldlog.formats.record import Fields, text_or_empty, time_text, within
from foldlog.projections import arguments_of as arguments_shown

T = TypeVar("T")

REDACTED = TEXT
"""The text that replaces a redacted text, or a redacted value of a document."""
HANDED_OVER = "handed_over"
"""The key in ``Message.meta`` of the note, which says what was handed over."""
STORE_EVENTS = (Retraction, Redaction, DocumentChanges)
"""Types of events that only a store has."""
NOT_WRITTEN = (CondensationAction, CondensationRequest, *STORE_EVENTS)
"""Types of events for which no message format has a record."""


def role_of(event: Event) -> Literal["system", "user", "assistant", "tool"]:
    """Return the role of an event in a chat. Summaries and messages of the environment have the
    role of a user.
    """
    if isinstance(event, SystemMessage):
        return "system"
    if isinstance(event, Observation):
        return "tool"
    is_agent = isinstance(event, Action) or (
        isinstance(event, Annotation | Message) and event.source == "agent"
    )
    return "assistant" if is_agent else "user"


def call_id_of(event: Action | Observation) -> str:
    """Return the id of a call. For a result, return the id of its call. If the call has no id, the
    returned id contains the event id of the call.
    """
    if event.call_id:
        return event.call_id
    if event.cause is None or isinstance(event, Action):
        return f"call_{event.id}"
    return f"call_{event.cause}"


def stamp_of(event: Event) -> dict[str, str]:
    """Return the field with the time of an event, or nothing for an unknown time."""
    time = time_text(event.timestamp, event.origin)
    return {} if time is None else {"timestamp": time}


def session_of(first: object) -> str:
    """Return a session id for an export. The id depends only on the first event or record, so a
    later export of the conversation has an equal id.
    """
    return str(uuid5(NAMESPACE_OID, ascii(first)))


def id_of_source(event: Event) -> Any:
    """Return the id of an event in its source, or None. A redaction does not delete this id."""
    return None if event.origin is None else event.origin.id


def parts_in(content: Content) -> Iterable[Fields]:
    """Return content as parts. A text becomes a single part. An empty text is left out."""
    if isinstance(content, str):
        return [text_part(content)] if content else ()
    return content


def parts_as(content: Content, text: Callable[[str], T], file: Callable[[str, str], T]) -> list[T]:
    """Convert the parts of a content: texts with ``text``, and files with ``file``, which gets the
    address and the name of a file.
    """
    if isinstance(content, str):
        return [text(content)]
    converted = []
    for part in content:
        url = file_in(part)
        if url:
            converted.append(file(url, text_or_empty(part, "file", "filename")))
        else:
            converted.append(text(part.get("text", "")))
    return converted


def text_part(text: Any) -> Fields:
    """Return the part of a text."""
    return {"type": "text", "text": text}


def image_at(url: str) -> Fields:
    """Return the part of an image."""
    return {"type": "image_url", "image_url": {"url": url}}


def input_at(url: str, name: str) -> Fields:
    """Return the part of a file for OpenAI's Responses API."""
    if data_in(url)[1] and not url.startswith("data:image/"):
        return {"type": "input_file", "filename": name or "file", "file_data": url}
    return {"type": "input_image", "image_url": url}


def file_at(url: str, media_type: str, name: str = "") -> Fields:
    """Return the part of a file of any type."""
    if media_type.startswith("image/"):
        return image_at(url)
    key = "file_data" if url.startswith("data:") else "file_url"
    return {"type": "file", "file": {"filename": name, key: url}}


def data_url(media_type: Any, data: str) -> str:
    """Return a data URL with data in base64."""
    return f"data:{media_type};base64,{data}"


def data_in(url: str) -> tuple[str, str]:
    """Return the media type and the base64 text in a data URL. For any other URL, return two empty
    texts.
    """
    head, is_held, data = url.partition(";base64,")
    if is_held and head.startswith("data:"):
        return head.removeprefix("data:"), data
    return "", ""


def url_in(part: Fields) -> str:
    """Return the address of an image, or an empty text for another part."""
    image = part.get("image_url") if part.get("type") == "image_url" else None
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) else ""


def file_in(part: Fields) -> str:
    """Return the data of a file, or the data or address of an image. Return an empty text for any
    other part, such as a file that has only an address.
    """
    if part.get("type") == "file":
        file_data = within(part, "file", "file_data")
        if isinstance(file_data, str):
            _, data = data_in(file_data)
            if data:
                return file_data
    return url_in(part)


def arguments_of(call: Action) -> Fields:
    """Return the arguments of a call as an object. Arguments of another form are in its field
    ``invalid_arguments``: see ``projections.arguments_of``.
    """
    if isinstance(call.arguments, str):
        arguments: Fields = value_of(arguments_shown(call))
        return arguments
    return call.arguments or {}


def note_of(event: Event) -> JsonObject | None:
    """Return what was handed over, if the event is the note of an earlier hand-over."""
    note = event.meta.get(HANDED_OVER)
    is_note = isinstance(note, dict) and isinstance(note.get("format"), str)
    return note if is_note and isinstance(event, Message) else None
